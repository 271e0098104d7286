"""The store's dialect and what is shared around it: collections, receipts, disk space, the clock."""
