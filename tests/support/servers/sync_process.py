"""Run as a process: holds the folder sync lock in argv[1] until standard input ends."""

from __future__ import annotations

import sys
from pathlib import Path

from services.sync.folders import SyncLock

if __name__ == "__main__":
    SyncLock(Path(sys.argv[1])).acquire()
    print("held", flush=True)
    sys.stdin.read()
