"""Whatever happens in a folder, after a run the documents are its valid files, and another run does
nothing."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.services.sync.parts import Bench, open_bench

NAMES = ("a.md", "b.txt", "in/a.md", "in/deeper/c.md", "报告.md", "Cafe\u0301.md", "no.exe", ".hidden.md")
CONTENTS = ("", "one", "two", "three", "BAD", "BAD too")

writes = st.tuples(st.just("write"), st.sampled_from(NAMES), st.sampled_from(CONTENTS))
removals = st.tuples(st.just("remove"), st.sampled_from(NAMES), st.just(""))
moves = st.tuples(st.just("move"), st.sampled_from(NAMES), st.sampled_from(NAMES))
batches = st.lists(st.lists(st.one_of(writes, removals, moves), max_size=6), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(batches)
def test_after_a_run_the_documents_are_the_valid_files_and_a_second_run_does_nothing(
    changes: list[list[tuple[str, str, str]]],
) -> None:
    """Discriminates: omitting any of added, changed, removed, moved or refused from the plan."""
    asyncio.run(_follow(changes))


async def _follow(batches: list[list[tuple[str, str, str]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_bench(Path(folder)) as bench:
            expected: dict[str, bytes] = {}
            for batch in batches:
                for change in batch:
                    _apply(bench, *change)
                await bench.run(allow_removals=True)
                expected = _expected(bench, expected)
                assert bench.knowledge.searched() == expected
                bench.knowledge.calls.clear()
                again = await bench.run(allow_removals=True)
                assert bench.knowledge.calls == ["of_source"]
                assert (again.added, again.changed, again.removed) == (0, 0, 0)


def _apply(bench: Bench, kind: str, name: str, what: str) -> None:
    file = bench.folder / name
    if kind == "write":
        bench.write(name, what)
    elif kind == "remove":
        file.unlink(missing_ok=True)
    elif file.exists() and Path(name).suffix == Path(what).suffix:
        (bench.folder / what).parent.mkdir(parents=True, exist_ok=True)
        file.rename(bench.folder / what)


def _expected(bench: Bench, before: dict[str, bytes]) -> dict[str, bytes]:
    """The valid files, and for those that are invalid now, their last valid content."""
    expected = {}
    for name in NAMES:
        file, external_id = bench.folder / name, f"docs/{name}".replace("e\u0301", "\u00e9")
        if not file.exists() or name in ("no.exe", ".hidden.md"):
            continue
        content = file.read_bytes()
        if content and not content.startswith(b"BAD"):
            expected[external_id] = content
        elif external_id in before:
            expected[external_id] = before[external_id]
    return expected
