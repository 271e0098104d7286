"""From a question to judged passages: search forms, hybrid search, reranking, and why not."""
