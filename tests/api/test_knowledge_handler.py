"""The names that callers of earlier versions use."""

from __future__ import annotations

import uuid

import pytest

from api.turn.stream import DoneEvent, SessionEvent, StatusEvent
from core.conversation.turns import AskedWith, TurnRequest
from core.errors import UnknownSessionError
from core.prompt.messages import Part, PromptTexts
from tests.support.servers.app import App


async def test_process_conversation_yields_the_turn_from_session_to_done(app: App) -> None:
    request = TurnRequest(question="What is this?", owner="local")
    events = [event async for event in app.container.chat.process_conversation(request)]
    assert isinstance(events[0], SessionEvent)
    assert isinstance(events[-1], DoneEvent)
    assert [event.stage for event in events if isinstance(event, StatusEvent)][-1] == "finished"


async def test_build_context_messages_keeps_the_order(app: App) -> None:
    texts = PromptTexts("system", "earlier", "passages")
    built = app.container.conversations.build_context_messages(texts, [], [], [], "now?")
    assert [(message.part, message.content) for message in built] == [
        (Part.SYSTEM, "system"),
        (Part.QUESTION, "now?"),
    ]


async def test_a_question_is_embedded_while_its_session_is_looked_up(app: App) -> None:
    """Discriminates: one after the other; embedding a question that is not searched."""
    queries = app.container.chat.pipeline.queries
    for how, begun in ((AskedWith(knowledge="never"), False), (AskedWith(), True)):
        request = TurnRequest(
            "What is this?", "local", session_id=str(uuid.uuid4()), begins_session=False, how=how
        )
        with pytest.raises(UnknownSessionError):
            await app.container.chat.begin_turn(request)
        assert bool(queries._begun or queries._vectors) is begun
