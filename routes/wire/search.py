"""A search's inputs, its candidates stage by stage, and why a document was missed; and the calibration of
probabilities."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from core.knowledge import DocumentStatus
from routes.wire.documents import CHUNK, Chunk
from routes.wire.fields import (
    AskedDate,
    AtMost,
    FiltersBody,
    MaybeMoment,
    PlainText,
    Reply,
    Uuid,
    WireModel,
    absent,
    example,
)
from routes.wire.turns import DOCUMENT_ID

MAX_PREVIOUS = 10

_STAGES = {
    "dense": {"rank": 1, "score": 0.87},
    "sparse": {"rank": None, "score": None},
    "fused": {"rank": 1, "score": 0.016},
    "reranked": {"rank": 1, "probability": 0.93},
    "budget": {"index": 1, "tokens": 120},
}


_CANDIDATE = {
    **CHUNK,
    **_STAGES,
    "probability": 0.93,
    "key_passage": "Each turn names its parent.",
    "kept": True,
    "dropped_by": None,
}


_CALIBRATION = {"slope": 1.2, "shift": -0.8, "questions": 20, "made_at": None}
_CHANGE = {
    "before": {"sure": 4, "closest": 6, "refused": 0},
    "after": {"sure": 8, "closest": 2, "refused": 0},
}


class SearchBody(WireModel):
    """The request body of POST /search."""

    model_config = example({"question": "父子链是什么？", "top_n": 5})

    question: str = Field(max_length=8_000, description="What to search for.")
    top_n: int = Field(10, ge=1, le=50, description="How many candidates would be shown to the model.")
    previous_questions: list[Annotated[PlainText, AtMost(8_000)]] = Field(
        [], max_length=MAX_PREVIOUS, description="Earlier questions, oldest first."
    )
    last_answer: Annotated[PlainText, AtMost(100_000)] = Field("", description="The answer to the last one.")
    date: AskedDate = ""
    session_id: Uuid | None = Field(None, description="Take the earlier questions from this session instead.")
    parent_turn_id: Uuid | None = Field(
        None, description="The parent turn; absent: the session's latest completed one; null: a new root."
    )
    model_id: str = Field("default", max_length=200, description="The passages must fit this model's window.")
    document_id: Uuid | None = Field(None, description="Explain why this document was not found.")
    filters: FiltersBody | None = Field(None, description="Which documents to search; absent: all.")


class Place(Reply):
    """A rank in one list."""

    rank: int | None = Field(description="The rank, from 1; null: not in the list.")
    score: float | None = Field(description="The score in this list.")


class Reranked(Reply):
    """The reranker's result."""

    rank: int = Field(description="The rank, from 1.")
    probability: float = Field(description="Probability that it answers the question, 0 to 1.")


class Room(Reply):
    """A candidate's place in the prompt."""

    index: int | None = Field(description="The citation number in the prompt, from 1; null: no room.")
    tokens: int = Field(description="The candidate's length in tokens.")


class Candidate(Chunk):
    """A candidate with its rank and score at each stage; null for stages it did not reach."""

    model_config = example(_CANDIDATE)

    dense: Place = Field(description="Rank and score in the search by meaning.")
    sparse: Place = Field(description="Rank and score in the search by words.")
    fused: Place = Field(description="Rank and score after fusing both.")
    reranked: Reranked | None = Field(description="Rank and probability after reranking.")
    budget: Room | None = Field(description="Its place in the prompt.")
    probability: float = Field(description="Probability that it answers the question, 0 to 1.")
    key_passage: str = Field(description="The part of the chunk that answers, verbatim.")
    kept: bool = Field(description="Whether the candidate would be shown to the model.")
    dropped_by: str | None = Field(description="The stage that dropped the candidate; null: none.")


class PlaceAmongAll(Reply):
    """A chunk's rank in one list over the whole store."""

    rank: int | None = Field(description="The rank, from 1; null: beyond the first thousand.")
    score: float = Field(description="The score in this list.")
    last_score: float | None = Field(description="The score of the last chunk that got further.")
    kept: bool = Field(description="Whether the chunk got further.")


class ChunkPlaces(Chunk):
    """How far one chunk of the document got; null for stages it did not reach."""

    model_config = example(
        {
            **CHUNK,
            **_STAGES,
            "dense": {"rank": 30, "score": 0.81, "last_score": 0.83, "kept": False},
            "sparse": None,
            "stage": "fusion",
            "alone_probability": 0.4,
            "key_passage": "Each turn names its parent.",
        }
    )

    dense: PlaceAmongAll | None = Field(description="Rank and score in the search by meaning.")
    sparse: PlaceAmongAll | None = Field(description="Rank and score in the search by words.")
    fused: Place | None = Field(description="Rank and score after fusing both.")
    reranked: Reranked | None = Field(description="Rank and probability after reranking.")
    budget: Room | None = Field(description="Its place in the prompt.")
    stage: str = Field(description="How far the chunk got.")
    alone_probability: float | None = Field(description="Probability that the chunk answers, judged alone.")
    key_passage: str = Field(description="The most relevant part of the chunk, verbatim.")


class DocumentPlaces(Reply):
    """How far a document got, and what stopped it."""

    document_id: str = Field(description="The document's id.")
    file_name: str = Field(description="The document's name.")
    status: DocumentStatus = Field(description="The document's status; only ready documents are searched.")
    error: str | None = Field(description="Why the document could not be read.")
    stage: str = Field(description="How far the document's best chunk got; shown: into the prompt.")
    message: str = Field(description="What to try, in one sentence.")
    chunks: list[ChunkPlaces] = Field(description="The document's best chunks, best first.")


class SearchResult(Reply):
    """Every candidate of a search."""

    model_config = example(
        {
            "candidates": [_CANDIDATE],
            "reranker": "calibrated",
            "fell_back": False,
            "sample_left_out": False,
            "document": {
                "document_id": DOCUMENT_ID,
                "file_name": "guide.md",
                "status": "ready",
                "error": None,
                "stage": "shown",
                "message": "It is among what the model is shown.",
                "chunks": [],
            },
        }
    )

    candidates: list[Candidate] = Field(description="The candidates, best first.")
    reranker: str = Field(description="The reranker that scored the candidates.")
    fell_back: bool = Field(description="true: another reranker is configured but did not answer.")
    sample_left_out: bool = Field(
        description="true: Wenmai's own guide was not searched, because you have documents of your own."
    )
    document: DocumentPlaces | None = absent("With `document_id`: how far that document got.")


class KnownQuestion(WireModel):
    """A question, and text from the passages that answer it; without any, no document answers it."""

    question: str = Field(min_length=1, max_length=8_000, description="The question, as people ask it.")
    passage: list[Annotated[PlainText, AtMost(2_000)]] = Field(
        [], max_length=20, description="Text quoted from one or more passages that answer it."
    )


class CalibrationBody(WireModel):
    """The request body of POST /admin/calibration."""

    model_config = example(
        {"questions": [{"question": "How many days of leave?", "passage": ["25 days"]}]}, {"ratings": True}
    )

    questions: list[KnownQuestion] = Field([], max_length=1_000, description="Questions and their answers.")
    ratings: bool = Field(
        False, validate_default=True, description="Instead of questions: use the answers that readers rated."
    )

    @field_validator("ratings")
    @classmethod
    def _either(cls, ratings: bool, info: ValidationInfo) -> bool:
        if ratings == bool(info.data.get("questions")):
            raise PydanticCustomError("either", "give `questions`, or `ratings`: true, and not both")
        return ratings


class Calibration(Reply):
    """Maps the logit of a probability to slope × logit + shift. 1 and 0 change nothing."""

    model_config = example(_CALIBRATION)

    slope: float = Field(description="The factor of the logit.")
    shift: float = Field(description="The offset added to it.")
    questions: int = Field(description="How many questions, or rated answers, the calibration was fitted to.")
    made_at: MaybeMoment = Field(description="When it was made; null: the store is not calibrated.")


class Verdicts(Reply):
    """How many answers there would be of each kind."""

    sure: int = Field(description="Answers that are certain.")
    closest: int = Field(description="Answers that only show the closest passage.")
    refused: int = Field(description="Questions without a result.")


class Change(Reply):
    """The verdicts under the calibration in force and under the new one."""

    before: Verdicts = Field(description="Verdicts under the calibration in force.")
    after: Verdicts = Field(description="Verdicts under the new one.")


class CalibrationReport(Reply):
    """A calibration, and its effect on the questions it was fitted to."""

    model_config = example(
        {"calibration": _CALIBRATION, "dry_run": True, "answered": _CHANGE, "unanswered": _CHANGE}
    )

    calibration: Calibration = Field(description="The new calibration.")
    dry_run: bool = Field(description="true: the new calibration was not stored.")
    answered: Change = Field(description="Questions whose best passage answers them.")
    unanswered: Change = Field(description="Questions whose best passage does not.")
