"""Sessions and stored turns: listed, changed, exported, imported, and the prompt that was sent."""
