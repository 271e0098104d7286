"""How probably a passage answers a question: words, dates, sparse vectors, fusion, calibration."""
