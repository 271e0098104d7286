"""Places where a test may end the process: `WENMAI_FAILPOINT=name` or `name:3` (the third time it is passed).

Unset, which is always so outside the fault tests, a failpoint is one comparison.
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("WENMAI_FAILPOINT", "").partition(":")
_left = int(_count or 1)


def failpoint(name: str) -> None:
    """Kill the process with SIGKILL, as a power cut would, when this place is the one that is armed."""
    global _left
    if name != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
