"""Sessions and turns as the replies that go over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from api.sessions.shown_prompt import ShownPrompt
from api.sessions.transfer import Imported
from core.citing.citations import KnownDocuments
from core.conversation.branch import TurnNode
from core.conversation.sessions import Persona, Session
from core.conversation.turns import Summary, Turn
from core.dates import rfc3339
from core.knowledge import KnowledgeFilter
from routes.stream import citation_reply, warning_reply
from routes.wire import transfer, turns


def session_reply(session: Session, turn_count: int | None = None) -> turns.Session:
    """`turn_count` is absent when it is not known."""
    counted = {} if turn_count is None else {"turn_count": turn_count}
    return turns.Session(
        session_id=session.session_id,
        title=session.title,
        created_at=session.created_at,
        updated_at=session.updated_at,
        hold=session.hold,
        expire_days=session.expire_days,
        persona=persona_reply(session.persona) if session.persona else None,
        **counted,
    )


def persona_reply(persona: Persona) -> turns.Persona:
    body = asdict(persona)
    del body["updated_us"]
    return turns.Persona(**body, updated_at=rfc3339(persona.updated_us))


def turn_reply(turn: Turn, documents: KnownDocuments) -> turns.Turn:
    """`documents` are those of its sources that are stored."""
    return turns.Turn(
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        parent_turn_id=turn.parent_turn_id,
        user_query=turn.user_query,
        assistant_response=turn.assistant_response,
        thinking=turn.thinking,
        sources=[citation_reply(citation, documents) for citation in turn.sources],
        status=turn.status,
        timestamp=turn.timestamp,
        seq=turn.seq,
        model_id=turn.model_id,
        token_count=turn.token_count,
        usage=turns.Usage.model_validate(turn.usage),
        timings_ms=turn.timings_ms,
        **_what_some_turns_have(turn),
    )


def _what_some_turns_have(turn: Turn) -> dict[str, Any]:
    """Fields that are absent where a turn has none of it."""
    body: dict[str, Any] = {}
    if turn.finish_reason:
        body["finish_reason"] = turn.finish_reason
    if turn.command:
        body["command"] = turn.command
    if turn.summary is not None:
        body["summary"] = _summary(turn.summary)
    if not turn.filters.limits_nothing:
        body["filters"] = limits_reply(turn.filters)
    if turn.request is not None:
        body["request"] = turns.AskedWith.model_validate(turn.request)
    if turn.feedback is not None:
        body["feedback"] = turns.Feedback.model_validate(turn.feedback)
    if turn.warnings:
        body["warnings"] = [warning_reply(warning) for warning in turn.warnings]
    if turn.rewritten is not None:
        body["rewritten_question"] = turn.rewritten.text
    return body


def _summary(summary: Summary) -> turns.Summary:
    return turns.Summary(text=summary.text, start=summary.start, covers=len(summary.covers))


def limits_reply(filters: KnowledgeFilter) -> turns.Limits:
    """Only what limits."""
    return turns.Limits(**{name: value for name, value in asdict(filters).items() if value})


def branch_reply(branch: Sequence[Turn], documents: KnownDocuments) -> turns.Branch:
    return turns.Branch(turns=[turn_reply(turn, documents) for turn in branch])


def tree_reply(nodes: Sequence[tuple[TurnNode, str]]) -> turns.Tree:
    """Each node with its question, shortened to one line."""
    return turns.Tree(turns=[_node(node, question) for node, question in nodes])


def _node(node: TurnNode, question: str) -> turns.TreeNode:
    return turns.TreeNode(
        turn_id=node.turn_id,
        parent_turn_id=node.parent_turn_id,
        status=node.status,
        created_at=rfc3339(node.created_us),
        seq=node.seq,
        command=node.command,
        has_summary=node.has_summary,
        question=question,
    )


def rated_reply(turn: Turn) -> turns.RatedTurn:
    feedback = turns.Feedback.model_validate(turn.feedback) if turn.feedback else None
    return turns.RatedTurn(turn_id=turn.turn_id, feedback=feedback)


def prompt_reply(shown: ShownPrompt) -> turns.Prompt:
    """`parts` is null when no record was kept (PROMPT_KEEP_DAYS), `request.body` when it cannot be shown."""
    manifest = shown.manifest
    if manifest is None:
        return turns.Prompt(turn_id=shown.turn.turn_id, model_id=shown.turn.model_id, parts=None)
    return turns.Prompt(
        turn_id=shown.turn.turn_id,
        model_id=manifest.model,
        layout=manifest.layout,
        window=manifest.window,
        answer_tokens=manifest.answer_tokens,
        prompt_tokens=manifest.prompt_tokens,
        filters=limits_reply(shown.turn.filters),
        parts=[
            turns.PromptPart(**{**asdict(part.part), "text": part.text}, removed=part.removed)
            for part in shown.parts
        ],
        request=turns.PromptRequest(body=shown.body, sha256=manifest.request_sha256, exact=shown.exact),
        response=manifest.response,
    )


def imported_reply(imported: Imported) -> transfer.ImportedConversation:
    return transfer.ImportedConversation(
        session_id=imported.session_id, turns=list(imported.turn_ids), indexing=imported.indexing
    )
