"""Rules of the operators' work as values: archives, repair plans, erasure reports, expiry, receipts."""
