"""Embeddings and rerankers other than the bundled ones: from sentence-transformers, and behind endpoints."""
