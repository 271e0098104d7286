"""Retrieval alone, stage by stage."""
