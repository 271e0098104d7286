"""The script against a small HTTP server that implements the documents' and jobs' part of the protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from core.knowledge import MAX_EXTERNAL_ID_CHARS
from routes.wire.documents import Document, Job
from scripts.commands.maintenance import invoke
from scripts.ingest import external_id_of, ingest


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    body: dict[str, Any] = model.model_json_schema()["examples"][0]
    return body


DOCUMENT, JOB = example_of(Document), example_of(Job)


class Documents(ThreadingHTTPServer):
    """Stores uploads by name; a file whose text asks for it is refused, fails, or finds the server busy
    once."""

    uploads: dict[str, dict[str, str]]
    keys: set[str]
    busy = 1
    polls = 0
    knows_jobs = True
    left = 0


class Handler(BaseHTTPRequestHandler):
    server: Documents

    def do_DELETE(self) -> None:
        self.server.keys.add(self.headers.get("Authorization", ""))
        assert self.path == "/documents/sample"
        self._answer(200, {"documents": 20, "chunks": 410, "left": self.server.left})

    def do_POST(self) -> None:
        self.server.keys.add(self.headers.get("Authorization", ""))
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fields = {_name(part): part for part in _parts(BytesParser().parsebytes(head + body))}
        file_name = str(fields["file"].get_filename())
        text = _text(fields.pop("file"))
        if "busy" in text and self.server.busy:
            self.server.busy -= 1
            self._answer(503, {"error": {"message": "busy"}}, {"Retry-After": "0"})
        elif "locked" in text:
            self._answer(401, {"error": {"message": "API key missing or wrong."}})
        elif "refuse" in text:
            self._answer(415, {"error": {"message": "It cannot be read."}})
        else:
            existing = file_name in self.server.uploads
            self.server.uploads[file_name] = {name: _text(part) for name, part in fields.items()}
            document = {**DOCUMENT, "document_id": file_name, "status": "ingesting"}
            job_id = None if existing else f"fail-{file_name}" if "fail" in text else file_name
            self._answer(201, {"document": document, "job_id": job_id, "existing": existing})

    def do_GET(self) -> None:
        self.server.polls += 1
        kind, _, key = self.path.strip("/").partition("/")
        if kind in ("admin", "settings"):
            self._answer(403, {"error": {"message": "not with this key"}})
        elif kind == "documents":
            pages = {"unread_pages": 2 if key.startswith("scan") else 0}
            self._answer(200, {**DOCUMENT, "document_id": key, "status": "ready", **pages})
        elif not self.server.knows_jobs:
            self._answer(404, {"error": {"message": "no such job"}})
        elif key.startswith("fail"):
            self._answer(200, {**JOB, "stage": "failed", "done": 1, "total": 2, "error": "The model failed."})
        else:
            stage = "done" if self.server.polls % 2 else "embedding"
            self._answer(200, {**JOB, "stage": stage, "done": 1, "total": 2})

    def _answer(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


def _parts(message: Message) -> Iterator[Message]:
    return (part for part in message.walk() if not part.is_multipart())


def _name(part: Message) -> str:
    return str(part.get_param("name", header="content-disposition"))


def _text(part: Message) -> str:
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode()


@pytest.fixture
def server() -> Iterator[Documents]:
    with Documents(("127.0.0.1", 0), Handler) as opened:
        opened.uploads, opened.keys = {}, set()
        thread = threading.Thread(target=opened.serve_forever, args=(0.01,))
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def run(server: Documents, *arguments: str | Path) -> int:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    return invoke(ingest, [*map(str, arguments), "--url", url])


def test_a_folder_and_a_file_are_added_with_their_ids_and_tags(
    server: Documents,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Discriminates: sending `tags` when none are specified."""
    folder = tmp_path / "guide"
    (folder / "zh").mkdir(parents=True)
    for name in ("a.md", "zh/b.md", "old.doc", "zh/older.DOC", "skipped.png", ".hidden.bin"):
        (folder / name).write_text("text busy")
    (tmp_path / "c.txt").write_text("text")
    arguments = (folder, tmp_path / "c.txt", "--tags", "x,y", "--date", "2026-01-31")
    monkeypatch.setenv("API_KEYS", "k")
    assert run(server, *arguments) == 0
    ids = {name: fields["external_id"] for name, fields in server.uploads.items()}
    results = {"a.md": folder / "a.md", "b.md": folder / "zh" / "b.md", "c.txt": tmp_path / "c.txt"}
    assert ids == {name: path.as_posix() for name, path in results.items()}
    assert server.uploads["a.md"]["tags"] == "x,y"
    assert server.uploads["a.md"]["date"] == "2026-01-31"
    assert server.keys == {"Bearer k"}
    captured = capsys.readouterr()
    assert captured.out == "added 3, already there 0, failed 0\n"
    assert "3 files of kinds that cannot be read: .doc ×2, .png ×1\n" in captured.err
    assert run(server, folder) == 0
    assert capsys.readouterr().out == "added 0, already there 2, failed 0\n"
    assert "tags" not in server.uploads["a.md"]  # an empty field would clear them


def test_failures_are_named_with_their_reason_and_the_rest_is_added(
    server: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("a.md", "refuse"), ("b.md", "fail"), ("c.md", "fine")):
        (tmp_path / name).write_text(text)
    assert run(server, tmp_path) == 1
    captured = capsys.readouterr()
    assert captured.out == "added 1, already there 0, failed 2\n"
    for line in ("a.md: It cannot be read.", "b.md: The model failed."):
        assert line in captured.err


def test_pages_that_were_left_out_are_named_also_of_a_file_that_was_already_stored(
    server: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("scan.pdf", "text.pdf"):
        (tmp_path / name).write_text("text")
    for counts in ("added 2, already there 0, failed 0\n", "added 0, already there 2, failed 0\n"):
        assert run(server, tmp_path) == 0
        captured = capsys.readouterr()
        assert captured.out == counts
        assert "scan.pdf: 2 pages without readable text left out" in captured.err
        assert "text.pdf" not in captured.err


def test_a_wrong_key_is_reported_once_and_no_further_file_is_sent(
    server: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.md").write_text("locked")
    (tmp_path / "b.md").write_text("fine")
    assert run(server, tmp_path) == 2
    assert not server.uploads
    captured = capsys.readouterr()
    assert captured.err.count("the server refused (401): API key missing or wrong: set WENMAI_KEY") == 1
    assert "a.md" not in captured.err


def test_an_invalid_path_date_or_tag_is_refused_before_anything_is_sent(
    server: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: the files beside it sent, and the same reason once for each of them."""
    (tmp_path / "a.md").write_text("text")
    for words, reason in (
        (("missing.md",), "'missing.md' does not exist"),
        (("--date", "soon"), "like 2026-01-31"),
        (("--tags", "x" * 65), "64 characters"),
        (("--tags", ",".join(map(str, range(33)))), "at most 32 tags"),
    ):
        assert run(server, tmp_path, *words) == 2
        line = capsys.readouterr().err
        assert reason in line
        assert line.count("\n") == 1
    assert server.uploads == {}


def test_a_job_that_another_worker_has_is_followed_by_its_document(
    server: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.knows_jobs = False
    (tmp_path / "a.md").write_text("text")
    assert run(server, tmp_path) == 0
    assert capsys.readouterr().out == "added 1, already there 0, failed 0\n"


def test_an_empty_folder_and_a_missing_server_are_failures(
    server: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(server, tmp_path) == 1
    (tmp_path / "a.md").write_text("text")
    assert invoke(ingest, [str(tmp_path), "--url", "http://127.0.0.1:1"]) == 1
    assert "no server answers at http://127.0.0.1:1" in capsys.readouterr().err


def test_one_option_removes_the_sample_with_the_operators_key(
    server: Documents, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: the key of API_KEYS, which may not; success although something is left."""
    monkeypatch.setenv("API_KEYS", "k")
    monkeypatch.setenv("ADMIN_API_KEYS", "root,other")
    assert run(server, "--remove-sample") == 0
    assert server.keys == {"Bearer root"}
    assert capsys.readouterr().out == "removed 20 documents of the sample, 410 passages\n"
    server.left = 2
    assert run(server, "--remove-sample") == 1
    assert "2 traces" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--remove-sample", "docs"]])
def test_files_and_the_sample_option_exclude_each_other(arguments: list[str]) -> None:
    assert invoke(ingest, arguments) == 2


def test_files_deep_in_one_folder_are_different_documents(tmp_path: Path) -> None:
    """Discriminates: only the beginning of a long path, which all of them share."""
    folder = tmp_path.joinpath(*["folder" * 10] * 20)
    ids = {external_id_of(folder / name) for name in ("one.md", "two.md")}
    assert {len(each) for each in ids} == {MAX_EXTERNAL_ID_CHARS}
    assert len(ids) == 2
