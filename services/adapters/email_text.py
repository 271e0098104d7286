"""What an e-mail's headers and parts say, whatever charset they claim."""

from __future__ import annotations

from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.utils import parsedate_to_datetime

from core.errors import UnreadableDocumentError
from services.adapters.decoding import decode

_MAX_HEADER_CHARS = 4_000


def header(message: Message, name: str) -> str:
    """Its words on one line. Raw bytes and wrong charsets, which many programs send, are recognised."""
    raw = next((value for key, value in message.raw_items() if key.lower() == name.lower()), "")
    raw = str(raw)[:_MAX_HEADER_CHARS]
    try:
        parts = decode_header(raw)
    except (HeaderParseError, ValueError):
        parts = [(raw, None)]
    return " ".join("".join(_words(part, charset) for part, charset in parts).split())


def _words(part: bytes | str, charset: str | None) -> str:
    """Between encoded words, `decode_header` gives the others as bytes in raw-unicode-escape."""
    if isinstance(part, str):
        part = part.encode("utf-8", "surrogateescape")
    return text_of(part, charset)


def text_of(content: bytes, charset: str | None) -> str:
    """Decoded as declared where that fits; what no charset fits loses only the bytes that do not."""
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
    return text_of(payload, _charset(part)) if isinstance(payload, bytes) else ""


def _charset(part: Message) -> str | None:
    try:
        return part.get_content_charset()
    except ValueError:  # a NUL in it
        return None


def file_name(part: Message) -> str:
    """An attachment's name, "" when it has none."""
    try:
        name = part.get_filename()
    except ValueError:  # a NUL in its charset
        name = None
    if not name:
        return ""
    encoded = Message()
    encoded["Name"] = name.replace("\n", " ").replace("\r", " ")
    return header(encoded, "Name")


def iso_date(message: Message) -> str:
    """When it was sent, "" when it does not say."""
    try:
        return parsedate_to_datetime(header(message, "Date")).isoformat()
    except (TypeError, ValueError, IndexError, OverflowError):
        return ""
