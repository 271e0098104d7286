"""Retrieval without an answer, stage by stage."""
