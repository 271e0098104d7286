"""One turn from question to DONE, and the turns that are running."""
