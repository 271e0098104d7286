"""The recipes of docs/cookbook are followed, and their promises checked."""
