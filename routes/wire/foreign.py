"""What an export of another product would bring in."""

from __future__ import annotations

from pydantic import Field

from routes.wire.fields import Reply, example
from routes.wire.turns import SESSION_ID


class PlannedConversation(Reply):
    """One conversation of the export."""

    session_id: str = Field(description="The session that it is, or becomes.")
    title: str = Field(description="Its title.")
    turns: int = Field(description="Its turns.")
    fresh: int = Field(description="Those of them that are not stored yet.")
    branches: int = Field(description="Ends of branches.")
    persona: bool = Field(description="Whether it has a system prompt, which becomes its persona.")
    attachments: int = Field(description="Files that are named in it and not brought along.")
    orphans: int = Field(description="Messages whose parent is missing: each begins a branch.")
    left_out: int = Field(description="Messages that form a circle and cannot be brought in.")


class ForeignImport(Reply):
    """What an export would bring in, or brought in."""

    model_config = example(
        {
            "product": "ChatGPT",
            "applied": False,
            "conversations": [
                {
                    "session_id": SESSION_ID,
                    "title": "父子链",
                    "turns": 12,
                    "fresh": 12,
                    "branches": 2,
                    "persona": False,
                    "attachments": 1,
                    "orphans": 0,
                    "left_out": 0,
                }
            ],
        }
    )

    product: str = Field(description="Whose export it is.")
    applied: bool = Field(description="Whether it was brought in.")
    conversations: list[PlannedConversation] = Field(description="In the order of the file.")
