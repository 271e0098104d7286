"""Scripted language models, embeddings and filters for tests."""
