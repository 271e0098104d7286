"""Places where a test may kill the process: `WENMAI_FAILPOINT=name`, or `name:3` for the third pass.

Unset, as it always is outside the fault tests, a failpoint costs one comparison.
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("WENMAI_FAILPOINT", "").partition(":")
_left = int(_count or 1)


def failpoint(name: str) -> None:
    """Kill the process with SIGKILL, as a power cut would, if this failpoint is armed."""
    global _left
    if name != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
