"""Language models, one per provider's wire format, each a LlamaIndex LLM that streams deltas."""
