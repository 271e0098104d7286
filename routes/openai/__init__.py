"""The doors for clients of OpenAI's API: chat completions, models, embeddings, and errors in that form."""
