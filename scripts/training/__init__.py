"""Training: the calibrated reranker's coefficients, learnt from sets of questions."""
