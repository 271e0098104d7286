"""Rules of the operators' work as values: archives, repairs, erasure, expiry, receipts, reports of a sync."""
