"""Embeddings and rerankers besides the bundled ones, and any LlamaIndex class by its import path."""
