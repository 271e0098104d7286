"""What a look at a folder finds: files, files that cannot be followed, and the names they go by."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from dataclasses import dataclass
from pathlib import PurePosixPath

from core.errors import BadRequestError
from services.knowledge.names import base_name
from services.knowledge.upload import MAX_EXTERNAL_ID_CHARS

_UNSHOWABLE = frozenset(("Cc", "Cs", "Zl", "Zp"))
_HASH_CHARS = 16


@dataclass(frozen=True, slots=True)
class SeenFile:
    """`path` is below the source's folder, as the file system spells it, its parts joined by "/";
    `modified_us` is UTC microseconds."""

    path: str
    external_id: str
    size_bytes: int
    modified_us: int


def modified_us_of(status: os.stat_result) -> int:
    """Never 0, which stands for a file that is to be read again."""
    return status.st_mtime_ns // 1_000 or 1


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file, or a folder, that is there and cannot be followed. `path` is fit to be shown."""

    path: str
    external_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class KindCount:
    """How many files have an ending that cannot be read; "" for those without one."""

    ending: str
    count: int


@dataclass(frozen=True, slots=True)
class Scan:
    """One look at a source's folder. `unseen` are the beginnings of the external ids below folders that
    could not be looked into: what they hold is unknown, not gone. `problem`: nothing could be seen, and why.
    """

    files: tuple[SeenFile, ...] = ()
    bad: tuple[BadFile, ...] = ()
    unseen: tuple[str, ...] = ()
    kinds: tuple[KindCount, ...] = ()
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.bad or self.unseen or self.kinds)


def external_id_of(source: str, path: str) -> str:
    """`source/path` in NFC; one that is too long ends in a fingerprint instead of its end."""
    whole = _whole_id(source, path)
    if len(whole) <= MAX_EXTERNAL_ID_CHARS:
        return whole
    fingerprint = hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_CHARS]
    return f"{whole[: MAX_EXTERNAL_ID_CHARS - _HASH_CHARS - 1]}~{fingerprint}"


def ids_below(source: str, folder: str) -> str:
    """What the external ids of all files below the folder begin with, and maybe a few more."""
    return _whole_id(source, f"{folder}/")[: MAX_EXTERNAL_ID_CHARS - _HASH_CHARS - 1]


def _whole_id(source: str, path: str) -> str:
    return unicodedata.normalize("NFC", f"{source}/{path}")


def shown_path(path: str) -> str:
    """In NFC, with escapes for what cannot be shown or stored."""
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNSHOWABLE else char
        for char in unicodedata.normalize("NFC", path)
    )


def name_problem(name: str) -> str:
    """Why a file or folder of this name cannot be followed; "" when it can."""
    if any("\ud800" <= char <= "\udfff" for char in name):
        return "Its name is not valid UTF-8 text: rename it."
    if any(unicodedata.category(char) in _UNSHOWABLE for char in name):
        return "Its name has a control character in it: rename it."
    return ""


def file_name_problem(path: str) -> str:
    name = PurePosixPath(path).name
    if problem := name_problem(name):
        return problem
    try:
        base_name(name)
    except BadRequestError as error:
        return plain(error)
    return ""


def plain(error: Exception | str) -> str:
    """A refusal's message without the name of an upload's form field."""
    message = str(error).removeprefix("file: ")
    return message[:1].upper() + message[1:]
