"""Evaluation: how well questions are answered, measured on sets with known answers."""
