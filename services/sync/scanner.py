"""Scans a source's folder in a worker thread, a few hundred entries at a time, and reads its files.

Symbolic links to files or folders are not followed: only what is in the folder is read, nothing elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from config.tables import SourceSettings
from core.errors import BadRequestError, StartRefusedError
from core.formats import is_supported, save_as
from core.knowledge import MAX_EXTERNAL_ID_CHARS
from core.operations.sync import KindCount
from services.knowledge.upload import base_name

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_UNSHOWABLE = frozenset(("Cc", "Cs", "Zl", "Zp"))
_HASH_CHARS = 16


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """`path` is relative to the source's folder, as the file system spells it, its parts joined by "/";
    `modified_us` is UTC microseconds."""

    path: str
    external_id: str
    size_bytes: int
    modified_us: int


def modified_us_of(status: os.stat_result) -> int:
    """Return the modification time; never 0, which marks a file to be read again."""
    return status.st_mtime_ns // 1_000 or 1


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file or folder that exists but cannot be followed. `path` is printable."""

    path: str
    external_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of a source's folder. `unseen` are prefixes of the external ids below folders that could not
    be read: their files are unknown, not gone. `problem` says why nothing at all could be read.
    """

    files: tuple[ScannedFile, ...] = ()
    bad: tuple[BadFile, ...] = ()
    unseen: tuple[str, ...] = ()
    kinds: tuple[KindCount, ...] = ()
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.bad or self.unseen or self.kinds)


def external_id_of(source: str, path: str) -> str:
    """Return `source/path` in NFC; if too long, its end is replaced by a fingerprint."""
    whole = _whole_id(source, path)
    if len(whole) <= MAX_EXTERNAL_ID_CHARS:
        return whole
    fingerprint = hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_CHARS]
    return f"{whole[: MAX_EXTERNAL_ID_CHARS - _HASH_CHARS - 1]}~{fingerprint}"


def ids_below(source: str, folder: str) -> str:
    """Return the prefix of the external ids of all files below the folder, and perhaps a few others."""
    return _whole_id(source, f"{folder}/")[: MAX_EXTERNAL_ID_CHARS - _HASH_CHARS - 1]


def _whole_id(source: str, path: str) -> str:
    return unicodedata.normalize("NFC", f"{source}/{path}")


def shown_path(path: str) -> str:
    """Return the path in NFC, with escapes for characters that cannot be shown or stored."""
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNSHOWABLE else char
        for char in unicodedata.normalize("NFC", path)
    )


def name_problem(name: str) -> str:
    """Return why a file or folder of this name cannot be followed, or ""."""
    if any("\ud800" <= char <= "\udfff" for char in name):
        return "Its name is not valid UTF-8 text: rename it."
    if any(unicodedata.category(char) in _UNSHOWABLE for char in name):
        return "Its name contains a control character: rename it."
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
    """Return a refusal's message, without the name of an upload's form field."""
    message = str(error).removeprefix("file: ")
    return message[:1].upper() + message[1:]


SLICE_ENTRIES = 500
MAX_EXTENSION_CHARS = 12
_SYSTEM_FILES = frozenset(("thumbs.db", "desktop.ini", "ehthumbs.db"))
_TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".download", ".swp", "~")


class FolderScanner:
    """Scans one source's folder, as often as needed."""

    def __init__(self, source: str, settings: SourceSettings, max_file_bytes: int) -> None:
        """Raises StartRefusedError if a pattern is invalid."""
        self.source = source
        self.max_file_bytes = max_file_bytes
        self._folder = settings.folder
        self._include = _patterns(source, "include", settings.include)
        self._exclude = _patterns(source, "exclude", settings.exclude)

    async def scan(self) -> Scan:
        """Scan the folder; results are sorted by path. On cancellation it ends after the current slice."""
        walk = _Walk(self, os.fspath(self._folder))
        while await asyncio.to_thread(walk.walk_slice):
            pass
        return await asyncio.to_thread(walk.result)

    def follows(self, path: str) -> bool:
        """Whether the patterns include the file."""
        return self._include.match_file(path) and not self._exclude.match_file(path)

    def enters(self, path: str) -> bool:
        """Whether to descend into a folder."""
        return not self._exclude.match_file(f"{path}/")


def _patterns(source: str, setting: str, lines: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # only needed where sources are configured

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise StartRefusedError(
            f"sources.{source}.{setting} is refused: patterns as in .gitignore ({error})."
        ) from None


def is_ignored(name: str) -> bool:
    """Whether it is no document: hidden, an office lock file, an unfinished download, or a system file."""
    lowered = name.lower()
    return name.startswith((".", "~$")) or lowered in _SYSTEM_FILES or lowered.endswith(_TEMPORARY)


class _Walk:
    """One walk through a folder; used by one thread at a time."""

    def __init__(self, scanner: FolderScanner, root: str) -> None:
        self._scanner = scanner
        self._root = root
        self._todo = [""]
        self._files: dict[str, ScannedFile] = {}
        self._bad: list[BadFile] = []
        self._unseen: list[str] = []
        self._kinds: Counter[str] = Counter()
        self._problem = ""

    def walk_slice(self) -> bool:
        """Walk one more slice. Returns whether any folder is left."""
        left = SLICE_ENTRIES
        while self._todo and left > 0:
            left -= self._enter(self._todo.pop())
        return bool(self._todo)

    def result(self) -> Scan:
        kinds = tuple(KindCount(ending, count) for ending, count in self._kinds.most_common())
        files = tuple(sorted(self._files.values(), key=lambda file: file.path))
        bad = tuple(sorted(self._bad, key=lambda each: each.path))
        return Scan(files, bad, tuple(self._unseen), kinds, self._problem)

    def _enter(self, folder: str) -> int:
        """List one folder. Returns the number of entries, plus one."""
        try:
            with os.scandir(os.path.join(self._root, folder)) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
                for entry in listed:
                    self._visit(f"{folder}/{entry.name}" if folder else entry.name, entry)
        except OSError as error:
            self._cannot_enter(folder, error)
            return 1
        return len(listed) + 1

    def _cannot_enter(self, folder: str, error: OSError) -> None:
        if not folder:
            self._problem = f"The folder cannot be read ({error.strerror or type(error).__name__})"
            return
        self._unseen.append(ids_below(self._scanner.source, folder))
        if not isinstance(error, FileNotFoundError):  # removed meanwhile: the next scan will tell
            self._refuse(folder, f"The folder cannot be read: {error.strerror}.")

    def _visit(self, path: str, entry: os.DirEntry[str]) -> None:
        if is_ignored(entry.name) or entry.is_symlink():
            return
        if entry.is_dir(follow_symlinks=False):
            self._add_folder(path, entry.name)
        elif entry.is_file(follow_symlinks=False) and self._scanner.follows(shown_path(path)):
            self._add_file(path, entry)

    def _add_folder(self, path: str, name: str) -> None:
        if not self._scanner.enters(shown_path(path)):
            return
        if problem := name_problem(name):
            self._refuse(path, f"{problem} Nothing in this folder was read.")
        else:
            self._todo.append(path)

    def _add_file(self, path: str, entry: os.DirEntry[str]) -> None:
        if better := save_as(entry.name):
            self._refuse(path, f"Files of this kind cannot be read: save it as {better} in its own program.")
        elif not is_supported(entry.name):
            self._kinds[_extension(entry.name)] += 1
        elif problem := file_name_problem(path):
            self._refuse(path, problem)
        else:
            self._measure(path, entry)

    def _measure(self, path: str, entry: os.DirEntry[str]) -> None:
        external_id = external_id_of(self._scanner.source, path)
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # removed meanwhile
            return
        except OSError as error:
            self._refuse(path, f"It cannot be read: {error.strerror}.")
            return
        if external_id in self._files:
            self._refuse(path, "Another file in the folder has the same name in another Unicode form.")
        elif status.st_size > (limit := self._scanner.max_file_bytes):
            self._refuse(path, f"It has {status.st_size:,} bytes; MAX_UPLOAD_BYTES allows {limit:,}.")
        else:
            file = ScannedFile(path, external_id, status.st_size, modified_us_of(status))
            self._files[external_id] = file

    def _refuse(self, path: str, reason: str) -> None:
        self._bad.append(BadFile(shown_path(path), external_id_of(self._scanner.source, path), reason))


def _extension(name: str) -> str:
    ending = shown_path(PurePosixPath(name).suffix.lower())
    return ending if len(ending) <= MAX_EXTENSION_CHARS else "other"


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # do not block on a pipe in its place


class FileChangedError(Exception):
    """The file is being written, or was replaced since the scan: the next run reads it."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """`hash_hex` is SHA-256."""

    content: bytes
    hash_hex: str


def read_scanned(folder: Path, scanned: ScannedFile) -> FileContent:
    """Read exactly the scanned file, safe from links and concurrent writers. Blocking. Raises OSError, and
    FileChangedError, also if the file is gone."""
    try:
        descriptor = _open_below(folder, scanned.path)
    except FileNotFoundError as error:
        raise FileChangedError(scanned.path) from error
    with open(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or not _is_unchanged(before, scanned):
            raise FileChangedError(scanned.path)
        content = file.read(scanned.size_bytes + 1)
        if len(content) != scanned.size_bytes or not _is_unchanged(os.fstat(descriptor), scanned):
            raise FileChangedError(scanned.path)
    return FileContent(content, hashlib.sha256(content).hexdigest())


def _is_unchanged(status: os.stat_result, file: ScannedFile) -> bool:
    return (status.st_size, modified_us_of(status)) == (file.size_bytes, file.modified_us)


def _open_below(folder: Path, path: str) -> int:
    """Open a file part by part, so that no folder on the way can be swapped for a link."""
    *folders, name = path.split("/")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, _FILE, dir_fd=at)
    finally:
        os.close(at)
