"""Slash commands are distinguished from questions by their first word alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.conversation.sessions import (
    Command,
    CommandName,
    PersonaRules,
    command_language,
    parse_command,
    plain_request,
)
from core.errors import BadRequestError

HELP, CLEAR, PERSONA = CommandName.HELP, CommandName.CLEAR, CommandName.PERSONA


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/help", Command(HELP)),
        ("  /HELP \n", Command(HELP)),
        ("／help", Command(HELP)),
        ("／ｈｅｌｐ", Command(HELP)),
        ("/help me", Command(HELP, "me")),
        ("/clear", Command(CLEAR)),
        ("/persona", Command(PERSONA)),
        ("/persona clear", Command(PERSONA, "clear")),
        ("/remember I like tea", Command(CommandName.REMEMBER, "I like tea")),
        ("/FORGET tea", Command(CommandName.FORGET, "tea")),
        ("/memories", Command(CommandName.MEMORIES)),
        ("/Persona\u3000你是一位老师", Command(PERSONA, "你是一位老师")),
        ("/persona\nYou are a pirate.\n\nSay arr.", Command(PERSONA, "You are a pirate.\n\nSay arr.")),
    ],
)
def test_a_command_is_recognised_by_its_first_word(text: str, expected: Command) -> None:
    assert parse_command(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", "/", "／", "//help", "/helper", "/help?", "/etc/passwd 是什么?", "/clear/all", "/ help", "help",
     "what does /help do?", "/persona:x", "/persona,clear", "/人设", "/unknown clear"],
)  # fmt: skip
def test_anything_else_is_a_question(text: str) -> None:
    """Discriminates: matching the name as a prefix of the first word, or anywhere in the text."""
    assert parse_command(text) is None


@given(st.text(max_size=60) | st.text("/／hHeElLpP cClLaArR\n\u3000", max_size=12))
def test_no_text_crashes_the_parser_and_arguments_are_kept_whole(text: str) -> None:
    """Discriminates: dropping the argument's second line; accepting a text without a slash."""
    command = parse_command(text)
    if command is None:
        return
    words = text.split()
    assert words[0][0] in "/／"
    assert command.argument.split() == words[1:]


def test_only_persona_with_a_text_sets_one() -> None:
    assert Command(PERSONA, "clear").persona_text is None
    assert Command(PERSONA, "CLEAR").clears_persona
    assert Command(PERSONA).persona_text is None
    assert Command(HELP, "me").persona_text is None
    assert Command(PERSONA, "clear and short").persona_text == "clear and short"


def test_the_reply_uses_the_language_of_the_text_else_of_the_session_else_both() -> None:
    assert command_language(Command(PERSONA, "你是老师")) == "zh"
    assert command_language(Command(PERSONA, "You teach."), earlier="你好") == "en"
    assert command_language(Command(HELP), earlier="清理什么时候运行?") == "zh"
    assert command_language(Command(PERSONA, "clear"), earlier="怎么清理?") == "zh"
    assert command_language(Command(HELP), earlier="清理什么时候运行?", reader="en") == "en"
    assert command_language(Command(PERSONA, "你是老师"), reader="en") == "zh"
    assert command_language(Command(CLEAR)) is None
    assert command_language(Command(CLEAR), earlier="/persona clear") is None
    assert command_language(Command(CLEAR), earlier="/persona 你是老师") == "zh"
    assert command_language(Command(CommandName.REMEMBER, "我喜欢茶"), earlier="Hello", reader="en") == "zh"


def test_a_message_that_asks_for_a_command_in_plain_words_is_that_command() -> None:
    """Discriminates: a request followed by a question, which a model must answer."""
    assert plain_request("记住：我喜欢茶") == Command(CommandName.REMEMBER, "我喜欢茶")
    assert plain_request("forget my address") == Command(CommandName.FORGET, "my address")
    assert plain_request("请记住我喜欢茶。推荐一种？") is None
    assert plain_request("我喜欢茶") is None


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "a\0b", "x" * 11])
def test_a_persona_that_is_empty_too_long_or_contains_nul_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"^text: "):
        PersonaRules(max_chars=10).checked(text)


def test_a_persona_may_be_as_long_as_the_limit() -> None:
    assert PersonaRules(max_chars=10).checked("x" * 10) == "x" * 10


def test_a_persona_is_normalised_like_questions_and_held_to_the_token_limit() -> None:
    def refuse(text: str) -> None:
        if "long" in text:
            raise BadRequestError("text: too many tokens.")

    rules = PersonaRules(check=refuse)
    assert rules.checked(" a\r\nb\u2028\n\n\nc\ud800 ") == "a\nb\n\nc\ufffd"
    with pytest.raises(BadRequestError, match="tokens"):
        rules.checked("long")
