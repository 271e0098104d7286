"""Background jobs that read documents in: the queue, the spool of uploads, and who waits for whom."""
