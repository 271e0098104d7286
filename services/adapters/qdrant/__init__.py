"""A Qdrant server or cluster: its client with our errors, and its snapshots."""
