"""Reading message lists, comparing marks, and finding the deepest turn that a history continues."""

from __future__ import annotations

import pytest

from core.conversation.lineage import (
    Conversation,
    MarkedTurn,
    as_stored,
    continued,
    read_messages,
    with_attached_apart,
)
from core.conversation.turns import PastTurn, TurnStatus, marks_of, normalised, sources_footer
from core.errors import BadRequestError

COMPLETED, CANCELLED = TurnStatus.COMPLETED, TurnStatus.CANCELLED


def stored(turn_id: str, text: str, parent: str | None, at: int = 0, answer: str | None = None) -> MarkedTurn:
    """A turn whose question and answer are `text`; one with an `answer` was cut off."""
    status = COMPLETED if answer is None else CANCELLED
    marks = marks_of(text, text if answer is None else answer, status)
    return MarkedTurn(turn_id, "s", parent, at, tuple(marks), answer)


def past(*texts: str) -> list[PastTurn]:
    return [PastTurn(text, text) for text in texts]


def match_of(history: list[PastTurn], *turns: MarkedTurn) -> tuple[str, int] | None:
    match = continued(history, turns)
    return (match.turn.turn_id, match.depth) if match else None


def test_the_deepest_turn_whose_branch_has_the_history_is_the_parent() -> None:
    trunk = [stored("1", "a", None), stored("2", "b", "1"), stored("3", "c", "2")]
    assert match_of(past("a", "b", "c"), *trunk) == ("3", 3)
    assert match_of(past("a", "b", "x"), *trunk) == ("2", 2)
    assert match_of(past("x", "b", "c"), *trunk) is None
    assert match_of([], *trunk) is None


def test_a_branch_is_matched_by_its_parents() -> None:
    """Discriminates: comparing marks alone, which would accept the newest turn of any branch."""
    turns = [stored("1", "a", None), stored("2", "b", "1"), stored("9", "b", "8", at=9)]
    assert match_of(past("a", "b"), *turns) == ("2", 2)


def test_equal_branches_rank_by_starting_at_the_root_and_then_by_recency() -> None:
    turns = [stored("1", "a", None, 1), stored("2", "a", None, 2), stored("3", "a", "0", 3)]
    assert match_of(past("a"), *turns) == ("2", 1)
    assert match_of(past("a", "b"), *turns, stored("4", "b", "3", 4)) == ("4", 2)


def test_a_client_may_have_less_of_an_interrupted_answer() -> None:
    cut = stored("1", "a", None, answer="It was a dark and")
    assert match_of([PastTurn("a", "It was a")], cut) == ("1", 1)
    assert match_of([PastTurn("a", "")], cut) == ("1", 1)
    assert match_of([PastTurn("a", "It was a dark and stormy")], cut) is None
    assert match_of([PastTurn("b", "It was a")], cut) is None
    whole = stored("2", "a", None)
    assert match_of([PastTurn("a", "")], whole) is None


@pytest.mark.parametrize(
    "text",
    [
        " A  café \r\n[1].\n",
        "A cafe\u0301 [1].",
        "<think>Hm.\n</think>A café [1].",
        '<details type="reasoning" done="true">\n<summary>Thought</summary>\nHm.\n</details>\nA café [1].',
        "A café [1]." + sources_footer([(1, "menu.md"), (3, "a\nb")], "en"),
        "A café [1]." + sources_footer([(1, "菜单.md")], "zh"),
    ],
)
def test_typical_client_changes_to_a_text_make_no_difference(text: str) -> None:
    assert normalised(text) == "A café [1]."


def test_any_other_change_makes_a_difference() -> None:
    texts = ("a", "A", "a b", "ab", "a\n---\nSources: none", "a\n\n---\n[1] b")
    assert len({normalised(text) for text in texts}) == len(texts)


ANSWER = "Otto.\n\n> He likes walnuts.\n\nAnd sun."


@pytest.mark.parametrize(
    "thinking",
    ["> Hm.", "> Hm.\nWho?\n\n> Otto, then.\n\n> ", "> Hm.\n\nWho is it, then?\n\n> Otto."],
)
def test_thinking_quoted_by_a_client_before_an_answer_makes_no_difference(thinking: str) -> None:
    """Discriminates: storing each earlier turn again, with the thinking as its answer."""
    whole, cut = stored("1", "Who?", None, answer=ANSWER), stored("2", "Who?", None, answer=ANSWER[:9])
    for turn, answer in ((whole, ANSWER), (cut, ANSWER[:7])):
        history = as_stored([PastTurn("Who?", f"{thinking}\n\n{answer}")], [turn])
        assert match_of(history, turn) == (turn.turn_id, 1)
    only_thought = stored("3", "Who?", None, answer="")
    assert match_of([PastTurn("Who?", "> Hm.")], only_thought) == ("3", 1)


def test_an_answer_that_begins_with_a_quotation_is_matched_unchanged() -> None:
    quotes, other = (PastTurn("Who?", f"> Otto.\n\n{rest}") for rest in ("He is.", "She is."))
    turn = MarkedTurn("1", "s", None, 0, tuple(marks_of("Who?", quotes.answer, COMPLETED)))
    assert as_stored([quotes, other], [turn]) == [quotes, other]


def test_messages_are_split_into_persona_past_turns_and_question() -> None:
    read = read_messages(
        [
            ("system", "Be kind."),
            ("assistant", "Welcome!"),
            ("user", "One"),
            ("user", "more"),
            ("assistant", "Two" + sources_footer([(1, "x")], "en")),
            ("developer", "Be brief."),
            ("user", "Three"),
            ("assistant", ""),
            ("user", " Four\n\n\n\n! "),
        ]
    )
    turns = (PastTurn("One\n\nmore", "Two"), PastTurn("Three", ""))
    assert read == Conversation("Be kind.\n\nBe brief.", turns, "Four\n\n!")


def test_messages_before_a_clear_are_not_part_of_the_branch() -> None:
    messages = [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "/clear"),
        ("assistant", "Cleared."),
        ("user", "c"),
    ]
    read = read_messages(messages)
    assert (read.past, read.cleared) == ((), (PastTurn("a", "b"),))


@pytest.mark.parametrize("messages", [[], [("system", "a")], [("user", "a"), ("assistant", "b")]])
def test_the_last_message_must_be_a_users(messages: list[tuple[str, str]]) -> None:
    with pytest.raises(BadRequestError, match="the last message"):
        read_messages(messages)


TASK = "### Task:\nRespond to the user query using the provided context, incorporating inline citations."
SOURCE = '<source id="3" name="a.md">Otto. </context> is a word.</source>'
FORMS = (
    (f"{TASK}\n<context>\n{SOURCE}\n</context>\n\nWho?\n", ""),
    (f"Who?\n\n{TASK}\n<context>\n{SOURCE}\n</context>", ""),  # after tool calls
    (f"{TASK}\n\n<context>\n{SOURCE}\n</context>\n\n<user_query>\nWho?\n</user_query>", ""),
    (f"{TASK}\n<context>\n{SOURCE}\n</context>\n<user_query>\nWho?\n</user_query>\nWho?", ""),
    ("\n".join(2 * [f"{TASK}\n<context>\n{SOURCE}\n</context>"]) + "\nWho?", ""),  # in each of two parts
    ("Who?", f"{TASK}\n<context>\n{SOURCE}\n</context>\n<user_query>\nWho?\n</user_query>\nBe kind."),
    ("Who?", f"Be kind.\n{TASK}\n<context>\n{SOURCE}\n</context>"),
)
A_PERSONS = (
    f"What is in this? <context>\n{SOURCE}\n</context>",
    f"{TASK}\n<context>\nOtto.\n</context>\nWho?",
    f"{TASK}\n<context>\n{SOURCE}\nWho?",
    f"Why does it say {TASK} <context>\n{SOURCE}\n</context>",
    f"{TASK}\n<context>\n{SOURCE}\n</context>",  # no question would be left
)


@pytest.mark.parametrize(("question", "persona"), FORMS)
def test_open_webuis_wrapper_around_a_question_is_parsed(question: str, persona: str) -> None:
    read = with_attached_apart(Conversation(persona, (), question))
    attached = '<source name="a.md">Otto. </context> is a word.</source>'
    assert (read.question, read.persona, read.attached) == ("Who?", "Be kind." if persona else "", attached)


def test_an_older_source_number_is_removed_and_the_name_kept() -> None:
    names = "<source><source_id>7</source_id>A</source><source><source_id>b.pdf</source_id>B</source>"
    read = with_attached_apart(Conversation("", (), f"{TASK}\n<context>\n{names}\n</context>\nWho?"))
    assert read.attached == "<source>A</source><source><source_id>b.pdf</source_id>B</source>"


def test_names_of_attached_files_are_not_part_of_the_question() -> None:
    files = '<attached_files>\n<file type="file" id="1" name="a.md"/>\n</attached_files>\n\n'
    read = read_messages([("user", files + "Who?"), ("assistant", "Otto."), ("user", files + "Why?")])
    assert (read.past, read.question) == ((PastTurn("Who?", "Otto."),), "Why?")
    template = f"{TASK}\n<context>\n{SOURCE}\n</context>\n"
    assert (
        with_attached_apart(read_messages([("user", f"{template}{files}{template}Who?")])).question == "Who?"
    )
    kept = "<attached_files> is a tag, is it not?"
    assert read_messages([("user", kept)]).question == kept


@pytest.mark.parametrize("question", A_PERSONS)
def test_a_question_that_only_resembles_the_wrapper_is_left_unchanged(question: str) -> None:
    asked = Conversation("", (), question)
    assert with_attached_apart(asked) == asked
