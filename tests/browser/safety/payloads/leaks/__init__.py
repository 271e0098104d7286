"""Texts that would call home if they became markup."""
