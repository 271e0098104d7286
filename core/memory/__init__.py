"""What is remembered about a person across conversations: the record, requests for one, the write gate."""
