"""What limits a search, its candidates stage by stage, and why a document was missed; and how a store's own
questions change what is sure."""

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
    """What POST /search takes."""

    model_config = example({"question": "父子链是什么？", "top_n": 5})

    question: str = Field(max_length=8_000, description="What is looked for.")
    top_n: int = Field(10, ge=1, le=50, description="How many candidates the model would be shown.")
    previous_questions: list[Annotated[PlainText, AtMost(8_000)]] = Field(
        [], max_length=MAX_PREVIOUS, description="What was asked before, oldest first."
    )
    last_answer: Annotated[PlainText, AtMost(100_000)] = Field("", description="To the last of them.")
    date: AskedDate = ""
    session_id: Uuid | None = Field(None, description="Instead: what was asked before is of this session.")
    parent_turn_id: Uuid | None = Field(
        None, description="Absent: below the session's latest completed turn; null: a new root."
    )
    model_id: str = Field("default", max_length=200, description="Whose window the passages must fit into.")
    document_id: Uuid | None = Field(None, description="Why was this document not found?")
    filters: FiltersBody | None = Field(None, description="Which documents may be found; absent: all.")


class Place(Reply):
    """A place in one list."""

    rank: int | None = Field(description="From 1; null: the list did not bring it.")
    score: float | None = Field(description="The list's own score.")


class Reranked(Reply):
    """What the reranker said."""

    rank: int = Field(description="From 1.")
    probability: float = Field(description="That it answers the question, 0 to 1.")


class Room(Reply):
    """Its room in the prompt."""

    index: int | None = Field(description="Its number in the prompt, from 1; null: there was no room.")
    tokens: int = Field(description="How many tokens it takes.")


class Candidate(Chunk):
    """A candidate with its rank and score at each stage; null where it did not come that far."""

    model_config = example(_CANDIDATE)

    dense: Place = Field(description="By meaning.")
    sparse: Place = Field(description="By words.")
    fused: Place = Field(description="Both together.")
    reranked: Reranked | None = Field(description="By the reranker.")
    budget: Room | None = Field(description="In the prompt.")
    probability: float = Field(description="That it answers the question, 0 to 1.")
    key_passage: str = Field(description="The part of it that says it, word for word.")
    kept: bool = Field(description="Whether the model would be shown it.")
    dropped_by: str | None = Field(description="The stage that dropped it; null: none did.")


class PlaceAmongAll(Reply):
    """A chunk's place in one list of the whole store."""

    rank: int | None = Field(description="From 1; null: beyond the first thousand.")
    score: float = Field(description="The list's own score.")
    last_score: float | None = Field(description="That of the last one that got further.")
    kept: bool = Field(description="Whether it got further.")


class ChunkPlaces(Chunk):
    """How far one chunk of the document came; null where it did not come that far."""

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

    dense: PlaceAmongAll | None = Field(description="By meaning.")
    sparse: PlaceAmongAll | None = Field(description="By words.")
    fused: Place | None = Field(description="Both together.")
    reranked: Reranked | None = Field(description="By the reranker.")
    budget: Room | None = Field(description="In the prompt.")
    stage: str = Field(description="How far it came.")
    alone_probability: float | None = Field(description="That it answers, judged without all others.")
    key_passage: str = Field(description="The part of it that says most, word for word.")


class DocumentPlaces(Reply):
    """How far a document came, and what stood in its way."""

    document_id: str = Field(description="The document.")
    file_name: str = Field(description="Its name.")
    status: DocumentStatus = Field(description="Whether it is searched at all.")
    error: str | None = Field(description="Why it could not be read.")
    stage: str = Field(description="How far its best chunk came; shown: all the way.")
    message: str = Field(description="What to try, in one sentence.")
    chunks: list[ChunkPlaces] = Field(description="Its best chunks first.")


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

    candidates: list[Candidate] = Field(description="Best first.")
    reranker: str = Field(description="The reranker that judged.")
    fell_back: bool = Field(description="true: another one is configured, and did not answer.")
    sample_left_out: bool = Field(
        description="true: the guide that came with Wenmai was not searched beside your own documents."
    )
    document: DocumentPlaces | None = absent("With `document_id`: how far that document came.")


class KnownQuestion(WireModel):
    """A question, and words of the passages that answer it; none: nothing in the documents does."""

    question: str = Field(min_length=1, max_length=8_000, description="As people ask it.")
    passage: list[Annotated[PlainText, AtMost(2_000)]] = Field(
        [], max_length=20, description="Words as they stand in a passage that answers, or in several."
    )


class CalibrationBody(WireModel):
    """What POST /admin/calibration takes."""

    model_config = example(
        {"questions": [{"question": "How many days of leave?", "passage": ["25 days"]}]}, {"ratings": True}
    )

    questions: list[KnownQuestion] = Field([], max_length=1_000, description="With what answers them.")
    ratings: bool = Field(
        False, validate_default=True, description="Instead of questions: the answers that readers rated."
    )

    @field_validator("ratings")
    @classmethod
    def _either(cls, ratings: bool, info: ValidationInfo) -> bool:
        if ratings == bool(info.data.get("questions")):
            raise PydanticCustomError("either", "give `questions`, or `ratings`: true, and not both")
        return ratings


class Calibration(Reply):
    """Of a logit of a probability: slope × logit + shift. 1 and 0 change nothing."""

    model_config = example(_CALIBRATION)

    slope: float = Field(description="What the logit is multiplied by.")
    shift: float = Field(description="What is added then.")
    questions: int = Field(description="How many questions, or rated answers, it was made from.")
    made_at: MaybeMoment = Field(description="When it was made; null: the store is not calibrated.")


class Verdicts(Reply):
    """How many answers would be of each kind."""

    sure: int = Field(description="Sure.")
    closest: int = Field(description="Only the closest passage.")
    refused: int = Field(description="Nothing found.")


class Change(Reply):
    """The same questions, with the calibration in force and with the new one."""

    before: Verdicts = Field(description="With the one in force.")
    after: Verdicts = Field(description="With the new one.")


class CalibrationReport(Reply):
    """A calibration, and what becomes of the questions it was made from."""

    model_config = example(
        {"calibration": _CALIBRATION, "dry_run": True, "answered": _CHANGE, "unanswered": _CHANGE}
    )

    calibration: Calibration = Field(description="The new one.")
    dry_run: bool = Field(description="true: it was not kept.")
    answered: Change = Field(description="Questions that their best passage answers.")
    unanswered: Change = Field(description="Questions that it does not answer.")
