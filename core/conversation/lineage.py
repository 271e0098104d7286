"""Find the stored turns that a client's messages continue. Clients in OpenAI's form keep no ids: they send
the whole history with every question.

Every turn is stored with a mark, a hash of its question and answer; a branch is recognised if its turns have
the marks of the history and are linked by their parents. What clients change in a text in transit does not
affect its mark (`core.conversation.turns.normalised`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from core.conversation.sessions import CommandName, parse_command
from core.conversation.turns import PastTurn, normalised, without_footer
from core.errors import BadRequestError
from core.images import SentImage
from core.prompt.fence import with_own_links
from core.text import Language, language_in, preprocess_question, scrub

# Open WebUI's, for its tools: the files of a message, before the person's text.
_FILES = re.compile(r"^<attached_files>\n(?:<file [^\n]*/>\n)+</attached_files>\n*", re.M)
NOTHING = "…"  # a question without text, such as an image alone
SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request's messages: `persona` is the text of its system messages, `past` are the turns since the last
    /clear, oldest first, and `cleared` those that it cleared. `sent_images` are the question's, `attached` is
    what a client sent along with it."""

    persona: str
    past: tuple[PastTurn, ...]
    question: str
    sent_images: tuple[SentImage, ...] = ()
    attached: str = ""
    cleared: tuple[PastTurn, ...] = ()

    @property
    def language(self) -> Language:
        return language_in(self.question, [turn.question for turn in self.past])


@dataclass(frozen=True, slots=True)
class MarkedTurn:
    """A stored turn with a mark of the history. `answer` is set only if the turn was cut."""

    turn_id: str
    session_id: str
    parent_turn_id: str | None
    created_us: int
    marks: tuple[str, ...]
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Continued:
    """The deepest stored turn that matches a history, namely its first `depth` turns."""

    turn: MarkedTurn
    depth: int


def marks_of_history(past: Iterable[PastTurn]) -> list[str]:
    marks = [mark for turn in past for mark in (turn.mark, turn.question_mark)]
    return marks + [each.mark for turn in past for each in turn.unquoted]


def as_stored(past: Iterable[PastTurn], stored: Iterable[MarkedTurn]) -> list[PastTurn]:
    """Remove the thinking that a client quotes before an answer, if the rest identifies a stored turn."""
    known = {mark for turn in stored for mark in turn.marks}
    return [next((each for each in (turn, *turn.unquoted) if each.mark in known), turn) for turn in past]


def continued(past: Sequence[PastTurn], stored: Collection[MarkedTurn]) -> Continued | None:
    """Return the deepest turn in `stored` that ends a branch matching `past` from its start; of several,
    prefer the one whose branch begins a session, then the one with the whole answer, then the newest.

    A branch may begin in the middle of a session: clients with a small window omit the oldest turns.
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
    read = (past, *past.unquoted) if cut_here else ()
    return any(normalised(turn.answer or "").startswith(normalised(each.answer)) for each in read)


def read_messages(messages: Iterable[tuple[str, str]]) -> Conversation:
    """Read (role, text) pairs, in order. System messages are the persona; consecutive messages of one role
    are joined; an assistant's text before the first question is dropped.

    A client's instruction after the last answer is the question, not a persona. Raises BadRequestError, which
    names the message, if the last one that counts is not a user's.
    """
    spoken = [(role, scrub(text)) for role, text in messages]
    persona = "\n\n".join(filter(None, (text.strip() for role, text in spoken if role in SYSTEM_ROLES)))
    dialogue = [(role, text) for role, text in spoken if role in ("user", "assistant")]
    turns: list[PastTurn] = []
    last = ""
    for last, run in groupby(dialogue, key=itemgetter(0)):
        text = "\n\n".join(text for _, text in run if text)
        if last == "user":
            turns.append(PastTurn(preprocess_question(_FILES.sub("", text)), ""))
        elif turns:
            turns[-1] = replace(turns[-1], answer=with_own_links(without_footer(text)))
    if spoken and spoken[-1][0] in SYSTEM_ROLES and _SUMMARISE.search(spoken[-1][1]):
        return Conversation("", tuple(turns), preprocess_question(spoken[-1][1]))
    if last != "user":
        raise BadRequestError("messages: the last message must be a user's.")
    question = turns.pop().question
    *earlier, past = _between_clears(turns)
    cleared = next(filter(None, reversed(earlier)), [])
    return Conversation(persona, tuple(past), question, cleared=tuple(cleared))


def filtered(past: Sequence[PastTurn], question_filter: Callable[[str], str]) -> tuple[PastTurn, ...]:
    """Apply the deployment's own filter to the questions, as for storage; it may refuse one."""
    return tuple(replace(turn, question=question_filter(turn.question)) for turn in past)


def _between_clears(turns: Sequence[PastTurn]) -> list[list[PastTurn]]:
    stretches: list[list[PastTurn]] = [[]]
    for turn in turns:
        if _is_clear(turn.question):
            stretches.append([])
        else:
            stretches[-1].append(turn if turn.question else replace(turn, question=NOTHING))
    return stretches


def _is_clear(question: str) -> bool:
    command = parse_command(question)
    return command is not None and command.name is CommandName.CLEAR


# Open WebUI's text around an attached file or the results of a web search, before the question; older
# versions repeat the question in it, and put it into the system message. Its source numbers are removed: our
# passages have their own.
_TASK_OF_TEMPLATE = "Respond to the user query using the provided context"
_TEMPLATE = re.compile(rf"^### Task:\s+{_TASK_OF_TEMPLATE}\b", re.M)
_OPENED = re.compile(r"<context>\s*(?=<source\b)")
_CLOSED = re.compile(r"</source>(?=\s*(</context>))")
_QUERY = re.compile(r"\s*<user_query>(.*?)</user_query>", re.S)
_NUMBERED = re.compile(r'(<source) id="\d+"|<source_id>\d+</source_id>')


def with_attached_apart(conversation: Conversation) -> Conversation:
    """Separate the question as the person wrote it from what Open WebUI put around it. Nothing else is split,
    and nothing if no question would be left."""
    in_question, in_persona = _split_template(conversation.question), _split_template(conversation.persona)
    if in_question is not None and (question := in_question.rest or in_question.query):
        return replace(conversation, question=question, attached=in_question.attached)
    if in_persona is not None:
        return replace(conversation, persona=in_persona.rest, attached=in_persona.attached)
    return conversation


@dataclass(frozen=True, slots=True)
class _SplitTemplate:
    """`query` is the question as repeated in the text around it."""

    attached: str
    query: str
    rest: str


def _split_template(text: str) -> _SplitTemplate | None:
    if _TASK_OF_TEMPLATE not in text:  # fast even for millions of characters
        return None
    template = _TEMPLATE.search(text)
    opened = template and _OPENED.search(text, template.end())
    closed = deque(_CLOSED.finditer(text, opened.end()) if opened else (), maxlen=1)
    if not template or not opened or not closed:
        return None
    starts, ends = template.start(), closed[0].end(1)
    again = text.find(text[starts : opened.end()], opened.end())  # each part of a message repeats it
    if again > 0 and text[again:ends] == text[starts : starts + ends - again]:
        return _split_template(text[:starts] + text[starts + ends - again :])
    query = _QUERY.match(text, ends)
    rest = text[:starts] + text[query.end() if query else ends :]
    attached = _NUMBERED.sub(lambda number: number[1] or "", text[opened.end() : closed[0].end()])
    return _SplitTemplate(attached, query[1].strip() if query else "", rest.strip())


# Prompts that chat clients send on their own: a title, tags, follow-up questions. Recognised by their form.
SCANNED_CHARS = 600  # characters at the beginning or end; the rest is the conversation it is about

# Open WebUI's all begin with "### Task:" and end with the chat history; anything else that begins so is a
# question.
_TASK = re.compile(r"\s*### Task:\s")
_HISTORY = ("<chat_history>", "### Chat History:", "### Messages Being Compacted:")
_COMPLETED = ("<type>", "<text>", "</text>")  # all three: the text being typed
# LibreChat, older Open WebUI, LobeChat, NextChat, Cherry Studio, ChatBox, Dify: an instruction about the
# chat.
_ORDERS = re.compile(
    r"^\W*(?:please )?(?:provide|generate|write|create|return) (?:an? |only )?"
    r"(?:concise|short|brief),? .{0,40}title (?:for|of|summariz\w+) (?:the|this|our) (?:conversation|chat)"
    r"|^\W*please generate a four to five word title summarizing our conversation"
    r"|^\W*based on the chat history, give this conversation a (?:name|title)"
    r"|^\W*(?:使用四到五个字)?直接返回这句话的简要主题"
    r"|^\W*(?:使用四到五個字)?直接返回這句話的簡要主題"
    r"|^\W*总结给出的会话，将其总结为"
    r"|^\W*you need to decompose the user's input into \W{0,2}subject\W{0,2} and \W{0,2}intention"
    r"|^\W*you are asked to generate a concise chat title by decomposing the user"
    r"|^\W*your task is to reflect the speaker's likely facial expression through a fitting emoji"
    r"|^\W*you have been provided with a set of responses from various models to the latest user query",
    re.IGNORECASE,
)
# Dify's, for suggested questions, comes after the conversation.
_NEXT = re.compile(r"please (?:help me )?predict the three most likely .{0,500}\nquestions:\Z", re.I | re.S)
# The same, as the system message of the conversation; also Open WebUI's choice of tools.
_ROLES = re.compile(
    r"^\W*you are an assistant (?:who is )?skilled in conversation.{0,120}\btitle\b"
    r"|^\W*you are a professional conversation summarizer.{0,80}\btitle\b"
    r"|^\W*summarize the (?:given )?conversation into a title\b"
    r"|^\W*你是一名擅长会话的助理.{0,60}标题"
    r"|^\W*总结给出的会话，将其总结为"
    r"|^\s*available tools: ?\["
    r"|^\W*you're an assistant who's good at extracting key takeaways from conversations"
    r"|^\W*you are a conversation context compressor\b"
    r"|^\W*summarize the conversation for future reference\.\s+requirements:"
    r"|^\W*you are a sidecar that extracts 0-4 quick-reply suggestions"
    r"|^\W*given the following conversation and a follow-up question, rephrase the follow up question",
    re.IGNORECASE | re.S,
)

# NextChat's, to compress a long chat: a system message after the last answer.
_SUMMARISE = re.compile(
    r"^\W*(?:summarize the discussion briefly in|简要总结一下(?:对话内容|你和用户的对话)"
    r"|簡要總結一下(?:對話內容|你和(?:使用者|用戶)的對話))",
    re.IGNORECASE,
)


def is_housekeeping(system: str, question: str) -> bool:
    """Whether this comes from the client itself, not from a person."""
    if _TASK.match(question):
        return any(mark in question for mark in _HISTORY) or all(mark in question for mark in _COMPLETED)
    begins = question[:SCANNED_CHARS]
    asks = _ORDERS.search(begins) or _SUMMARISE.search(begins) or _NEXT.search(question[-SCANNED_CHARS:])
    return bool(asks or _ROLES.search(system[:SCANNED_CHARS]))
