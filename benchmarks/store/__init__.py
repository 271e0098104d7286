"""Speed of the store, the embedding and ingestion by themselves."""
