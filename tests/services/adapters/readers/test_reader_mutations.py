"""Corrupted files: each gives text or a refusal with a code, whatever was changed in it."""

from __future__ import annotations

import random

import pytest

from core.errors import BadRequestError
from services.adapters.readers.documents import parse_document
from tests.support.stores.documents import FIXTURES, fixture, members_of, with_members

NAMES = sorted(
    path.name for path in FIXTURES.iterdir() if path.suffix in (".docx", ".pptx", ".xlsx", ".pdf", ".csv")
)
TRIALS = 300
SHARES = 10


@pytest.mark.parametrize("share", range(SHARES))
def test_a_corrupted_file_gives_text_or_a_coded_refusal(share: int) -> None:
    ends = [end_of(trial) for trial in range(share, TRIALS, SHARES)]
    assert {*ends} <= ENDS
    assert ends.count("text") > 0  # not everything is refused up front


def end_of(trial: int) -> str:
    chance = random.Random(trial)
    name = NAMES[trial // SHARES % len(NAMES)]
    try:
        assert parse_document(name, corrupted(fixture(name), chance)).sections
    except BadRequestError as error:
        return error.code
    return "text"


ENDS = {
    "text", "archive_limit", "encoding", "encrypted", "no_text", "too_complex", "unreadable_document",
    "unsafe_xml", "unsupported_media_type",
}  # fmt: skip


def corrupted(content: bytes, chance: random.Random) -> bytes:
    """Change bytes of the file; in an archive, preferably those of its members, where the parsers see
    them."""
    if not content.startswith(b"PK") or chance.random() < 0.1:
        return mutated(content, chance)
    members = members_of(content)
    name = chance.choice(sorted(name for name in members if members[name]))
    return with_members(content, {name: mutated(members[name], chance)})


def mutated(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 3, 30))):
        at = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + chance.randrange(1, 40)]
            case 2:
                changed[at:at] = changed[max(0, at - chance.randrange(1, 200)) : at]
            case _:
                changed[at:at] = chance.choice((b"99999999999", b"-1", b"<", b'"', b"\0", b"&#x41;", b"NaN"))
        if not changed:
            break
    return bytes(changed) or b"x"
