"""What operators run: retention, erasure, backup, repair, re-embedding, the doctor, logs and metrics."""
