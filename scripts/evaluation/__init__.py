"""How well questions are answered, measured on sets of questions with known answers."""
