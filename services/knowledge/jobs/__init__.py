"""Background ingestion jobs: the queue, the spool of uploads, and fair sharing among owners."""
