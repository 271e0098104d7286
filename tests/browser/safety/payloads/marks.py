"""What a shape that runs leaves behind: a mark on the window, or a connection to a foreign host."""

from __future__ import annotations

RAN = "window.__ran=1"
UP = "parent.__ran=top.__ran=1"  # from inside a frame
HOST = "evil.test"
HOME = f"//{HOST}/leak"
LURE = f"http:{HOME}"
