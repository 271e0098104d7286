"""Learning the coefficients of relevance from question sets."""
