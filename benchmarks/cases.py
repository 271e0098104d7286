"""The benchmark cases: questions, load and answer shapes, and the protocols of the servers."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.client import Dialect
from benchmarks.stub_llm import Shape

STEADY = Shape(rate=50, tokens=100)
SHORT = Shape(rate=100, tokens=50)
LONG = Shape(rate=100, tokens=1_000)
FULL_SPEED = Shape(rate=0, tokens=1_000)


@dataclass(frozen=True, slots=True)
class Case:
    """`streams` concurrent streams, each asking `answers` questions one after the other.

    The streams start spread over `spread_s`, about the duration of an answer, to even out the load. Each
    question is a separate session; with `follow_ups` each stream is one session, whose first question is not
    timed. With `stored_turns` the stream continues a session that already has that many turns.
    """

    name: str
    streams: int
    answers: int
    shape: Shape
    spread_s: float = 2.0
    probe: bool = False
    follow_ups: bool = False
    stored_turns: int = 0

    @property
    def session_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.stored_turns}")) if self.stored_turns else ""


CASES = (
    Case("c1", 1, 10, STEADY),
    Case("c10", 10, 5, STEADY),
    Case("c50", 50, 3, STEADY, probe=True),
    Case("long", 10, 1, LONG),
    Case("flood", 10, 2, FULL_SPEED, spread_s=0.0),
    Case("c100", 100, 2, STEADY, probe=True),
    Case("c200", 200, 2, STEADY, probe=True),
    Case("c1 follow-ups", 1, 10, SHORT, follow_ups=True),
    Case("c50 follow-ups", 50, 4, STEADY, follow_ups=True, probe=True),
    *(Case(f"after {turns}", 1, 8, SHORT, follow_ups=True, stored_turns=turns) for turns in (10, 500, 5_000)),
)
QUICK_CASES = tuple(
    replace(
        case,
        answers=2 if case.streams == 1 or case.follow_ups else 1,
        shape=replace(case.shape, tokens=case.shape.tokens // 2),
    )
    for case in CASES
)

QUESTIONS = (
    "父子链是什么?",
    "How do I back the store up?",
    "怎样删除三十天以前的对话?",
    "Which file formats can be read?",
    "检索阈值是什么意思?",
    "How does the server decide which earlier turns matter?",
    "怎么连接自己的大模型?",
    "What happens when the connection breaks in the middle of an answer?",
    "更换嵌入模型以后要做什么?",
    "How can several workers share one Qdrant server?",
    "清理任务什么时候运行?",
    "Who may read the documents that I add?",
    "What does the SOURCE event contain?",
)


def _ours(question: str, session_id: str) -> bytes:
    return json.dumps({"question": question, **({"session_id": session_id} if session_id else {})}).encode()


def _openai(question: str, session_id: str, model: str = "stub") -> bytes:
    """OpenAI's protocol has no sessions. Our own /v1 finds one by the messages, of which this client keeps
    none."""
    messages = [{"role": "user", "content": question}]
    return json.dumps({"model": model, "stream": True, "messages": messages}).encode()


OURS = Dialect(
    path="/knowledge_chat_conversation",
    body=_ours,
    content=re.compile(rb"^data: CONTENT:(.*)$", re.M),
    done=b"data: DONE:",
    error=b"data: ERROR:",
    session=re.compile(rb"^data: SESSION:(.*)$", re.M),
)
RAW = Dialect(
    path="/v1/chat/completions",
    body=_openai,
    content=re.compile(rb'"content":"([^"]*)"'),
    done=b"data: [DONE]",
    error=b'data: {"error"',
)
DOOR = Dialect(
    path="/v1/chat/completions",
    body=partial(_openai, model="wenmai"),
    content=re.compile(rb'"content": "([^"]*)"'),
    done=b"data: [DONE]",
    error=b'data: {"error"',
)
DOOR_CASES = (
    Case("c1", 1, 12, SHORT),
    Case("long", 10, 1, LONG, spread_s=0.0),
)
