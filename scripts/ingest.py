"""Add files to a running server: `python -m scripts.ingest docs/ report.pdf`.

A file that was changed since becomes a new version of its document: it is known by its full path.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import httpx
from tqdm import tqdm

from core.knowledge import MAX_EXTERNAL_ID_CHARS
from routes.wire.documents import AddedDocument, Document, Job
from services.knowledge.sample import supported_files

IN_FLIGHT = 16  # parsing the next files goes on while others are embedded; small ones end between two looks
POLL_S = 0.2
BUSY_ATTEMPTS = 60
FINAL = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Progress:
    """How far the reading in of a file is; `stage` is a job's."""

    stage: str
    done: int = 0
    total: int = 0
    error: str | None = None


@dataclass(frozen=True)
class File:
    """`external_id` is its full path: what two folders call the same are different documents."""

    path: Path
    external_id: str


@dataclass
class Summary:
    added: int = 0
    existing: int = 0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"added {self.added}, already there {self.existing}, failed {len(self.failed)}"


class Refused(Exception):  # noqa: N818  # not a defect: the server said no, and why
    pass


class Ingester:
    """Sends files, follows their jobs, counts what became of them."""

    def __init__(self, client: httpx.Client, tags: str | None, date: str | None) -> None:
        self._client = client
        self._fields = ({} if tags is None else {"tags": tags}) | ({"date": date} if date else {})
        self.summary = Summary()

    def run(self, files: Sequence[File], bar: tqdm[NoReturn]) -> Summary:
        """Raises httpx.HTTPError when the server cannot be reached."""
        running: deque[tuple[File, AddedDocument]] = deque()
        for file in files:
            if len(running) == IN_FLIGHT:
                self._follow(*running.popleft(), bar)
            try:
                running.append((file, self._send(file)))
            except (Refused, OSError) as error:
                self._fail(file, str(error), bar)
        while running:
            self._follow(*running.popleft(), bar)
        return self.summary

    def _send(self, file: File) -> AddedDocument:
        content = file.path.read_bytes()
        for _ in range(BUSY_ATTEMPTS):
            response = self._client.post(
                "/documents",
                files={"file": (file.path.name, content)},
                data=self._fields | {"external_id": file.external_id},
            )
            if response.status_code not in (429, 503):
                break
            time.sleep(_retry_after_s(response))
        if response.is_success:
            return AddedDocument.model_validate_json(response.content)
        raise Refused(_reason(response))

    def _follow(self, file: File, addition: AddedDocument, bar: tqdm[NoReturn]) -> None:
        bar.set_description(file.path.name[:40])
        reason = self._outcome(addition, bar) if addition.job_id else None
        if reason is not None:
            self._fail(file, reason, bar)
            return
        self.summary.existing += addition.existing
        self.summary.added += not addition.existing
        bar.update()

    def _outcome(self, addition: AddedDocument, bar: tqdm[NoReturn]) -> str | None:
        """Why it failed; None when it did not."""
        shown = -1
        while True:
            job = self._job(addition)
            bar.set_postfix_str(f"{job.done}/{job.total} chunks", refresh=job.done != shown)
            shown = job.done
            if job.stage in FINAL:
                return None if job.stage == "done" else job.error or f"it was {job.stage}"
            time.sleep(POLL_S)

    def _job(self, addition: AddedDocument) -> Progress:
        response = self._client.get(f"/jobs/{addition.job_id}")
        if response.status_code == 404:
            return self._job_of_document(addition.document.document_id)
        response.raise_for_status()
        job = Job.model_validate_json(response.content)
        return Progress(job.stage, job.done, job.total, job.error)

    def _job_of_document(self, document_id: str) -> Progress:
        """Another worker has the job, or a restart forgot it: the document itself says how it stands."""
        response = self._client.get(f"/documents/{document_id}")
        if response.status_code == 404:
            return Progress(stage="cancelled")
        response.raise_for_status()
        document = Document.model_validate_json(response.content)
        stage = {"ready": "done", "failed": "failed"}.get(document.status, document.status)
        return Progress(stage=stage, error=document.error)

    def _fail(self, file: File, reason: str, bar: tqdm[NoReturn]) -> None:
        self.summary.failed.append(f"{file.path}: {reason}")
        bar.update()


def _retry_after_s(response: httpx.Response) -> float:
    value = response.headers.get("Retry-After", "")
    return min(float(value), 30.0) if value.isdigit() else 1.0


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status_code}"


def files_of(paths: Sequence[Path]) -> Iterator[File]:
    """Named files as they are, whatever their kind; of folders the files that can be read, sorted."""
    for path in paths:
        if path.is_dir():
            for file in supported_files(path):
                yield File(file, external_id_of(file))
        else:
            yield File(path, external_id_of(path))


def external_id_of(path: Path) -> str:
    """Of a path that is too long for an id, the end."""
    return Path(os.path.abspath(path)).as_posix()[-MAX_EXTERNAL_ID_CHARS:]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 all files are there, 1 some failed or the server is not there."""
    arguments = _arguments(argv)
    files = list(files_of(arguments.paths))
    key = arguments.api_key or os.environ.get("API_KEYS", "").split(",")[0]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    bar: tqdm[NoReturn] = tqdm(total=len(files), unit="file")
    try:
        with httpx.Client(base_url=arguments.url, headers=headers, timeout=120) as client, bar:
            summary = Ingester(client, arguments.tags, arguments.date).run(files, bar)
    except httpx.HTTPError as error:
        print(f"wenmai: no answer from {arguments.url}: {error}. Is `make run` running?", file=sys.stderr)
        return 1
    for failure in summary.failed:
        print(f"failed: {failure}", file=sys.stderr)
    print(summary)
    return 1 if summary.failed or not files else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Add documents to a running Wenmai. 把文件加入知识库。")
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER|FILE")
    port = os.environ.get("PORT", "8000")
    parser.add_argument("--url", default=f"http://127.0.0.1:{port}", help="the server (default %(default)s)")
    parser.add_argument("--api-key", help="default: the first of API_KEYS")
    parser.add_argument("--tags", help="separated by commas; without, those of an older version stay")
    parser.add_argument("--date", help="of the documents, like 2026-01-31")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
