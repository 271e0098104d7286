"""Whether a backup still holds what was erased since."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.operations.archive import BadArchiveError, Kind
from services.operations.backup.reader import holds
from services.operations.backup.records import framed
from tests.services.operations.backup.test_reader import craft, manifest_of, member_of, record

SESSION = "7f0c2f0e-7b7e-4a57-9d1e-000000000001"
OTHER = "7f0c2f0e-7b7e-4a57-9d1e-000000000002"
TURN = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    points = [
        record(id=TURN, payload={"sources": [{"of": f"see {SESSION}."}]}),
        record(id=17, payload={"text": "问 external-4", "session_id": "cyc", "writer": "问"}),
        record(id=18, payload={"owner": "giraffe", "turn_ids": ["t-9"]}),
    ]
    content = b"".join(map(framed, points))
    return craft(tmp_path / "a.zip", content, manifest_of([member_of(content, 3)]))


@pytest.mark.parametrize("expected", [TURN, SESSION, "17", "cyc", "t-9"])
def test_an_id_is_found_as_one_and_anywhere_in_a_payload(archive: Path, expected: str) -> None:
    """Discriminates: ids of points alone looked at; strings at the top of the payload alone."""
    assert holds(archive, [expected])
    assert holds(archive, [OTHER, *(f"{OTHER[:-3]}{n:03}" for n in range(100, 200)), expected])


def test_what_is_not_there_is_not_found(archive: Path) -> None:
    assert not holds(archive, [OTHER, "19", "external-4", "giraffe", "cy"])
    assert not holds(archive, [f"{OTHER[:-3]}{n:03}" for n in range(100, 200)])
    assert not holds(archive, [])
    assert not holds(archive, [""])


@pytest.mark.parametrize(
    ("owner", "existing"), [("giraffe", True), ("问", True), ("external-4", False), ("gir", False)]
)
def test_an_owner_is_the_whole_of_a_field_that_says_whose_it_is(
    archive: Path, owner: str, existing: bool
) -> None:
    """Discriminates: the name searched in the bytes of a record."""
    assert holds(archive, [], owner=owner) is existing
    assert holds(archive, [OTHER], owner=owner) is existing


def test_snapshots_cannot_be_searched_and_count_as_holding_it(tmp_path: Path) -> None:
    content = b"opaque"
    member = member_of(content, kind=Kind.SNAPSHOT)
    path = craft(tmp_path / "b.zip", content, manifest_of([member]))
    with pytest.raises(BadArchiveError):  # under the name of points
        holds(path, [TURN])
    path = craft(tmp_path / "c.zip", content, manifest_of([member]), name=member.file_name)
    assert holds(path, [TURN])


def test_an_archive_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "d.zip").write_bytes(b"half")
    with pytest.raises(BadArchiveError):
        holds(tmp_path / "d.zip", [TURN])
