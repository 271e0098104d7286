"""Documents: taken in, versioned, listed, and removed with all their chunks."""
