"""What an agent can do: ask, search, read, recall. Each tool has a model of its input and one of its output,
and knows nothing of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.container import Container
from api.search.handler import SearchRequest
from core.conversation.turns import AskedWith, TurnRequest
from core.errors import UnavailableError, UnreadableDocumentError, WenmaiError
from core.knowledge import Chunk, Document, DocumentStatus
from routes.dependencies import readable
from routes.stream import WholeTurn, events_of
from routes.wire.chat import Answer
from routes.wire.fields import AskedDate, FiltersBody, PlainText, Uuid, filter_of, text_of

MAX_CHUNKS = 200  # per page of an outline
Progress = Callable[[int, str], Awaitable[None]]
"""Called with the answer's length so far in characters, and its latest piece."""


class ToolInput(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ToolOutput(BaseModel):
    model_config = ConfigDict(protected_namespaces=())


class AskInput(ToolInput):
    question: PlainText = Field(description="The question, in any language.")
    session_id: Uuid | None = Field(None, description="The session to continue; absent: a new one.")
    knowledge: Literal["auto", "always", "never"] = Field(
        "auto", description="Whether to search the documents."
    )
    filters: FiltersBody | None = Field(None, description="Which documents may be used.")
    date: AskedDate = ""


class SearchInput(ToolInput):
    query: PlainText = Field(description="What to search for.")
    top_n: int = Field(10, ge=1, le=50, description="The maximum number of passages.")
    filters: FiltersBody | None = Field(None, description="Which documents to search.")


class Passage(ToolOutput):
    document_id: str
    chunk_id: str
    file_name: str
    heading: str
    page: int | None
    text: str
    score: float | None = Field(None, description="Probability that it is relevant; null if not searched.")


class Passages(ToolOutput):
    passages: list[Passage]


class ReadInput(ToolInput):
    document_id: Uuid = Field(description="The document.")
    chunk_id: Uuid | None = Field(None, description="One of its passages; absent: the document's outline.")
    before: int = Field(1, ge=0, le=10, description="Passages before it.")
    after: int = Field(1, ge=0, le=10, description="Passages after it.")
    cursor: str | None = Field(
        None, max_length=100, description="Continues an outline: `next` of the previous page."
    )


class OutlineEntry(ToolOutput):
    chunk_id: str
    heading: str
    page: int | None
    begins: str = Field(description="Its first words.")


class ReadOutput(ToolOutput):
    file_name: str
    passages: list[Passage] = Field(description="The passage and those around it, in order.")
    outline: list[OutlineEntry] = Field(description="Without a chunk_id: all passages of the document.")
    next: str | None = Field(None, description="The cursor of the next page of the outline.")


class RecallInput(ToolInput):
    query: PlainText = Field(description="What the earlier turns were about.")
    top_n: int = Field(5, ge=1, le=20, description="The maximum number of turns.")


class RecalledTurn(ToolOutput):
    turn_id: str
    session_id: str
    question: str
    answer: str
    timestamp: str
    score: float = Field(description="Probability that it is relevant.")


class RecallOutput(ToolOutput):
    turns: list[RecalledTurn]


async def ask(container: Container, owner: str, sent: AskInput, progress: Progress) -> Answer:
    """Also raises WenmaiError, with the stream's message, when the turn ends in an error."""
    request = TurnRequest(
        question=sent.question,
        owner=owner,
        session_id=text_of(sent.session_id),
        how=AskedWith(knowledge=sent.knowledge, date=sent.date),
        filters=filter_of(sent.filters),
        cancelled_when_left=True,
    )
    stream = await container.chat.begin_turn(request)
    whole = WholeTurn()
    with container.chat.reader_slot(owner):
        async with aclosing(events_of(stream)) as batches:
            async for batch in batches:
                for event in batch:
                    whole.add(event)
                if piece := whole.newest_text():
                    await progress(whole.length, piece)
    answer = whole.answer()
    if answer.error is not None:
        raise WenmaiError(answer.error.message)
    return answer


async def search(container: Container, owner: str, sent: SearchInput, progress: Progress) -> Passages:
    request = SearchRequest(sent.query, owner, top_n=sent.top_n, filters=filter_of(sent.filters))
    report = await container.search.search(request)
    shown = [each for each in report.candidates if each.index is not None]
    return Passages(passages=[_passage(each.candidate.chunk, each.candidate.probability) for each in shown])


async def read(container: Container, owner: str, sent: ReadInput, progress: Progress) -> ReadOutput:
    document_id, owners = str(sent.document_id), readable(owner)
    document = await ready_document(container, document_id, owners)
    if sent.chunk_id is None:
        page = await container.knowledge.chunks(document_id, owners, MAX_CHUNKS, sent.cursor)
        outline = [_entry(chunk) for chunk in page.chunks]
        return ReadOutput(file_name=document.file_name, passages=[], outline=outline, next=page.next_cursor)
    around = await container.search.chunk_in_place(
        document_id, str(sent.chunk_id), owners, before=sent.before, after=sent.after, section=False
    )
    passages = [_passage(chunk) for chunk in (*around.before, around.chunk, *around.after)]
    return ReadOutput(file_name=document.file_name, passages=passages, outline=[])


async def ready_document(container: Container, document_id: str, owners: Sequence[str]) -> Document:
    """Raises UnavailableError while it is ingested and UnreadableDocumentError if that failed: it would look
    empty."""
    document = await container.knowledge.get_document(document_id, owners)
    if document.status is DocumentStatus.INGESTING:
        raise UnavailableError(f"{document.file_name} is still being ingested. Read it again soon.")
    if document.status is DocumentStatus.FAILED:
        raise UnreadableDocumentError(f"{document.file_name} could not be ingested: {document.error}")
    return document


async def recall(container: Container, owner: str, sent: RecallInput, progress: Progress) -> RecallOutput:
    remembered = await container.search.recall(sent.query, owner, sent.top_n)
    return RecallOutput(
        turns=[
            RecalledTurn(
                turn_id=each.turn.turn_id,
                session_id=each.turn.session_id,
                question=each.turn.question,
                answer=each.turn.answer,
                timestamp=each.turn.timestamp,
                score=round(each.chance, 3),
            )
            for each in remembered
        ]
    )


@dataclass(frozen=True, slots=True)
class Tool:
    """`run` takes the container, the owner, the input, and a progress callback."""

    name: str
    title: str
    description: str
    takes: type[ToolInput]
    gives: type[BaseModel]
    run: Callable[[Container, str, Any, Progress], Awaitable[BaseModel]]
    read_only: bool = True


TOOLS = (
    Tool(
        "ask",
        "Ask",
        "Answer a question from the documents, with citations. The turn is stored; send its session_id "
        "with the next question to continue the conversation.",
        AskInput,
        Answer,
        ask,
        read_only=False,
    ),
    Tool("search", "Search", "Find passages in the documents, best first.", SearchInput, Passages, search),
    Tool(
        "read",
        "Read",
        "Read a passage with those around it, or, without a chunk_id, a document's outline.",
        ReadInput,
        ReadOutput,
        read,
    ),
    Tool("recall", "Recall", "Find earlier turns of all conversations.", RecallInput, RecallOutput, recall),
)


def _passage(chunk: Chunk, probability: float | None = None) -> Passage:
    return Passage(**asdict(chunk), score=None if probability is None else round(probability, 3))


def _entry(chunk: Chunk) -> OutlineEntry:
    begins = " ".join(chunk.text.split())[:80]
    return OutlineEntry(**asdict(chunk), begins=begins)
