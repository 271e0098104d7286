"""Embeddings and rerankers besides the bundled ones: of sentence-transformers, and behind endpoints."""
