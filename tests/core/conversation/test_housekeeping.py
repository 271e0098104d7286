"""What chat clients ask for themselves, by the beginnings that they are known by."""

from __future__ import annotations

import pytest

from core.conversation.lineage import is_housekeeping

HISTORY = (
    "\n### Chat History:\n<chat_history>\nUSER: How much leave?\nASSISTANT: Fifteen days.\n</chat_history>"
)
CHERRY = "You are an assistant skilled in conversation. You need to summarize the conversation into a title"
CLIENTS = (
    (
        "",
        "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history." + HISTORY,
    ),
    ("", "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history." + HISTORY),
    ("", "### Task:\nSuggest 3-5 relevant follow-up questions or prompts." + HISTORY),
    ("", "### Task:\nAnalyze the chat history to determine the necessity of search queries." + HISTORY),
    (
        "",
        "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. "
        "Only return the title itself.\n\nConversation:\nUser: Hi",
    ),
    ("", "Please generate a concise, 5-word-or-less title for the conversation, using its same language"),
    ("", "Please generate a four to five word title summarizing our conversation without any lead-in"),
    ("", "Based on the chat history, give this conversation a name.\nKeep it short"),
    ("", "使用四到五个字直接返回这句话的简要主题，不要解释、不要标点"),
    ("你是一名擅长会话的助理，你需要将用户的会话总结为 10 个字以内的标题", "user: 年假有几天？"),
    (CHERRY, "[{'role': 'user'}]"),
)
PEOPLE = (
    ("", "### Task:\nSummarize the leave policy for new employees."),
    ("", "Which title does the handbook have?"),
    ("", "Generate a title for my presentation about the chat of whales."),
    ("", "Please generate a concise summary of the conversation rules in the handbook."),
    ("You are an assistant of the title department.", "How many days of leave?"),
    ("", "总结给我听：年假有几天？"),
)


@pytest.mark.parametrize(("system", "question"), CLIENTS)
def test_a_clients_own_prompt_is_known(system: str, question: str) -> None:
    assert is_housekeeping(system, question)


@pytest.mark.parametrize(("system", "question"), PEOPLE)
def test_a_persons_question_is_none(system: str, question: str) -> None:
    assert not is_housekeeping(system, question)
