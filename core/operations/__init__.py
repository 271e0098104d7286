"""Values and rules of operations: archives, repairs, erasure, expiry, receipts, reports of a sync."""
