"""Sessions and stored turns: list, change, export, import, and show the prompt that was sent."""
