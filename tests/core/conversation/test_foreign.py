"""Reading exports of other products: trees, times, models, what is reported and what is skipped."""

from __future__ import annotations

from typing import Any

import pytest

from core.conversation.foreign import ForeignConversation, read_export
from core.conversation.turns import TurnStatus
from core.errors import BadRequestError
from tests.support.wire.exports import EXPORTS, T0, chatgpt, many

Shape = tuple[str, str, str | None]
LINE, CHAIN = "A line of descent.", "A chain of ancestors."
FIRST = "What is a lineage?"


def read(value: Any) -> ForeignConversation:
    return read_export(value, "local").conversations[0]


def shapes(conversation: ForeignConversation) -> list[Shape]:
    """Question, answer, and the answer of the previous turn."""
    answers = {turn.turn_id: turn.answer for turn in conversation.turns}
    return [
        (turn.question, turn.answer, answers.get(turn.parent_turn_id or "")) for turn in conversation.turns
    ]


TREES: dict[str, list[Shape]] = {
    "ChatGPT": [
        (f"{FIRST}\n[plan.pdf]", LINE, None),
        (f"{FIRST}\n[plan.pdf]", CHAIN, None),
        ("[image]\nAnd this?", "A tree.", CHAIN),
    ],
    "Claude": [
        (f"{FIRST}\n[plan.pdf]", LINE, None),
        ("And this?", "A tree.", LINE),
        ("And that?", "A bush.", LINE),
    ],
    "Open WebUI": [
        (f"{FIRST}\n[plan.png]", LINE, None),
        (f"{FIRST}\n[plan.png]", CHAIN, None),
        ("And this?", "", CHAIN),
    ],
    "LibreChat": [(FIRST, LINE, None), (FIRST, CHAIN, None), ("And this?", "A tree.", CHAIN)],
    "OpenAI": [(f"{FIRST}\n[image]", LINE, None), ("And this?", "", LINE)],
}


@pytest.mark.parametrize("product", TREES)
def test_a_tree_stays_a_tree(product: str) -> None:
    export = read_export(EXPORTS[product](), "local")
    assert export.product == product
    conversation = export.conversations[0]
    assert sorted(shapes(conversation), key=str) == sorted(TREES[product], key=str)
    assert (conversation.left_out, conversation.orphans) == (0, 0)
    places = {turn.turn_id: at for at, turn in enumerate(conversation.turns)}
    assert all(
        places.get(turn.parent_turn_id or "", -1) < places[turn.turn_id] for turn in conversation.turns
    )


def test_titles_times_models_and_system_prompts_are_kept() -> None:
    conversation = read(EXPORTS["ChatGPT"]())
    assert conversation.title == "Lineage"
    assert [turn.model_id for turn in conversation.turns] == ["gpt-4o"] * 3
    assert {turn.created_us // 1_000_000 for turn in conversation.turns} == {T0 + 2}
    assert {read(EXPORTS[name]()).persona for name in ("Open WebUI", "LibreChat", "OpenAI")} == {"Be brief."}
    unanswered = read(EXPORTS["Open WebUI"]()).turns[-1]
    assert unanswered.status is TurnStatus.INTERRUPTED


def test_the_same_file_names_the_same_turns_for_each_owner() -> None:
    ids = [{turn.turn_id for turn in read_export(chatgpt(), owner).conversations[0].turns} for owner in "aab"]
    assert ids[0] == ids[1]
    assert not ids[0] & ids[2]


def test_missing_parents_begin_a_branch_and_cycles_are_skipped() -> None:
    value = chatgpt()
    mapping = value[0]["mapping"]
    del mapping["sys"]
    mapping["x"] = {"parent": "y", "message": mapping["q1"]["message"]}
    mapping["y"] = {"parent": "x", "message": mapping["a1"]["message"]}
    conversation = read(value)
    assert (conversation.orphans, conversation.left_out) == (1, 2)
    assert len(conversation.turns) == 3


@pytest.mark.parametrize("product", EXPORTS)
def test_ten_thousand_messages_of_each_product_keep_their_order_and_their_branches(product: str) -> None:
    """Discriminates: a walk by recursion."""
    conversation = read(many(product, 10_000))
    answers = {turn.turn_id: turn.answer for turn in conversation.turns}
    parents = {turn.answer: answers.get(turn.parent_turn_id or "", "") for turn in conversation.turns}
    trunk = {f"Text a{n}": f"Text a{n - 1}" if n else "" for n in range(4_762)}
    again = {f"Text b{n}": trunk[f"Text a{n}"] for n in range(0, 4_762, 10) if product != "OpenAI"}
    assert parents == trunk | again
    assert (conversation.orphans, conversation.left_out) == (0, 0)


@pytest.mark.parametrize(
    "value", [None, 1, "a", [], {}, [1], [{"mapping": []}], [chatgpt()[0], {"chat": {}}]]
)
def test_other_files_than_exports_are_refused(value: Any) -> None:
    with pytest.raises(BadRequestError, match="file: ") as refused:
        read_export(value, "local")
    assert "POST" not in str(refused.value)  # most who read it are on the page


def test_an_export_of_our_own_is_refused_with_what_to_do_on_the_page() -> None:
    with pytest.raises(BadRequestError, match="on the page, choose"):
        read_export([{"title": "t", "turns": [{"question": "q"}]}], "local")


@pytest.mark.parametrize("product", EXPORTS)
def test_values_of_wrong_types_break_nothing(product: str) -> None:
    """Each field of the export in turn is a number, null or a list."""

    def mutated(value: Any, wrong: Any) -> list[Any]:
        if isinstance(value, dict):
            deeper = [{**value, name: each} for name in value for each in mutated(value[name], wrong)]
            return [*({**value, name: wrong} for name in value), *deeper]
        if isinstance(value, list):
            return [
                [*value[:at], each, *value[at + 1 :]]
                for at in range(len(value))
                for each in mutated(value[at], wrong)
            ]
        return []

    values: tuple[Any, ...] = (7, None, [], {}, "\ud800\0")
    for wrong in values:
        for value in mutated(EXPORTS[product](), wrong):
            try:
                read_export(value, "local")
            except BadRequestError as error:
                assert str(error).startswith("file: ")  # noqa: PT017 - most are read
