"""Language models, embeddings and filters that do what a test says."""
