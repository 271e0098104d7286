"""Do what the README tells a newcomer: `make run`, then its curl, and see an answer stream."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMIT_S = 180  # from typing `make run` to the first answer


def main() -> int:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", readme, re.M | re.S)
    start = next(block.strip() for block in blocks if block.startswith("make run"))
    curl = next(block.strip() for block in blocks if block.startswith("curl -N"))
    begun = time.monotonic()
    server = subprocess.Popen(
        start.splitlines()[0], shell=True, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            print(line, end="")
            if "http://" in line:
                break
        asked = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=60, check=True)
        took = time.monotonic() - begun
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)
    print(asked.stdout)
    assert "data: SESSION:" in asked.stdout, "the README's curl did not stream"
    assert asked.stdout.rstrip().endswith("data: DONE:"), "the README's curl did not stream to its end"
    assert took < LIMIT_S, f"the first answer took {took:.0f} s"
    print(f"README: the first answer came {took:.0f} s after typing the first command")
    return 0


if __name__ == "__main__":
    sys.exit(main())
