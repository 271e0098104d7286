"""Documents: ingested, versioned, listed, and removed with all their chunks."""
