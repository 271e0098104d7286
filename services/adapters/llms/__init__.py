"""Language models by their providers' wire formats, each a LlamaIndex LLM that streams deltas."""
