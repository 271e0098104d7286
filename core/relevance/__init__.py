"""How probably a passage answers a question: its words, identifiers, sparse vectors, fusion, translation."""
