"""Retention: turns that exceed their age limit are deleted, with everything derived from them."""
