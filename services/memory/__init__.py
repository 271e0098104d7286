"""Memories of a person across conversations: storage, write gate, recall and learning."""
