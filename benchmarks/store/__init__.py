"""Speed of the store, the embedding and ingestion on their own."""
