"""No archive is trusted: crafted and damaged ones are refused, and nothing is written or run (T17, T18)."""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.operations.archive import (
    LENGTH,
    MANIFEST,
    BadArchiveError,
    DenseShape,
    Kind,
    Manifest,
    Member,
    PointRecord,
    Role,
    Shape,
    SparseValues,
    decode_manifest,
    encode_manifest,
)
from services.operations.backup.reader import holds, open_archive
from services.operations.backup.records import framed

ID = "00000000-0000-0000-0000-000000000001"
TURNS = "conversations.points"
SHAPE = Shape(
    {"turn": DenseShape(2, "Cosine")}, {"sparse": True}, {"owner": "keyword"}, {"embedding": "small"}
)
ONE, TWO = struct.pack("<f", 1.0), struct.pack("<ff", 0.6, 0.8)


def record(**changes: Any) -> PointRecord:
    vectors: dict[str, Any] = {"turn": TWO, "sparse": SparseValues(struct.pack("<I", 7), ONE)}
    fields: dict[str, Any] = {"id": ID, "vectors": vectors, "payload": {"text": "one"}}
    return PointRecord(**{**fields, **changes})


def member_of(content: bytes, points: int = 1, **changes: Any) -> Member:
    fields: dict[str, Any] = {
        "role": Role.CONVERSATIONS, "kind": Kind.POINTS, "collection": "conversations", "points": points,
        "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "shape": SHAPE,
    }  # fmt: skip
    return Member(**{**fields, **changes})


def manifest_of(members: Iterable[Member], **changes: Any) -> bytes:
    manifest = Manifest(1, "wenmai", 1, "2026-01-01T00:00:00.000Z", "embedded", list(members))
    return encode_manifest(msgspec.structs.replace(manifest, **changes))


def craft(
    path: Path,
    content: bytes = b"",
    manifest: bytes | None = None,
    more: Iterable[tuple[Any, bytes]] = (),
    name: str = TURNS,
) -> Path:
    """A valid archive of one point, except for the arguments."""
    content = content or framed(record())
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
        for strange, extra in more:
            archive.writestr(strange, extra)
        archive.writestr(MANIFEST, manifest or manifest_of([member_of(content)]))
    return path


def read(path: Path) -> list[PointRecord]:
    with open_archive(path) as archive:
        archive.verify()
        return [each for member in archive.manifest.members for each in archive.records(member)]


def refused(path: Path) -> str:
    with pytest.raises(BadArchiveError) as raised:
        read(path)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_valid_archive_is_read(tmp_path: Path) -> None:
    assert read(craft(tmp_path / "a.zip")) == [record()]


class Canary:
    """A pickle that creates a file when it is executed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, int]]:
        return os.mkdir, (str(self._path), 0o700)


@pytest.mark.parametrize(
    "name", ["../../outside.txt", "/outside.txt", "store/segment", "C:\\outside.txt", "payload.pkl", "x\ny"]
)
def test_an_unknown_member_is_refused_and_nothing_is_unpacked(tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"
    planted = pickle.dumps(Canary(canary))
    folder = tmp_path / "in" / "here"
    folder.mkdir(parents=True)
    refused(craft(folder / "a.zip", more=[(name, planted)]))
    assert not canary.exists()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.zip", "here", "in"]


def test_a_pickle_in_place_of_points_is_never_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    body = pickle.dumps(Canary(canary))
    content = LENGTH.pack(len(body)) + body
    assert "cannot be read" in refused(craft(tmp_path / "a.zip", content))
    assert not canary.exists()


def test_links_and_encrypted_members_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("knowledge.points")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "link" in refused(craft(tmp_path / "link.zip", more=[(link, b"/etc/passwd")]))
    locked = craft(tmp_path / "locked.zip")
    content = bytearray(locked.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    locked.write_bytes(content)
    assert "encrypted" in refused(locked)
    other = zipfile.ZipInfo("knowledge.points")
    other.compress_type = zipfile.ZIP_LZMA
    assert "compressed in an unsupported way" in refused(
        craft(tmp_path / "lzma.zip", more=[(other, b"x" * 100)])
    )


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_duplicate_or_missing_name_is_refused(tmp_path: Path) -> None:
    refused(craft(tmp_path / "twice.zip", more=[(TURNS, framed(record()))]))
    other = member_of(b"", role=Role.KNOWLEDGE)
    content = framed(record())
    missing = manifest_of([member_of(content), other])
    assert "knowledge.points" in refused(craft(tmp_path / "missing.zip", content, missing))
    assert "twice" in refused(
        craft(tmp_path / "same.zip", content, manifest_of([member_of(content), member_of(content)]))
    )


def claim_size(path: Path, size: int) -> Path:
    """Make the central directory declare this size for the first member."""
    raw = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = raw.index(mark) + at
        raw[place : place + 4] = struct.pack("<I", size)
    path.write_bytes(raw)
    return path


def test_a_bomb_is_refused_by_its_unpacked_size(tmp_path: Path) -> None:
    """Discriminates: an unbounded ratio."""
    size = 300 << 20
    bomb = craft(tmp_path / "bomb.zip", b"\0" * 1_000, manifest_of([member_of(b"", size_bytes=size)]))
    assert "300 MB" in refused(claim_size(bomb, size))


def test_a_member_that_unpacks_to_more_than_declared_is_stopped(tmp_path: Path) -> None:
    """The central directory lies, and so does the manifest."""
    one = framed(record())
    path = craft(tmp_path / "a.zip", one * 1_000, manifest_of([member_of(one)]))
    message = refused(claim_size(path, len(one)))
    assert "damaged" in message or "more than it states" in message


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "0" * 64},
        {"points": 2},
        {"size_bytes": 5},
        {"shape": Shape({"turn": DenseShape(10**9, "Cosine")}, {}, {})},
        {"shape": Shape({"turn": DenseShape(2, "Magic")}, {}, {})},
        {"shape": Shape({}, {}, {"owner": "code"})},
        {"shape": Shape({}, {}, {})},
    ],
)
def test_a_manifest_that_does_not_match_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    content = framed(record())
    refused(craft(tmp_path / "a.zip", content, manifest_of([member_of(content, **changes)])))


@pytest.mark.parametrize(
    "manifest", [b"{}", b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20), manifest_of([], format=2)]
)
def test_an_invalid_manifest_is_refused(tmp_path: Path, manifest: bytes) -> None:
    refused(craft(tmp_path / "a.zip", manifest=manifest))


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "../../x"},
        {"id": -1},
        {"vectors": {"turn": struct.pack("<ff", float("nan"), 0.0)}},
        {"vectors": {"turn": ONE}},
        {"vectors": {"other": TWO}},
        {"vectors": {"sparse": TWO}},
        {"vectors": {"sparse": SparseValues(b"\0\0\0\0", b"")}},
        {"vectors": {"sparse": SparseValues(b"\0" * 8, TWO)}},
    ],
)
def test_an_invalid_point_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert "no store accepts" in refused(craft(tmp_path / "a.zip", framed(record(**changes))))


@pytest.mark.parametrize(
    "content", [LENGTH.pack(1 << 30) + b"x", LENGTH.pack(9) + b"x", b"\0\0", LENGTH.pack(0)]
)
def test_a_record_with_a_wrong_length_is_refused(tmp_path: Path, content: bytes) -> None:
    refused(craft(tmp_path / "a.zip", content))


def test_an_oversized_central_directory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}", b"")
    assert "too large" in refused(path)


def test_a_missing_file_and_a_non_zip_are_reported_in_one_line(tmp_path: Path) -> None:
    assert "there is no archive" in refused(tmp_path / "none.zip")
    (tmp_path / "text.zip").write_text("hello")
    refused(tmp_path / "text.zip")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    content = b"".join(framed(record(id=n, payload={"text": os.urandom(40).hex()})) for n in range(20))
    path = tmp_path_factory.mktemp("sound") / "a.zip"
    return craft(path, content, manifest_of([member_of(content, 20)]))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_archive_is_refused_or_reads_unchanged(sound: Path, data: st.DataObject) -> None:
    """Truncated anywhere or with a byte changed anywhere. Discriminates: not comparing checksums."""
    whole = sound.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = sound.with_name("damaged.zip")
    if data.draw(st.booleans()):
        damaged.write_bytes(whole[:place])
    else:
        flipped = data.draw(st.integers(1, 255))
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ flipped]) + whole[place + 1 :])
    try:
        results = read(damaged)
    except BadArchiveError:
        return
    assert results == read(sound)


def test_members_that_start_before_the_archive_count_as_damage(sound: Path) -> None:
    """Discriminates: taking the system's EINVAL for a seek to a negative offset as a disk fault."""
    content = bytearray(sound.read_bytes())
    offset_at = content.rindex(b"PK\x05\x06") + 16  # where the end of the archive says its directory begins
    (offset,) = struct.unpack_from("<I", content, offset_at)
    struct.pack_into("<I", content, offset_at, offset + 2_048)
    damaged = sound.with_name("before.zip")
    damaged.write_bytes(content)
    with pytest.raises(BadArchiveError):
        read(damaged)


def test_the_checksum_of_the_zip_alone_is_not_enough(tmp_path: Path) -> None:
    """Other content with a correct CRC, and the manifest of the first."""
    content = framed(record())
    other = framed(record(payload={"text": "two"}))
    assert len(other) == len(content)
    assert zlib.crc32(other) != zlib.crc32(content)
    assert "checksum" in refused(craft(tmp_path / "a.zip", other, manifest_of([member_of(content)])))


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"created": "yesterday"}, "RFC 3339"),
        ({"created": "2026-01-01T00:00:00"}, "RFC 3339"),
        ({"created": "2026-01-01T00:00:00Z\x1b[2J"}, "RFC 3339"),
        ({"made_by": "wenmai \x1b[2J"}, "cannot be shown"),
        ({"made_by": "w" * 101}, "longer than 100"),
        ({"engine": "a\u202eb"}, "cannot be shown"),
    ],
)
def test_a_manifest_is_safe_to_show_in_a_terminal(changes: dict[str, Any], shown: str) -> None:
    """Discriminates: printing fields as they are read."""
    with pytest.raises(BadArchiveError, match=shown):
        decode_manifest(manifest_of([], **changes))


def test_the_error_of_an_unreadable_manifest_is_safe_to_show_too() -> None:
    with pytest.raises(BadArchiveError) as refused:
        decode_manifest(manifest_of([]).replace(b'"format"', b'"\\u001b[2J"'))
    assert str(refused.value).isprintable()


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
def test_an_id_is_found_as_a_point_id_and_anywhere_in_a_payload(archive: Path, expected: str) -> None:
    """Discriminates: checking only ids of points; only strings at the top of the payload."""
    assert holds(archive, [expected])
    assert holds(archive, [OTHER, *(f"{OTHER[:-3]}{n:03}" for n in range(100, 200)), expected])


def test_an_absent_id_is_not_found(archive: Path) -> None:
    assert not holds(archive, [OTHER, "19", "external-4", "giraffe", "cy"])
    assert not holds(archive, [f"{OTHER[:-3]}{n:03}" for n in range(100, 200)])
    assert not holds(archive, [])
    assert not holds(archive, [""])


@pytest.mark.parametrize(
    ("owner", "existing"), [("giraffe", True), ("问", True), ("external-4", False), ("gir", False)]
)
def test_an_owner_matches_only_the_whole_of_an_owner_field(archive: Path, owner: str, existing: bool) -> None:
    """Discriminates: searching the name in the bytes of a record."""
    assert holds(archive, [], owner=owner) is existing
    assert holds(archive, [OTHER], owner=owner) is existing


def test_snapshots_cannot_be_searched_and_count_as_containing_the_id(tmp_path: Path) -> None:
    content = b"opaque"
    member = member_of(content, kind=Kind.SNAPSHOT)
    path = craft(tmp_path / "b.zip", content, manifest_of([member]))
    with pytest.raises(BadArchiveError):  # named as points
        holds(path, [TURN])
    path = craft(tmp_path / "c.zip", content, manifest_of([member]), name=member.file_name)
    assert holds(path, [TURN])


def test_an_unreadable_archive_is_reported(tmp_path: Path) -> None:
    (tmp_path / "d.zip").write_bytes(b"half")
    with pytest.raises(BadArchiveError):
        holds(tmp_path / "d.zip", [TURN])
