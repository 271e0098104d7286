"""What each turn of a session asked, in one line: read beside its tree, which is kept without texts."""

from __future__ import annotations

from qdrant_client import models

from services.turn_store import TurnStore, in_session

QUESTION_CHARS = 120


async def read_questions(turns: TurnStore, session_id: str, owner: str) -> dict[str, str]:
    """By turn id; a slash command as it was written. One whose question cannot be read is left out."""
    wanted = models.Filter(must=[*in_session(session_id, owner)])
    questions: dict[str, str] = {}
    async for record in turns.scroll(wanted, with_payload=["user_query"]):
        question = (record.payload or {}).get("user_query")
        if isinstance(question, str):
            questions[str(record.id)] = in_one_line(question)
    return questions


def in_one_line(text: str, chars: int = QUESTION_CHARS) -> str:
    """Its first characters, runs of white space as one space."""
    return " ".join(text.split(maxsplit=chars))[:chars].rstrip()
