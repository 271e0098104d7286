"""The routes of sessions and turns: list, read, rename, rate, erase, import, export."""
