"""The library's folder: each subfolder is a module, each file in it a batch; changed files are reread."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from core.errors import BadRequestError, UnknownLibraryError
from core.library import MAX_FILE_BYTES, READERS, Batch, Library, checked_name, read_items
from services.store.durable import make_folder, sync_folder, unwritable, write_durably

log = structlog.get_logger()

MAX_FILES = 1_000
_Stamp = tuple[int, int, int, int]


class LibraryFolder:
    """`decode` turns a file's bytes into text, whatever their encoding. Names in requests are looked up among
    the files read: only `write` builds a path from a request."""

    def __init__(self, folder: Path, decode: Callable[[bytes], str], *, named: bool) -> None:
        """`named`: LIBRARY_DIR is set, so a missing folder is a fault, not one that is yet to be created."""
        self._folder = folder
        self._decode = decode
        self._named = named
        self._known: dict[Path, tuple[_Stamp, Batch | str]] = {}
        self._problems: tuple[str, ...] = ()

    async def problem(self) -> str:
        """Return what an operator should know about the folder; empty if all is well."""
        if not self._named or await asyncio.to_thread(self._folder.is_dir):
            return ""
        return "LIBRARY_DIR is no longer a folder, so the library is empty: restore it, or mount its disk."

    async def read(self) -> Library:
        """Return the current library; only files that changed are parsed."""
        return await asyncio.to_thread(self._read)

    async def module(self, name: str) -> list[Batch]:
        """Raises UnknownLibraryError."""
        batches = (await self.read()).modules.get(name)
        if batches is None:
            raise UnknownLibraryError("There is no such module.")
        return list(batches.values())

    async def batch(self, module: str, name: str) -> Batch:
        """`name` may be the file name with its extension. Raises UnknownLibraryError."""
        batches = (await self.read()).modules.get(module, {})
        batch = batches.get(name) or batches.get(Path(name).stem)
        if batch is None or name not in (batch.name, batch.name + Path(batch.file).suffix):
            raise UnknownLibraryError("There is no such batch.")
        return batch

    async def write(self, module: str, file_name: str, content: bytes) -> tuple[Batch, bool]:
        """Add a batch or replace the one of this name. Returns it and whether it is new.

        Raises BadRequestError for a file that could not be read back, StoreUnavailableError.
        """
        try:
            return await asyncio.to_thread(self._write, module, file_name, content)
        except OSError as error:
            raise unwritable("file", error) from error

    async def delete(self, module: str, name: str) -> Batch:
        """Raises UnknownLibraryError."""
        batch = await self.batch(module, name)
        await asyncio.to_thread(self._delete, batch)
        return batch

    def _read(self) -> Library:
        modules: dict[str, dict[str, Batch]] = {}
        problems: list[str] = []
        known: dict[Path, tuple[_Stamp, Batch | str]] = {}
        for path in self._files(problems):
            if len(known) == MAX_FILES:
                problems.append(f"There are more than {MAX_FILES} files: the others are not read.")
                break
            known[path] = read = self._read_file(path)
            if isinstance(read[1], str):
                problems.append(f"{_shown(path)}: {read[1]}")
                continue
            batches = modules.setdefault(read[1].module, {})
            if (first := batches.setdefault(read[1].name, read[1])) is not read[1]:
                problems.append(f"{_shown(path)}: {first.file} already has this batch's name.")
        self._known = known
        self._tell(tuple(problems))
        return Library(modules, tuple(problems))

    def _tell(self, problems: tuple[str, ...]) -> None:
        for problem in sorted(set(problems) - set(self._problems)):
            log.warning("library_file_left_out", problem=problem)
        self._problems = problems

    def _files(self, problems: list[str]) -> Iterator[Path]:
        """Yield the files of all modules, sorted by name; misplaced files are added to `problems`."""
        for entry in self._entries(self._folder, problems):
            if not entry.is_dir():
                problems.append(
                    f"{entry.name}: it is not in a folder, whose name would be that of its module."
                )
                continue
            for inner in self._entries(Path(entry.path), problems):
                if inner.is_dir():
                    problems.append(f"{entry.name}/{inner.name}: folders in a module are not read.")
                else:
                    yield Path(inner.path)

    def _entries(self, folder: Path, problems: list[str]) -> list[os.DirEntry[str]]:
        """Return the entries by name, without hidden ones, links out of the library and unprintable names."""
        try:
            with os.scandir(folder) as entries:
                every = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not (self._named and folder == self._folder):
                return []
            problems.append(f"{'LIBRARY_DIR' if folder == self._folder else folder.name}: {error.strerror}.")
            return []
        return [entry for entry in every if not entry.name.startswith(".") and self._is_good(entry, problems)]

    def _is_good(self, entry: os.DirEntry[str], problems: list[str]) -> bool:
        try:
            checked_name(entry.name, ascii(entry.name))
            entry.is_dir()
        except BadRequestError as error:
            problems.append(str(error))
            return False
        except OSError as error:  # a symlink loop
            problems.append(f"{entry.name}: {error.strerror}.")
            return False
        if entry.is_symlink() and not Path(os.path.realpath(entry.path)).is_relative_to(self._root()):
            problems.append(f"{entry.name}: a link that leads out of the library is not followed.")
            return False
        return True

    def _root(self) -> str:
        return os.path.realpath(self._folder)

    def _read_file(self, path: Path) -> tuple[_Stamp, Batch | str]:
        """Return the file's batch, or the reason why there is none."""
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
            known = self._known.get(path)
            if known is not None and known[0] == stamp:
                return known
            if not stat.S_ISREG(status.st_mode):
                return stamp, "it is not a file."
            with path.open("rb") as file:
                return stamp, self._parse(path.parent.name, path.name, file.read(MAX_FILE_BYTES + 1))
        except BadRequestError as error:
            return stamp, str(error)
        except OSError as error:
            return (0, 0, 0, 0), f"it cannot be read: {error.strerror}."

    def _parse(self, module: str, file_name: str, content: bytes) -> Batch:
        """Raises BadRequestError."""
        ending = Path(file_name).suffix.lower()
        if ending not in READERS:
            raise BadRequestError(f"a batch is a file ending in {', '.join(READERS)}.")
        if len(content) > MAX_FILE_BYTES:
            raise BadRequestError(f"it has more than {MAX_FILE_BYTES} bytes.")
        module_name, name = checked_name(module, "module"), checked_name(Path(file_name).stem, "batch")
        items = read_items(ending, self._decode(content))
        return Batch(module_name, name, f"{module}/{file_name}", items)

    def _write(self, module: str, file_name: str, content: bytes) -> tuple[Batch, bool]:
        batch = self._parse(checked_name(module, "module"), checked_name(file_name, "batch"), content)
        beside = self._read().modules.get(batch.module, {})
        before = beside.get(batch.name)
        folder = next((self._path(each).parent for each in beside.values()), self._folder / batch.module)
        if not Path(os.path.realpath(folder)).is_relative_to(self._root()):
            raise BadRequestError("module: its folder is a link that leads out of the library.")
        make_folder(folder)
        write_durably(written := folder / file_name, content)
        if before is not None and self._path(before) != written:
            self._delete(before)
        return batch, before is None

    def _delete(self, batch: Batch) -> None:
        """Delete the batch, and its module's folder if it is now empty."""
        path = self._path(batch)
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()

    def _path(self, batch: Batch) -> Path:
        return self._folder / batch.file


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
