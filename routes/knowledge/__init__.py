"""The routes of documents: add, list, read, search, erase, and the jobs and sources behind them."""
