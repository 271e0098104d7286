"""Conversations exported by other products, converted to turns: ChatGPT, Claude, Open WebUI, LibreChat, and
lists of OpenAI's messages. Trees stay trees; what cannot be imported is counted and reported.

A user's message begins a turn; each path from it through the model's answers, skipping tools, to the next
user's message or to a leaf is a turn of its own. So a regenerated answer is a branch.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from core.conversation.importing import imported_turn
from core.conversation.turns import Turn, TurnStatus
from core.dates import parse_time
from core.errors import BadRequestError
from core.text import preprocess_question, scrub

NAMESPACE = uuid.UUID("a3c9b3b0-7f6e-4d43-9a53-2f5f1f0b7c11")
NO_TEXT = "…"
BEGINNINGS = (None, "00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000")
MODEL_CHARS = 100  # of a model's name


@dataclass(frozen=True, slots=True)
class Message:
    """`role` is user, assistant, system, or anything else, which is traversed without its text."""

    message_id: str
    parent_id: str | None
    role: str
    text: str = ""
    created_us: int = 0
    model: str = ""
    attachments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignConversation:
    """`key` identifies it in its product; `turns` have parents before their children. `left_out` are messages
    that no path from a root reaches, `orphans` those whose parent is missing, which begin a branch."""

    key: str
    title: str
    turns: tuple[Turn, ...]
    persona: str = ""
    left_out: int = 0
    orphans: int = 0
    attachments: int = 0


@dataclass(frozen=True, slots=True)
class Export:
    product: str
    conversations: tuple[ForeignConversation, ...]


@dataclass(slots=True)
class _Raw:
    key: str
    title: str
    messages: list[Message] = field(default_factory=list)
    persona: str = ""


def read_export(value: Any, owner: str) -> Export:
    """Read an export; session and turn ids are derived from the product's ids and the owner, so the same file
    always gives the same turns. Raises BadRequestError."""
    listed = value if isinstance(value, list) else [value]
    if listed and all(isinstance(each, dict) and "role" in each for each in listed):
        listed = [{"messages": listed}]
    for product, is_one, read in _PRODUCTS:
        if listed and all(isinstance(each, dict) and is_one(each) for each in listed):
            raws = [read(each) for each in listed]
            return Export(product, tuple(_conversation(raw, product, owner) for raw in raws))
    if listed and all(isinstance(each, dict) and isinstance(each.get("turns"), list) for each in listed):
        raise BadRequestError(
            "file: this is an export of Wenmai: on the page, choose the JSON file of one conversation; over "
            "HTTP, send it to POST /sessions/import."
        )
    raise BadRequestError(
        "file: this is neither an export of Wenmai, ChatGPT, Claude, Open WebUI or LibreChat nor a list of "
        "messages."
    )


def session_id_of(product: str, owner: str, key: str) -> str:
    return str(uuid.uuid5(NAMESPACE, f"{owner}\0{product}\0{key}"))


# ---- from messages to turns ---------------------------------------------------------------------------


def _conversation(raw: _Raw, product: str, owner: str) -> ForeignConversation:
    by_id = {message.message_id: message for message in raw.messages}
    orphans = {each.message_id for each in by_id.values() if each.parent_id and each.parent_id not in by_id}
    roots = [each for each in by_id.values() if each.parent_id is None or each.message_id in orphans]
    children: dict[str, list[Message]] = defaultdict(list)
    for message in by_id.values():
        if message.parent_id in by_id:
            children[message.parent_id or ""].append(message)
    key = raw.key or str(uuid.uuid5(NAMESPACE, "\0".join([raw.title, *(m.text for m in raw.messages[:2])])))
    session_id = session_id_of(product, owner, key)
    walk = _Walk(children, uuid.UUID(session_id))
    turns = tuple(walk.turns(roots))
    systems = [message.text for message in raw.messages if message.role == "system"]
    return ForeignConversation(
        key=key,
        title=raw.title.strip(),
        turns=turns,
        persona=(raw.persona or next(filter(None, systems), "")).strip(),
        left_out=len(by_id) - walk.visited,
        orphans=len(orphans),
        attachments=sum(len(message.attachments) for message in raw.messages),
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """A walk's state: the preceding turn, the question awaiting its answer, and the answers so far."""

    parent: str | None
    question: Message | None = None
    answers: tuple[Message, ...] = ()


class _Walk:
    """Walks without recursion: an export may have ten thousand consecutive messages."""

    def __init__(self, children: Mapping[str, Sequence[Message]], session: uuid.UUID) -> None:
        self._children = children
        self._session = session
        self.visited = 0

    def turns(self, roots: Iterable[Message]) -> Iterator[Turn]:
        ways = [(message, _Way(None)) for message in roots][::-1]
        while ways:
            message, way = ways.pop()
            self.visited += 1
            if message.role == "user":
                way = replace(way, question=message, answers=())
            elif message.role == "assistant" and way.question is not None:
                way = replace(way, answers=(*way.answers, message))
            children = self._children.get(message.message_id, ())
            users = [child for child in children if child.role == "user"]
            others = [child for child in children if child.role != "user"]
            after = way
            if way.question is not None and (users or not children):
                turn = self._turn(way)
                yield turn
                after = _Way(turn.turn_id)
            ways += [(child, after) for child in reversed(users)]
            ways += [(child, way) for child in reversed(others)]

    def _turn(self, way: _Way) -> Turn:
        question, answers = way.question, way.answers
        assert question is not None
        named = "".join(f"\n[{name}]" for name in question.attachments)
        answer = "\n\n".join(filter(None, (each.text.strip() for each in answers)))
        last = answers[-1] if answers else question
        return imported_turn(
            preprocess_question(question.text + named) or NO_TEXT,
            answer,
            turn_id=str(uuid.uuid5(self._session, f"{question.message_id}\0{last.message_id}")),
            parent_turn_id=way.parent,
            created_us=question.created_us,
            status=TurnStatus.COMPLETED if answer else TurnStatus.INTERRUPTED,
            model_id=last.model[:MODEL_CHARS] or "imported",
        )


# ---- the products -------------------------------------------------------------------------------------


def _chatgpt(value: dict[str, Any]) -> _Raw:
    raw = _Raw(_key(value, "conversation_id", "id"), _text(value.get("title")))
    for node_id, node in _dicts(value.get("mapping")).items():
        message = _dict(node.get("message"))
        content, metadata = _dict(message.get("content")), _dict(message.get("metadata"))
        parts = content.get("parts")
        texts = [_part(part) for part in parts] if isinstance(parts, list) else [_text(content.get("text"))]
        role = _text(_dict(message.get("author")).get("role"))
        is_hidden = metadata.get("is_visually_hidden_from_conversation") is True
        is_spoken = content.get("content_type") in ("text", "multimodal_text", None)
        context = (
            content.get("user_instructions") if content.get("content_type") == "user_editable_context" else ""
        )
        raw.persona = raw.persona or _text(context)
        raw.messages.append(
            Message(
                node_id,
                _id(node.get("parent")),
                role if is_spoken and not is_hidden else "",
                "\n".join(filter(None, texts)),
                _moment(message.get("create_time")),
                _text(metadata.get("model_slug")),
                tuple(_text(each.get("name")) for each in _list(metadata.get("attachments"))),
            )
        )
    return raw


def _claude(value: dict[str, Any]) -> _Raw:
    raw = _Raw(_key(value, "uuid"), _text(value.get("name")))
    before: str | None = None
    for at, message in enumerate(_list(value.get("chat_messages"))):
        message_id = _text(message.get("uuid")) or str(at)
        texts = [
            _text(part.get("text")) for part in _list(message.get("content")) if part.get("type") == "text"
        ]
        parent = _id(message.get("parent_message_uuid")) if "parent_message_uuid" in message else before
        files = [*_list(message.get("attachments")), *_list(message.get("files"))]
        raw.messages.append(
            Message(
                message_id,
                None if parent in BEGINNINGS else parent,
                {"human": "user"}.get(_text(message.get("sender")), _text(message.get("sender"))),
                "\n".join(filter(None, texts)) or _text(message.get("text")),
                _moment(message.get("created_at")),
                _text(value.get("model")),
                tuple(filter(None, (_text(each.get("file_name")) for each in files))),
            )
        )
        before = message_id
    return raw


def _open_webui(value: dict[str, Any]) -> _Raw:
    chat = _dict(value.get("chat"))
    params = _dict(chat.get("params"))
    raw = _Raw(
        _key(value, "id"), _text(value.get("title") or chat.get("title")), [],
        _text(chat.get("system") or params.get("system")),
    )  # fmt: skip
    messages = _dicts(_dict(chat.get("history")).get("messages"))
    if not messages:
        return _listed(raw, _list(chat.get("messages")))
    for message_id, message in messages.items():
        files = _list(message.get("files"))
        raw.messages.append(
            Message(
                message_id,
                _id(message.get("parentId")),
                _text(message.get("role")),
                _content(message.get("content")),
                _moment(message.get("timestamp")),
                _text(message.get("model")),
                tuple(filter(None, (_text(each.get("name")) for each in files))),
            )
        )
    return raw


def _librechat(value: dict[str, Any]) -> _Raw:
    options = _dict(value.get("options"))
    system = options.get("promptPrefix") or options.get("system")
    raw = _Raw(_key(value, "conversationId"), _text(value.get("title")), [], _text(system))
    listed = _list(value.get("messages") or value.get("messagesTree"))
    waiting: list[tuple[dict[str, Any], str | None]] = [(each, None) for each in reversed(listed)]
    while waiting:  # exported flat, or as a tree of children
        message, above = waiting.pop()
        message_id = _text(message.get("messageId")) or str(len(raw.messages))
        parent = _id(message.get("parentMessageId")) if "parentMessageId" in message else above
        files = _list(message.get("files"))
        raw.messages.append(
            Message(
                message_id,
                None if parent in BEGINNINGS else parent,
                "user" if message.get("isCreatedByUser") else "assistant",
                _text(message.get("text")) or _content(message.get("content")),
                _moment(message.get("createdAt")),
                _text(message.get("model")),
                tuple(filter(None, (_text(each.get("filename")) for each in files))),
            )
        )
        waiting += [(child, message_id) for child in reversed(_list(message.get("children")))]
    return raw


def _messages(value: dict[str, Any]) -> _Raw:
    first = _list(value.get("messages"))
    raw = _Raw(_key(value, "id", "session_id"), _text(value.get("title")))
    return _listed(raw, first)


def _listed(raw: _Raw, messages: Sequence[dict[str, Any]]) -> _Raw:
    before: str | None = None
    for at, message in enumerate(messages):
        role = _text(message.get("role"))
        role = "system" if role == "developer" else role
        model, time = _text(message.get("model")), _moment(message.get("timestamp"))
        raw.messages.append(Message(str(at), before, role, _content(message.get("content")), time, model))
        before = str(at)
    return raw


_PRODUCTS: tuple[tuple[str, Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], _Raw]], ...] = (
    ("ChatGPT", lambda value: isinstance(value.get("mapping"), dict), _chatgpt),
    ("Claude", lambda value: isinstance(value.get("chat_messages"), list), _claude),
    ("Open WebUI", lambda value: isinstance(value.get("chat"), dict), _open_webui),
    ("LibreChat", lambda value: "conversationId" in value, _librechat),
    ("OpenAI", lambda value: isinstance(value.get("messages"), list), _messages),
)


# ---- what may stand anywhere --------------------------------------------------------------------------


def _text(value: Any) -> str:
    return scrub(value) if isinstance(value, str) else ""


def _id(value: Any) -> str | None:
    return scrub(value) if isinstance(value, str) and value else None


def _key(value: dict[str, Any], *names: str) -> str:
    return next(filter(None, (_text(value.get(name)) for name in names)), "")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> dict[str, dict[str, Any]]:
    return {scrub(name): _dict(each) for name, each in _dict(value).items()}


def _list(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _part(part: Any) -> str:
    """Return a text, or a placeholder for an image or a file."""
    if isinstance(part, str):
        return scrub(part)
    kind = _text(_dict(part).get("content_type") or _dict(part).get("type"))
    return _text(_dict(part).get("text")) or (f"[{kind.split('_')[0]}]" if kind else "")


def _content(value: Any) -> str:
    return "\n".join(filter(None, map(_part, value))) if isinstance(value, list) else _text(value)


def _moment(value: Any) -> int:
    """Parse seconds, milliseconds or RFC 3339 into UTC microseconds; 0 for anything else."""
    if isinstance(value, str):
        return max(parse_time(value, UTC) or 0, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e14:
        return 0
    seconds = value / 1_000 if value > 1e11 else value
    return int(datetime.fromtimestamp(seconds, UTC).timestamp() * 1_000_000)
