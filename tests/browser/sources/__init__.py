"""The sources of an answer: cards, marks, context."""
