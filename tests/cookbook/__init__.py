"""The recipes of docs/cookbook are followed, and what they promise is checked."""
