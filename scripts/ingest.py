"""Add files to a running server: `wenmai ingest docs/ report.pdf`. 把文件加入知识库。

A file that has changed becomes a new version of its document, identified by its full path.
`--remove-sample` removes the bundled guide.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from tqdm import tqdm

from core.dates import is_iso_date
from core.formats import is_supported, supported_files, visible_files
from core.knowledge import MAX_EXTERNAL_ID_CHARS, MAX_TAG_CHARS, MAX_TAGS
from core.operations.sync import KindCount, skipped_words
from core.text import counted
from routes.wire.documents import AddedDocument, Document, Job, RemovedSample
from scripts.commands.maintenance import (
    EXIT_FAILED,
    EXIT_OK,
    Options,
    as_json,
    invoke,
    print_result,
    run,
    shown,
)
from scripts.commands.server import KEYS, ServerClient, at_server, at_url, checked, read, reason_of, refusal

if TYPE_CHECKING:
    import httpx

    from config.settings import Settings

IN_FLIGHT = 16  # parsing continues while other files are embedded; small ones finish between two polls
FIRST_POLL_S, POLL_S = 0.02, 0.2  # small files are ingested almost at once, large ones take their time
REQUEST_TIMEOUT_S = 120
BUSY_ATTEMPTS = 60
BUSY = (429, 503)
FINAL = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Progress:
    """The progress of a file's ingestion; `stage` is that of its job."""

    stage: str
    done: int = 0
    total: int = 0
    error: str | None = None
    error_code: str | None = None


async def ask_patiently(client: ServerClient, method: str, path: str, **content: Any) -> httpx.Response:
    """Send a request, retrying while the server is busy; httpx gets `content`. Raises CommandError."""
    for _ in range(BUSY_ATTEMPTS):
        response = await client.request(method, path, **content)
        if response.status_code not in BUSY:
            break
        await asyncio.sleep(_retry_after_s(response))
    return response


async def job_progress(
    client: ServerClient, addition: AddedDocument, **content: Any
) -> AsyncIterator[Progress]:
    """Yield the progress repeatedly; the last one's stage is final. Raises CommandError."""
    pause_s = FIRST_POLL_S
    while True:
        progress = await _progress(client, addition, **content)
        yield progress
        if progress.stage in FINAL:
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_S)


async def _progress(client: ServerClient, addition: AddedDocument, **content: Any) -> Progress:
    response = await ask_patiently(client, "GET", f"/jobs/{addition.job_id}", **content)
    if response.status_code != 404:
        job = checked(response, Job)
        return Progress(job.stage, job.done, job.total, job.error, job.error_code)
    # another worker has the job, or a restart forgot it: use the document's status instead
    path = f"/documents/{addition.document.document_id}"
    response = await ask_patiently(client, "GET", path, **content)
    if response.status_code == 404:
        return Progress("cancelled")
    document = checked(response, Document)
    return Progress("done" if document.status == "ready" else document.status, error=document.error)


@dataclass
class Summary:
    added: int = 0
    existing: int = 0
    failed: list[str] = field(default_factory=list)
    unread_pages: dict[str, int] = field(default_factory=dict)  # by file, if any

    def __str__(self) -> str:
        return f"added {self.added}, already there {self.existing}, failed {len(self.failed)}"


class Ingester:
    """Sends files, follows their jobs, and counts the outcomes."""

    def __init__(self, client: ServerClient, tags: str | None, date: str | None) -> None:
        self._client = client
        self._fields = ({} if tags is None else {"tags": tags}) | ({"date": date} if date else {})
        self.summary = Summary()

    async def run(self, files: Sequence[Path], bar: tqdm[NoReturn]) -> Summary:
        """Raises CommandError if the server cannot be reached or refuses the key."""
        running: deque[tuple[Path, AddedDocument]] = deque()
        for file in files:
            if len(running) == IN_FLIGHT:
                await self._follow(*running.popleft(), bar)
            addition = await self._send(file)
            if isinstance(addition, str):
                self._fail(file, addition, bar)
            else:
                running.append((file, addition))
        while running:
            await self._follow(*running.popleft(), bar)
        return self.summary

    async def _send(self, file: Path) -> AddedDocument | str:
        """Send a file; return why it is unreadable or refused. Raises CommandError for a wrong key."""
        try:
            files = {"file": (file.name, await asyncio.to_thread(file.read_bytes))}
        except OSError as error:
            return str(error)
        data = self._fields | {"external_id": external_id_of(file)}
        response = await ask_patiently(self._client, "POST", "/documents", files=files, data=data)
        if response.status_code in KEYS:  # no other file would be accepted either
            raise refusal(response)
        return read(response, AddedDocument) if response.is_success else reason_of(response)

    async def _follow(self, file: Path, addition: AddedDocument, bar: tqdm[NoReturn]) -> None:
        bar.set_description(file.name[:40])
        reason = await self._outcome(addition, bar) if addition.job_id else None
        if reason is not None:
            self._fail(file, reason, bar)
            return
        self.summary.existing += addition.existing
        self.summary.added += not addition.existing
        if pages := await self._unread_pages(addition):
            self.summary.unread_pages[str(file)] = pages
        bar.update()

    async def _outcome(self, addition: AddedDocument, bar: tqdm[NoReturn]) -> str | None:
        """Wait for the job; return why it failed, or None."""
        shown = -1
        async for job in job_progress(self._client, addition):
            bar.set_postfix_str(f"{job.done}/{job.total} chunks", refresh=job.done != shown)
            shown = job.done
        return None if job.stage == "done" else job.error or f"it was {job.stage}"

    async def _unread_pages(self, addition: AddedDocument) -> int:
        """How many pages were left out; 0 if the document has been deleted since."""
        path = f"/documents/{addition.document.document_id}"
        response = await ask_patiently(self._client, "GET", path)
        return 0 if response.status_code == 404 else checked(response, Document).unread_pages

    def _fail(self, file: Path, reason: str, bar: tqdm[NoReturn]) -> None:
        self.summary.failed.append(f"{file}: {reason}")
        bar.update()


def _retry_after_s(response: httpx.Response) -> float:
    value = response.headers.get("Retry-After", "")
    return min(float(value), 30.0) if value.isdigit() else 1.0


def left_out(paths: Sequence[Path]) -> str:
    """Describe the folders' files of unsupported types; "" if there are none."""
    files = [file for path in paths if path.is_dir() for file in visible_files(path)]
    endings = Counter(file.suffix.lower() for file in files if not is_supported(file.name))
    return skipped_words([KindCount(*each) for each in endings.most_common()])


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return named files whatever their type, and the supported files of folders, sorted."""
    return [file for path in paths for file in (supported_files(path) if path.is_dir() else [path])]


def external_id_of(path: Path) -> str:
    """Return the full path, since folders may share file names; only the end of a long one."""
    return Path(os.path.abspath(path)).as_posix()[-MAX_EXTERNAL_ID_CHARS:]


def _date(text: str) -> str:
    if not is_iso_date(text):
        raise click.BadParameter("it must be a day, a month or a year, like 2026-01-31, 2026-01 or 2026.")
    return text


def _tags(text: str) -> str:
    tags = {tag.strip() for tag in text.split(",")}
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tags):
        raise click.BadParameter(f"at most {MAX_TAGS} tags, of at most {MAX_TAG_CHARS} characters each.")
    return text


@click.command("ingest", help=__doc__)
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="FOLDER|FILE...")
@click.option("--remove-sample", is_flag=True, help="Remove the bundled guide.")
@click.option(
    "--tags", type=_tags, metavar="TAGS", help="Separated by commas (default: those of an older version)."
)
@click.option("--date", type=_date, metavar="DATE", help="Date of the documents, like 2026-01-31.")
@as_json
@at_url
def ingest(**options: Any) -> int:
    if bool(options["paths"]) == options["remove_sample"]:
        raise click.UsageError("Name folders or files, or --remove-sample.")
    return run(_remove if options["remove_sample"] else _add, Options(**options))


async def _add(settings: Settings, options: Options) -> int:
    files = files_of(options.paths)
    return await at_server(
        settings, options, lambda client: _ingest(client, files, options), REQUEST_TIMEOUT_S
    )


async def _remove(settings: Settings, options: Options) -> int:
    work = partial(_remove_sample, options=options)
    return await at_server(settings, options, work, REQUEST_TIMEOUT_S, as_admin=True)


async def _ingest(client: ServerClient, files: Sequence[Path], options: Options) -> int:
    with tqdm(total=len(files), unit="file", disable=None) as bar:
        summary = await Ingester(client, options.tags, options.date).run(files, bar)
    for failure in summary.failed:
        print(f"failed: {shown(failure)}", file=sys.stderr)
    for name, pages in summary.unread_pages.items():
        without = f"{counted(pages, 'page')} without readable text left out"
        print(f"{shown(name)}: {without}; scans need text recognition (OCR)", file=sys.stderr)
    if skipped := left_out(options.paths):
        print(shown(skipped), file=sys.stderr)
    print_result(summary, options, print)
    return EXIT_FAILED if summary.failed or not files else EXIT_OK


async def _remove_sample(client: ServerClient, options: Options) -> int:
    removed = await client.send("DELETE", "/documents/sample", RemovedSample)
    documents, passages = counted(removed.documents, "document"), counted(removed.chunks, "passage")
    sentence = f"removed {documents} of the sample, {passages}"
    print_result(removed, options, lambda _: print(sentence))
    if removed.left:
        print(f"still stored: {counted(removed.left, 'trace')}; see wenmai doctor", file=sys.stderr)
    return EXIT_FAILED if removed.left else EXIT_OK


if __name__ == "__main__":
    sys.exit(invoke(ingest))
