"""Verbatim quotes, and what is removed from a payload: nothing else is changed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.conversation.turns import Turn
from core.knowledge import Candidate, Chunk
from core.operations.erasure import ERASED_ID, MIN_QUOTE_CHARS, Quotes, own_words, pieces_of
from core.prompt.fence import MIN_NEARNESS, nearest_text
from services.operations.erasure.documents import DocumentTraces, without_turns
from services.operations.erasure.reading import strings_in, texts_at
from services.operations.erasure.turns import _texts_of
from services.store.dialect import Record


@dataclass(frozen=True)
class Note:
    author_id: str
    lines: tuple[str, ...]
    scores: dict[str, float]


@dataclass(frozen=True)
class LaterTurn(Turn):
    note: Note | None = None


LONG = "The wheel costs nine golden ducats every autumn."
CHINESE = "押金在合同结束以后的第三十个工作日之前原路退还给客户本人。"


@pytest.mark.parametrize("sentence", [LONG, CHINESE])
def test_a_whole_sentence_is_found_within_any_text(sentence: str) -> None:
    quotes = Quotes([f"Something first. {sentence} Short."])
    assert quotes.in_text(f'As it says: "{sentence}" [1]') == [sentence]
    assert not quotes.are_in(sentence[:-3])
    assert not quotes.are_in("Short.")


def test_sentences_that_another_text_also_has_are_ignored() -> None:
    quotes = Quotes([LONG, CHINESE])
    quotes.discard(f"… {LONG}")
    assert (len(quotes), quotes.are_in(LONG), quotes.are_in(CHINESE)) == (1, False, True)


@given(st.text(max_size=200), st.text(max_size=40), st.text(max_size=40))
def test_a_text_quoted_whole_is_found_if_it_has_a_long_sentence(text: str, before: str, after: str) -> None:
    """Discriminates: checking only the beginnings of the other text's sentences."""
    quotes = Quotes([text])
    assert quotes.are_in(before + text + after) == bool(len(quotes))


def test_short_texts_are_not_searched() -> None:
    assert pieces_of(["yes", "x" * (MIN_QUOTE_CHARS - 1), LONG, LONG, "y" * 500]) == (LONG, "y" * 80)


def test_a_turns_own_words_are_read_from_its_record() -> None:
    """Discriminates: a hand-written list. A new field must be classified here: words, a name, or a copy."""
    assert set(own_words()) == {
        "user_query", "assistant_response", "thinking", "feedback.comment", "rewritten_question.text",
        "tool_calls.function.arguments", "tool_calls.result",
    }  # fmt: skip


def test_a_new_text_field_counts_as_the_turns_own_words() -> None:
    assert set(own_words(LaterTurn)) - set(own_words()) == {"note.lines"}


def test_the_words_of_a_turn_are_traced_in_all_fields_of_its_record() -> None:
    texts = {"user_query": "?", "thinking": LONG, "feedback": {"rating": None, "comment": CHINESE}}
    assert _texts_of([Record(id=1, payload=texts)]) == (LONG, CHINESE)


def test_values_are_read_through_lists() -> None:
    payload = {"a": [{"b": "1"}, {"b": ["2", 3]}, "x"], "c": ["4"], "d": None}
    assert texts_at(payload, "a[].b") == ["1", "2"]
    assert (texts_at(payload, "c"), texts_at(payload, "d.e"), texts_at(None, "a")) == (["4"], [], [])
    assert sorted(text for _, text in strings_in({"a": [{"b": "1"}], "c": "4"})) == ["1", "4", "a", "b", "c"]


def test_a_manifest_loses_the_ids_of_erased_turns_and_nothing_else() -> None:
    payload: dict[str, Any] = {
        "prompt": {"parts": [{"turn_id": "a"}, {"turn_id": "b"}, "odd"], "params": "{}"}
    }
    before = deepcopy(payload)
    assert without_turns(payload, ["a"]) == {
        "prompt": {"parts": [{"turn_id": None}, {"turn_id": "b"}, "odd"], "params": "{}"}
    }
    assert payload == before
    for untouched in (
        {},
        {"prompt": None},
        {"prompt": {"parts": 1}},
        {"prompt": {"parts": [{"turn_id": "b"}]}},
    ):
        assert without_turns(untouched, ["a"]) == {}


def test_a_citation_of_an_erased_document_keeps_its_position_and_loses_its_text() -> None:
    traces = DocumentTraces("doc", ["chunk"], Quotes([LONG]))
    theirs = {
        "index": 1,
        "document_id": "doc",
        "chunk_id": "chunk",
        "text": LONG,
        "score": 0.5,
        "char_end": 9,
    }
    other = {"index": 2, "document_id": "other", "chunk_id": "o", "text": LONG}
    payload = {"sources": [theirs, other, "odd"], "context_docs": ["chunk", "o", 3], "prompt": None}
    assert traces.without(payload) == {
        "sources": [
            {
                "index": 1,
                "document_id": ERASED_ID,
                "chunk_id": ERASED_ID,
                "text": "",
                "score": 0.5,
                "char_end": 0,
            },
            other,
            "odd",
        ],
        "context_docs": [ERASED_ID, "o", 3],
    }
    assert traces.without({"sources": [other], "context_docs": ["o"]}) == {}
    by_name = {"sources": [other, theirs], "context_docs": ["a.md", "a.md"]}
    assert traces.without(by_name)["context_docs"] == ["a.md", ERASED_ID]


def test_a_persona_is_erased_with_the_document_whose_text_it_is() -> None:
    traces = DocumentTraces("doc", ["chunk"], Quotes([LONG]))
    assert traces.persona({"text": LONG, "document_id": "doc"}) is None
    own = {"text": "Be kind.", "document_id": "doc", "chunk_id": "chunk"}
    assert traces.persona(own) == {"text": "Be kind.", "document_id": None, "chunk_id": None}
    parts = {"prompt": {"parts": [{"part": "persona", "text": LONG}, {"chunk_id": "chunk"}]}}
    assert traces.without(parts) == {
        "prompt": {"parts": [{"part": "persona", "text": None}, {"chunk_id": None}]}
    }


def test_a_nearest_heading_is_removed_from_the_prompt_with_its_document() -> None:
    """Discriminates: a prompt that still names the document; one that loses the headings of others."""
    ours, other = (
        nearest_text([Candidate(Chunk("c", name, f"{name}.md", "text", 0), probability=MIN_NEARNESS)], "en")
        for name in ("doc", "other")
    )
    line = other.splitlines()[1]
    traces = DocumentTraces("doc", ["chunk"], Quotes([LONG]))
    kept = {"prompt": {"parts": [{"part": "system", "text": f"{ours}\n{line}"}]}}
    [part] = traces.without(kept)["prompt"]["parts"]
    assert "doc" not in part["text"].replace("the documents", "")
    assert line in part["text"]
    assert traces.without({"prompt": {"parts": [{"part": "system", "text": other}]}}) == {}
