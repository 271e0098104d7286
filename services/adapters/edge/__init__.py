"""Qdrant's embedded engine, in a process of its own, behind the AsyncQdrantClient dialect."""
