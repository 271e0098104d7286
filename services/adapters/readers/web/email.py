"""E-mail: the subject as heading, sender, recipients and date, the text, and attached or forwarded items."""

from __future__ import annotations

import re
from email import message_from_bytes, policy
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.utils import parsedate_to_datetime

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import UnreadableDocumentError, UnsupportedMediaError
from core.formats import DocumentFormat, format_of, is_supported
from core.text import scrub
from services.adapters.readers.decoding import decode
from services.adapters.readers.documents import read_sections
from services.adapters.readers.outline import Outline, with_dates
from services.adapters.readers.text import add_mail_text
from services.adapters.readers.web.html import charset_of, read_html

# The text of an e-mail's headers and parts, whatever charset they claim.


_MAX_HEADER_CHARS = 4_000


def header(message: Message, name: str) -> str:
    """A header's text on one line. Handles raw bytes and wrong charsets, which many programs send."""
    raw = next((value for key, value in message.raw_items() if key.lower() == name.lower()), "")
    raw = str(raw)[:_MAX_HEADER_CHARS]
    try:
        parts = decode_header(raw)
    except (HeaderParseError, ValueError):
        parts = [(raw, None)]
    return " ".join("".join(_words(part, charset) for part, charset in parts).split())


def _words(part: bytes | str, charset: str | None) -> str:
    """`decode_header` returns text between encoded words as bytes in raw-unicode-escape."""
    if isinstance(part, str):
        part = part.encode("utf-8", "surrogateescape")
    return text_of(part, charset)


def text_of(content: bytes, charset: str | None) -> str:
    """Decode as declared if the bytes fit; if no charset fits, only the invalid bytes are lost."""
    if content.isascii() and (charset or "").lower().replace("-", "") not in (
        "utf7",
        "iso2022jp",
        "hzgb2312",
    ):
        return content.decode("ascii")
    try:
        return decode(content, charset)
    except UnreadableDocumentError:
        return content.decode("utf-8", "replace")


def body_text(part: Message) -> str:
    payload = part.get_payload(decode=True)
    return text_of(payload, charset_of(part)) if isinstance(payload, bytes) else ""


def file_name(part: Message) -> str:
    """An attachment's name, "" if it has none."""
    try:
        name = part.get_filename()
    except ValueError:  # its charset contains a NUL
        name = None
    if not name:
        return ""
    encoded = Message()
    encoded["Name"] = name.replace("\n", " ").replace("\r", " ")
    return header(encoded, "Name")


def iso_date(message: Message) -> str:
    """When the message was sent, "" if unknown."""
    try:
        return parsedate_to_datetime(header(message, "Date")).isoformat()
    except (TypeError, ValueError, IndexError, OverflowError):
        return ""


_HEADERS = ("From", "To", "Cc", "Date")
# Files of these kinds consist mostly of fonts, pictures and other files; a large text file is a log.
_MAY_BE_LARGE = (
    DocumentFormat.PDF, DocumentFormat.DOCX, DocumentFormat.PPTX, DocumentFormat.XLSX, DocumentFormat.EPUB,
    DocumentFormat.EMAIL,
)  # fmt: skip
_MAX_TEXT_BYTES = 200_000
_MAX_FILES = 20
_MAX_FILE_BYTES = 10_000_000  # for all files of one mail together
_NOT_READ = " (not read)"
_NOT_FOR_PEOPLE = ("text/css", "text/javascript", "text/x-amp-html")
_MAX_PARTS = 1_000
_MAX_DEPTH = 50
_MAX_MESSAGES = 20
_BOUNDARY = re.compile(rb"boundary\s{0,4}=|message/rfc822", re.IGNORECASE)
# If the plain text is shorter than this share of the HTML, it is a notice ("your program shows no HTML").
_NOTICE_SHARE = 0.2


class EmailReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        return _documents(content)


def _documents(content: bytes, *, attached: bool = False) -> list[Document]:
    if sum(1 for _ in _BOUNDARY.finditer(content)) > _MAX_PARTS:
        raise _too_complex()
    try:
        # Not policy.default: its parser of structured headers fails on hostile mail.
        message = message_from_bytes(content, policy=policy.compat32)
    except RecursionError:
        raise _too_complex() from None
    if not (message.keys() or message.is_multipart()):
        raise UnreadableDocumentError("The file is not a valid e-mail: it has no headers.")
    reading = _Reading(attached=attached)
    reading.message(message, 1)
    return with_dates(reading.outline.finish(), list(filter(None, [iso_date(message)])))


class _Reading:
    """One mail with those inside it; anything beyond the limits is left out or refused. In a mail that is
    itself an attached file (`attached`), attached mail files are not read."""

    def __init__(self, *, attached: bool) -> None:
        self.outline = Outline()
        self._attached = attached
        self._parts = 0
        self._messages = 0
        self._files = 0
        self._file_bytes = 0

    def message(self, message: Message, level: int) -> None:
        self._messages += 1
        self.outline.heading(level, header(message, "Subject"))
        lines = [f"{name}: {value}" for name in _HEADERS if (value := header(message, name))]
        self.outline.block("\n".join(lines))
        attached: list[Message] = []
        self._read(message, level, attached, 0)
        self._attachments(attached, level)

    def _read(self, part: Message, level: int, attached: list[Message], depth: int) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS or depth > _MAX_DEPTH:
            raise _too_complex()
        kind = part.get_content_type()
        parts = _parts(part)
        if kind == "message/rfc822" or part.get_content_disposition() == "attachment" or _is_file(part):
            attached.append(part)
        elif kind == "multipart/alternative" and parts:
            self._read(_best(parts), level, attached, depth + 1)
        elif parts:
            for inner in parts:
                self._read(inner, level, attached, depth + 1)
        elif kind == "text/html":
            self._html(body_text(part), level)
        elif kind.startswith("text/") and kind not in _NOT_FOR_PEOPLE:
            add_mail_text(self.outline, body_text(part).replace("\r\n", "\n"), level)

    def _html(self, text: str, level: int) -> None:
        """Headings in a mail are only layout, so they become paragraphs."""
        for section in read_html(text):
            titles = section.metadata["heading"]
            if titles and not section.text.startswith(titles[-1]):
                self.outline.block(titles[-1])
            self.outline.block(section.text)

    def _attachments(self, attached: list[Message], level: int) -> None:
        """List all attachments by name, with a note if the kind is supported but the file was not read."""
        files = [(file_name(part), part, self._file(part)) for part in attached]
        names = [f"{name}{_NOT_READ if sections == [] else ''}" for name, _, sections in files if name]
        if names:
            self.outline.block("Attachments: " + ", ".join(names))
        for name, part, sections in files:
            inner = _parts(part)
            if part.get_content_type() == "message/rfc822" and inner and self._messages < _MAX_MESSAGES:
                self.message(inner[0], level + 1)
            elif sections:
                self._sections(name, sections, level + 1)

    def _file(self, part: Message) -> list[Document] | None:
        """The file's sections; [] if it is too large, damaged or empty, None for an unsupported kind."""
        name, content = file_name(part), part.get_payload(decode=True)
        kind = format_of(name) if is_supported(name) else None
        if kind is None or not isinstance(content, bytes):
            return None
        left = _MAX_FILE_BYTES - self._file_bytes if kind in _MAY_BE_LARGE else _MAX_TEXT_BYTES
        if self._files == _MAX_FILES or len(content) > left:
            return []
        self._files += 1
        self._file_bytes += len(content)
        if kind not in (*_MAY_BE_LARGE, DocumentFormat.HTML):  # an HTML page declares its own charset
            content = scrub(body_text(part)).encode()
        try:
            return [section for section in self._read_file(name, kind, content) if section.text.strip()]
        except (UnreadableDocumentError, UnsupportedMediaError):
            return []

    def _read_file(self, name: str, kind: DocumentFormat, content: bytes) -> list[Document]:
        if kind is not DocumentFormat.EMAIL:
            return read_sections(name, kind, content)
        return [] if self._attached else _documents(content, attached=True)

    def _sections(self, name: str, sections: list[Document], level: int) -> None:
        self.outline.heading(level, name)
        for number, section in enumerate(sections):
            if number:
                self.outline.leave(level + 1)
            for deeper, title in enumerate(section.metadata["heading"], start=1):
                self.outline.heading(level + deeper, title)
            self.outline.block(section.text)


def _parts(part: Message) -> list[Message]:
    payload = part.get_payload() if part.is_multipart() else []
    return [inner for inner in payload if isinstance(inner, Message)] if isinstance(payload, list) else []


def _is_file(part: Message) -> bool:
    return bool(part.get_filename()) or part.get_content_maintype() not in ("text", "multipart", "message")


def _best(parts: list[Message]) -> Message:
    """Of the alternative forms of one text the plain one, unless it only refers to the other."""
    plain = next((part for part in parts if part.get_content_type() == "text/plain"), None)
    rich = next(
        (part for part in parts if part.get_content_type() in ("text/html", "multipart/related")), None
    )
    if plain is None or rich is None:
        return plain or rich or parts[-1]
    plain_chars = len(body_text(plain).strip())
    shown = sum(len(section.text) for section in read_html(body_text(rich))) if not _parts(rich) else 0
    return rich if not plain_chars or plain_chars < _NOTICE_SHARE * shown else plain


def _too_complex() -> UnreadableDocumentError:
    return UnreadableDocumentError("The e-mail has too many parts to read.", code="too_complex")
