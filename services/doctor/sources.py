"""The followed folders, as the next sync will meet them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from config.knowledge import SourceSettings
from services.doctor.doctor import Finding, fail, ok, warn


def check_sources(sources: Mapping[str, SourceSettings]) -> Iterator[Finding]:
    """One finding for each; none without sources."""
    for name, source in sources.items():
        yield _check(f"source {name}", source)


def _check(name: str, source: SourceSettings) -> Finding:
    folder = source.folder
    if not folder.is_dir():
        return fail(name, f"{folder} is not a folder: mount it, or correct [sources] in the configuration")
    if not os.access(folder, os.R_OK | os.X_OK):
        return fail(name, f"{folder} may not be read: let the server's user read it")
    if not os.listdir(folder):
        return warn(name, f"{folder} is empty: is the disk mounted?")
    return ok(name, f"{folder} is followed")
