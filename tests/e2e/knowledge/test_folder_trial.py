"""A small folder of mixed files, including every kind of bad file, ingested by a real server during chats.

The full version, a thousand files: `python -m benchmarks.folder.trial`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.folder.bad import BAD
from benchmarks.folder.trial import run


@pytest.mark.alone
async def test_a_mixed_folder_is_synced_while_chats_stream(tmp_path: Path) -> None:
    """Discriminates: a bad file without its reason; a second run that reads anything again."""
    assert await run(files=len(BAD) + 45, chats=4, changes=4, place=tmp_path, bad=len(BAD)) == []
