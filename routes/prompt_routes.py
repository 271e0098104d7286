"""What was sent to the model for a turn."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from fastapi import APIRouter

from api.sessions.shown_prompt import ShownPart, ShownPrompt
from routes.dependencies import ContainerDep, Owner
from routes.openapi import errors
from routes.wire import filters_object

router = APIRouter(tags=["sessions"], responses=errors(401, 404, 422))


@router.get("/turns/{turn_id}/prompt")
async def get_prompt(turn_id: UUID, container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """The request sent for this turn, part by part and byte for byte, and what the provider said of its
    answer. Parts that were erased since are named and empty."""
    return prompt_object(await container.sessions.prompt(str(turn_id), owner))


def prompt_object(shown: ShownPrompt) -> dict[str, Any]:
    """`parts` is null when no record was kept (PROMPT_KEEP_DAYS), `request.body` when it cannot be shown."""
    manifest = shown.manifest
    if manifest is None:
        return {"turn_id": shown.turn.turn_id, "model_id": shown.turn.model_id, "parts": None}
    return {
        "turn_id": shown.turn.turn_id,
        "model_id": manifest.model,
        "layout": manifest.layout,
        "window": manifest.window,
        "answer_tokens": manifest.answer_tokens,
        "prompt_tokens": manifest.prompt_tokens,
        "filters": filters_object(shown.turn.filters),
        "parts": [_part_object(part) for part in shown.parts],
        "request": {"body": shown.body, "sha256": manifest.request_sha256, "exact": shown.exact},
        "response": manifest.response,
    }


def _part_object(shown: ShownPart) -> dict[str, Any]:
    return {**asdict(shown.part), "text": shown.text, "removed": shown.removed}
