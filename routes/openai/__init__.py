"""The OpenAI-compatible API: chat completions, models and embeddings."""
