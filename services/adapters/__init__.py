"""Rooms for outside technologies, one each: they translate, and only the wiring opens them."""
