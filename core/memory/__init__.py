"""What is remembered of a person across conversations: the record, requests for one, what may be kept."""
