"""The OpenAI-compatible API: chat completions, models, embeddings, and errors in its form."""
