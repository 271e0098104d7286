"""From a question to judged passages: query forms, hybrid search, reranking, and "why not" explanations."""
