"""Prompts that chat clients send for themselves: a title, tags, follow-up questions. They are known by their
shape, and are no question of anybody's."""

from __future__ import annotations

import re

LOOKED_AT = 600  # characters at the beginning; what follows is the conversation that it is about

# Open WebUI's all begin with "### Task:" and end with the chat history; what else begins so is a question.
_TASK = re.compile(r"\s*### Task:\s")
_HISTORY = re.compile(r"<chat_history>|### Chat History:|<text>.*</text>", re.S)
# LibreChat, Open WebUI before, LobeChat, NextChat, Cherry Studio, ChatBox: an order about this conversation.
_ORDERS = re.compile(
    r"^\W*(?:please )?(?:provide|generate|write|create|return) (?:an? |only )?"
    r"(?:concise|short|brief),? .{0,40}title (?:for|of|summariz\w+) (?:the|this|our) (?:conversation|chat)"
    r"|^\W*please generate a four to five word title summarizing our conversation"
    r"|^\W*based on the chat history, give this conversation a (?:name|title)"
    r"|^\W*使用四到五个字直接返回这句话的简要主题"
    r"|^\W*总结给出的会话，将其总结为",
    re.IGNORECASE,
)
_ROLES = re.compile(
    r"^\W*you are an assistant (?:who is )?skilled in conversation.{0,120}\btitle\b"
    r"|^\W*你是一名擅长会话的助理.{0,60}标题",
    re.IGNORECASE | re.S,
)


def is_housekeeping(system: str, question: str) -> bool:
    """Whether a client asks this, not a person."""
    if _TASK.match(question):
        return _HISTORY.search(question) is not None
    return bool(_ORDERS.search(question[:LOOKED_AT]) or _ROLES.search(system[:LOOKED_AT]))
