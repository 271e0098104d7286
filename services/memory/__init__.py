"""What is remembered of a person across conversations: stored, gated, recalled and learned."""
