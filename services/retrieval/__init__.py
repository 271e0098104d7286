"""From a question to judged passages: query forms, hybrid search, reranking, calibrations, "why not"."""
