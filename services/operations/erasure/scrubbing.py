"""What is taken out of a stored payload that something erased left a trace in; nothing else is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from core.operations.erasure import ERASED_ID, Quotes

_SOURCE_TEXTS = ("file_name", "heading", "key_passage", "text", "reason", "version", "date")
_SOURCE_NUMBERS = {"page": None, "char_start": 0, "char_end": 0, "passage_start": None, "passage_end": None}


def without_turns(payload: Mapping[str, Any], erased: Collection[str]) -> dict[str, Any]:
    """The manifest without the ids of these turns: its parts stay, and say that they were removed."""
    return _with_parts(payload, lambda part: {"turn_id": None} if part.get("turn_id") in erased else {})


class DocumentTraces:
    """One document's traces in turns and sessions. `texts` are what it says."""

    def __init__(self, document_id: str, chunk_ids: Collection[str], texts: Quotes) -> None:
        self._document_id = document_id
        self._chunk_ids = frozenset(chunk_ids)
        self._texts = texts

    def names(self, source: Any) -> bool:
        """Whether a citation, or a persona, is from the document."""
        if not isinstance(source, dict):
            return False
        return source.get("document_id") == self._document_id or source.get("chunk_id") in self._chunk_ids

    def without(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a turn that change: its citations stay in their places, without what they said."""
        changed: dict[str, Any] = {}
        sources = payload.get("sources")
        if isinstance(sources, list) and any(map(self.names, sources)):
            changed["sources"] = [_emptied(one) if self.names(one) else one for one in sources]
        named = payload.get("context_docs")
        erased = {*self._chunk_ids, self._document_id}
        if isinstance(named, list) and any(isinstance(one, str) and one in erased for one in named):
            changed["context_docs"] = [
                ERASED_ID if isinstance(one, str) and one in erased else one for one in named
            ]
        return {
            **changed,
            **self._filters(payload),
            **self._rewritten(payload),
            **_with_parts(payload, self._part),
        }

    def _filters(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The limits of the question, which still say that it was limited to a document."""
        filters = payload.get("filters")
        document_ids = filters.get("document_ids") if isinstance(filters, dict) else None
        if (
            not isinstance(filters, dict)
            or not isinstance(document_ids, list)
            or self._document_id not in document_ids
        ):
            return {}
        left = [ERASED_ID if one == self._document_id else one for one in document_ids]
        return {"filters": {**filters, "document_ids": left}}

    def _rewritten(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """A question that was rewritten with a sentence of the document."""
        rewritten = payload.get("rewritten_question")
        text = rewritten.get("text") if isinstance(rewritten, dict) else None
        return {"rewritten_question": None} if isinstance(text, str) and self._texts.are_in(text) else {}

    def persona(self, persona: Mapping[str, Any]) -> dict[str, Any] | None:
        """The persona without its origin; None when its text is the document's."""
        if self._texts.are_in(str(persona.get("text", ""))):
            return None
        return {**persona, "document_id": None, "chunk_id": None}

    def quoted_by(self, payload: Mapping[str, Any]) -> bool:
        """Whether the answer, or the thinking, says a sentence of the document."""
        texts = (payload.get("assistant_response"), payload.get("thinking"))
        return any(isinstance(text, str) and self._texts.are_in(text) for text in texts)

    def _part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if part.get("chunk_id") in self._chunk_ids:
            changed["chunk_id"] = None
        if isinstance(part.get("text"), str) and self._texts.are_in(part["text"]):
            changed["text"] = None
        return changed


def snapshot_texts(payload: Mapping[str, Any], traces: DocumentTraces) -> list[str]:
    """What a turn's citations say of the document."""
    sources = payload.get("sources")
    named = [one for one in sources if traces.names(one)] if isinstance(sources, list) else []
    return [str(one.get(field, "")) for one in named for field in ("text", "key_passage")]


def _emptied(source: Mapping[str, Any]) -> dict[str, Any]:
    texts = {field: "" for field in _SOURCE_TEXTS if field in source}
    numbers = {field: value for field, value in _SOURCE_NUMBERS.items() if field in source}
    return {**source, **texts, **numbers, "document_id": ERASED_ID, "chunk_id": ERASED_ID}


def _with_parts(payload: Mapping[str, Any], change: Any) -> dict[str, Any]:
    prompt = payload.get("prompt")
    parts = prompt.get("parts") if isinstance(prompt, dict) else None
    if not isinstance(prompt, dict) or not isinstance(parts, list):
        return {}
    changes = [change(part) if isinstance(part, dict) else {} for part in parts]
    if not any(changes):
        return {}
    changed = [{**part, **new} if new else part for part, new in zip(parts, changes, strict=True)]
    return {"prompt": {**prompt, "parts": changed}}
