"""The store's dialect and what everybody needs of it: collections, receipts, disk space, the clock."""
