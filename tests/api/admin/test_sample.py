from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.admin.sample import load_folder
from core.formats import supported_files
from tests.support.stores.knowledge import Bench, memory_store, open_bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with memory_store() as store, open_bench(store) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zh").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "zh" / "index.md").write_text("# 开始\n\n第一步。", encoding="utf-8")
    (tmp_path / "index.md").write_text("# Start\n\nFirst step.", encoding="utf-8")
    (tmp_path / "bad.md").write_text("poison", encoding="utf-8")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".git" / "hidden.md").write_text("hidden", encoding="utf-8")
    (tmp_path / "link.md").symlink_to(tmp_path / "index.md")
    return tmp_path


def test_the_files_of_a_folder_are_the_supported_ones_in_order(folder: Path) -> None:
    names = [path.relative_to(folder).as_posix() for path in supported_files(folder)]
    assert names == ["bad.md", "empty.txt", "index.md", "zh/index.md"]


async def test_a_folder_is_added_once_and_failing_files_are_named_with_their_reason(
    bench: Bench, folder: Path
) -> None:
    failed = await load_folder(bench.knowledge, folder)
    assert list(failed) == ["empty.txt", "bad.md"]  # smallest file first
    assert failed["empty.txt"] == "file: the file is empty."
    page = await bench.knowledge.documents.page(["shared"], 10)
    ready = [document for document in page.documents if not document.error]
    assert {document.external_id for document in ready} == {"index.md", "zh/index.md"}
    (folder / "bad.md").unlink()
    (folder / "empty.txt").unlink()
    assert await load_folder(bench.knowledge, folder) == {}
    again = await bench.knowledge.documents.page(["shared"], 10)
    assert [document for document in again.documents if not document.error] == ready
