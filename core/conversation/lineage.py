"""Which stored turns a client's messages continue. Clients in OpenAI's form keep no ids: they send the whole
history with every question.

Every turn is stored with a mark, a hash of its question and its answer; a branch is recognised when its turns
have the marks of the history and follow each other by their parents. What clients change in a text on its way
there and back makes no difference to its mark (`core.conversation.turns.normalised`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from core.conversation.sessions import CommandName, parse_command
from core.conversation.turns import PastTurn, normalised, without_footer
from core.errors import BadRequestError
from core.images import SentImage
from core.text import Language, language_in, preprocess_question, scrub

NOTHING = "…"  # a question without text, such as an image alone
SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request's messages: `persona` is what its system messages say, `past` goes from the oldest on.
    `sent_images` are those of the question."""

    persona: str
    past: tuple[PastTurn, ...]
    question: str
    sent_images: tuple[SentImage, ...] = ()

    @property
    def language(self) -> Language:
        return language_in(self.question, [turn.question for turn in self.past])


@dataclass(frozen=True, slots=True)
class MarkedTurn:
    """A stored turn with a mark of the history. `answer` is that of a turn that was cut, None of others."""

    turn_id: str
    session_id: str
    parent_turn_id: str | None
    created_us: int
    marks: tuple[str, ...]
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Continued:
    """The deepest stored turn of a history, which has its first `depth` turns."""

    turn: MarkedTurn
    depth: int


def marks_of_history(past: Iterable[PastTurn]) -> list[str]:
    return [mark for turn in past for mark in (turn.mark, turn.question_mark)]


def continued(past: Sequence[PastTurn], stored: Collection[MarkedTurn]) -> Continued | None:
    """The deepest turn of `stored` at the end of a branch that has the turns of `past` from the first on; of
    several the one whose branch begins a session, that has the whole answer, that is the newest.

    A branch may begin in the middle of a session: clients with a small window leave the oldest turns out.
    """
    roots = {turn.turn_id for turn in stored if turn.parent_turn_id is None}
    best: Continued | None = None
    reached = {turn.turn_id: turn for turn in stored if past and _has(turn, past[0])}
    begins = {turn_id: turn_id in roots for turn_id in reached}
    for depth, at in enumerate(past, start=1):
        if not reached:
            break
        best = Continued(max(reached.values(), key=lambda turn: _rank(turn, at, begins)), depth)
        if depth < len(past):
            following = past[depth]
            next_ = [turn for turn in stored if turn.parent_turn_id in reached and _has(turn, following)]
            begins = {turn.turn_id: begins[turn.parent_turn_id or ""] for turn in next_}
            reached = {turn.turn_id: turn for turn in next_}
    return best


def _rank(turn: MarkedTurn, past: PastTurn, begins: dict[str, bool]) -> tuple[bool, bool, int, str]:
    return begins[turn.turn_id], past.mark in turn.marks, turn.created_us, turn.turn_id


def _has(turn: MarkedTurn, past: PastTurn) -> bool:
    if past.mark in turn.marks:
        return True
    cut_here = turn.answer is not None and past.question_mark in turn.marks
    return cut_here and normalised(turn.answer or "").startswith(normalised(past.answer))


def read_messages(messages: Iterable[tuple[str, str]]) -> Conversation:
    """From (role, text), in order. System messages are the persona; messages of one role in a row are one;
    what an assistant says before the first question is left out, and what stands before a /clear is.

    A client's order behind the last answer is the question, and no persona. Raises BadRequestError, which
    names the message, when the last one that counts is no user's.
    """
    spoken = [(role, scrub(text)) for role, text in messages]
    persona = "\n\n".join(filter(None, (text.strip() for role, text in spoken if role in SYSTEM_ROLES)))
    dialogue = [(role, text) for role, text in spoken if role in ("user", "assistant")]
    turns: list[PastTurn] = []
    last = ""
    for last, run in groupby(dialogue, key=itemgetter(0)):
        text = "\n\n".join(text for _, text in run if text)
        if last == "user":
            turns.append(PastTurn(preprocess_question(text), ""))
        elif turns:
            turns[-1] = replace(turns[-1], answer=without_footer(text))
    if spoken and spoken[-1][0] in SYSTEM_ROLES and _BRIEFLY.search(spoken[-1][1]):
        return Conversation("", tuple(turns), preprocess_question(spoken[-1][1]))
    if last != "user":
        raise BadRequestError("messages: the last message must be a user's.")
    question = turns.pop().question
    return Conversation(persona, _since_clear(turns), question)


def _since_clear(turns: Sequence[PastTurn]) -> tuple[PastTurn, ...]:
    clears = [at for at, turn in enumerate(turns) if _is_clear(turn.question)]
    since = turns[clears[-1] + 1 if clears else 0 :]
    return tuple(turn if turn.question else replace(turn, question=NOTHING) for turn in since)


def _is_clear(question: str) -> bool:
    command = parse_command(question)
    return command is not None and command.name is CommandName.CLEAR


# Prompts that chat clients send for themselves: a title, tags, follow-up questions. Known by their shape.
LOOKED_AT = 600  # characters at the beginning; what follows is the conversation that it is about

# Open WebUI's all begin with "### Task:" and end with the chat history; what else begins so is a question.
_TASK = re.compile(r"\s*### Task:\s")
_HISTORY = ("<chat_history>", "### Chat History:")
_COMPLETED = ("<type>", "<text>", "</text>")  # all three: what somebody types
# LibreChat, Open WebUI before, LobeChat, NextChat, Cherry Studio, ChatBox, Dify: an order about the chat.
_ORDERS = re.compile(
    r"^\W*(?:please )?(?:provide|generate|write|create|return) (?:an? |only )?"
    r"(?:concise|short|brief),? .{0,40}title (?:for|of|summariz\w+) (?:the|this|our) (?:conversation|chat)"
    r"|^\W*please generate a four to five word title summarizing our conversation"
    r"|^\W*based on the chat history, give this conversation a (?:name|title)"
    r"|^\W*使用四到五个字直接返回这句话的简要主题"
    r"|^\W*总结给出的会话，将其总结为"
    r"|^\W*you need to decompose the user's input into \W{0,2}subject\W{0,2} and \W{0,2}intention",
    re.IGNORECASE,
)
# The same, as the system message beside the conversation; Open WebUI's choice of tools, too.
_ROLES = re.compile(
    r"^\W*you are an assistant (?:who is )?skilled in conversation.{0,120}\btitle\b"
    r"|^\W*you are a professional conversation summarizer.{0,80}\btitle\b"
    r"|^\W*summarize the (?:given )?conversation into a title\b"
    r"|^\W*你是一名擅长会话的助理.{0,60}标题"
    r"|^\W*总结给出的会话，将其总结为"
    r"|^\s*available tools: ?\[",
    re.IGNORECASE | re.S,
)

# NextChat's, by which it shortens a long chat: a system message behind the last answer.
_BRIEFLY = re.compile(r"^\W*(?:summarize the discussion briefly in|简要总结一下对话内容)", re.IGNORECASE)


def is_housekeeping(system: str, question: str) -> bool:
    """Whether a client asks this, not a person."""
    if _TASK.match(question):
        return any(mark in question for mark in _HISTORY) or all(mark in question for mark in _COMPLETED)
    begins = question[:LOOKED_AT]
    return bool(_ORDERS.search(begins) or _BRIEFLY.search(begins) or _ROLES.search(system[:LOOKED_AT]))
