"""What is stored of conversations: turns, sessions, summaries, and the earlier turns a question is about."""
