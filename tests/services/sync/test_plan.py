from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.formats import reading_of
from core.knowledge import Document, DocumentStatus, revision_of
from services.sync.plan import ExpectedDocument, is_settled, make_plan, too_many_missing
from services.sync.scanner import BadFile, Scan, ScannedFile

EXPECTED = ExpectedDocument("shared")
REFUSED = revision_of("x", reading_of("a.md"))


def document(name: str, **changes: Any) -> Document:
    made = Document(
        document_id=f"id of {name}", owner="shared", file_name=name, content_hash="h", size_bytes=4,
        created_us=1, status=DocumentStatus.READY, external_id=f"docs/{name}", source="docs", modified_us=7,
        reading=reading_of(name),
    )  # fmt: skip
    return replace(made, **changes)


def file(name: str, size_bytes: int = 4, modified_us: int = 7) -> ScannedFile:
    return ScannedFile(name, f"docs/{name}", size_bytes, modified_us)


def test_new_and_changed_files_are_read_smallest_first() -> None:
    known = [document("same.md"), document("longer.md"), document("touched.md")]
    observed = [file("same.md"), file("longer.md", 90), file("touched.md", 4, 8), file("new.md", 50)]
    plan = make_plan(known, Scan(tuple(observed)), EXPECTED)
    assert [task.file.path for task in plan.to_read] == ["touched.md", "new.md", "longer.md"]
    assert [task.known is None for task in plan.to_read] == [False, True, False]
    assert (plan.unchanged, plan.deleted, plan.moved) == (1, (), ())


@pytest.mark.parametrize(
    ("changes", "settled"),
    [
        ({}, True),
        ({"status": DocumentStatus.INGESTING}, True),
        ({"status": DocumentStatus.FAILED, "error": "broken"}, True),
        ({"status": DocumentStatus.FAILED, "error": "away", "content_hash": ""}, False),
        ({"refused_hash": REFUSED, "size_bytes": 99}, True),
        ({"refused_hash": REFUSED, "modified_us": 6}, False),
        ({"refused_hash": "x"}, False),
        ({"reading": 0}, False),
        ({"reading": 0, "status": DocumentStatus.FAILED, "error": "broken"}, False),
        ({"modified_us": 6}, False),
        ({"size_bytes": 5}, False),
        ({"tags": ("old",)}, False),
        ({"tags": ("old",), "refused_hash": REFUSED}, True),
        ({"owner": "ann"}, False),
        ({"owner": "ann", "refused_hash": REFUSED}, False),
    ],
)
def test_a_file_is_settled_once_size_and_time_are_known(changes: dict[str, Any], settled: bool) -> None:
    """Discriminates: a document that an earlier release read, or refused, and that is never read again."""
    assert is_settled(document("a.md", **changes), file("a.md"), EXPECTED) is settled


def test_a_refused_file_is_not_read_again_but_reported_again() -> None:
    failed = document("a.md", status=DocumentStatus.FAILED, error="It is encrypted.")
    older = document("b.md", refused_hash=REFUSED, error="It is broken.")
    plan = make_plan([failed, older], Scan((file("a.md"), file("b.md"))), EXPECTED)
    assert (plan.to_read, plan.unchanged) == ((), 0)
    assert [refused.reason for refused in plan.refused] == ["It is encrypted.", "It is broken."]


def test_an_unreadable_file_or_folder_does_not_count_as_removed() -> None:
    """Discriminates: counting documents below an unreadable folder, or of an unreadable file, as removed."""
    known = [document("closed/a.md"), document("big.md"), document("gone.md"), document("closed2/b.md")]
    scan = Scan(bad=(BadFile("big.md", "docs/big.md", "too big"),), unseen=("docs/closed/",))
    plan = make_plan(known, scan, EXPECTED)
    assert [each.file_name for each in plan.deleted] == ["gone.md", "closed2/b.md"]


def test_a_document_with_the_size_of_a_new_file_may_have_moved() -> None:
    known = [document("old.md", size_bytes=10), document("gone.md", size_bytes=11)]
    plan = make_plan(known, Scan((file("new.md", 10),)), EXPECTED)
    assert [each.file_name for each in plan.moved] == ["old.md"]
    assert [each.file_name for each in plan.deleted] == ["gone.md"]


@pytest.mark.parametrize(
    ("deleted", "known", "many"),
    [
        (19, 19, False),
        (19, 20, True),
        (20, 40, False),
        (20, 39, True),
        (21, 1_000, False),
        (501, 1_000, True),
    ],
)
def test_removing_more_than_half_and_more_than_a_few_is_too_many(
    deleted: int, known: int, many: bool
) -> None:
    assert too_many_missing(deleted, known) is many
