"""The shapes of the earlier chat system's door, POST /api/v1/chat."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from routes.wire.fields import PlainText, Reply, Uuid, WireModel, example
from routes.wire.turns import SESSION_ID, TURN_ID


class EarlierChatBody(WireModel):
    """What POST /api/v1/chat takes."""

    model_config = example({"message": "父子链是什么？", "session_id": SESSION_ID})

    message: PlainText = Field(
        description="What is asked; 1 to MAX_QUESTION_CHARS characters after trimming."
    )
    session_id: Uuid | None = Field(None, description="The session to continue; absent: a new one.")


class EarlierEvent(Reply):
    """The data of one event: `session_created` once, first, of a new session; `thinking` and `text` as they
    come; `done` once, last."""

    model_config = example(
        {"type": "session_created", "data": {"session_id": SESSION_ID}},
        {"type": "text", "data": "每一轮都"},
        {
            "type": "done",
            "data": {"final_message": "每一轮都记下上一轮。", "session_id": SESSION_ID, "turn_id": TURN_ID},
        },
    )

    type: Literal["session_created", "thinking", "text", "done"] = Field(description="What it is.")
    data: str | dict[str, Any] = Field(
        description="A piece of text; of session_created the session_id; of done final_message (the whole "
        "answer), session_id and turn_id, and error, a sentence, where the turn failed."
    )
