"""What clients were acknowledged, and the comparison with what can be read afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.faults.outcome import Outcome
from tests.faults.world.client import Client, Reply
from tests.faults.world.echo_model import answer_to

ENDED = ("completed", "cancelled", "interrupted", "failed")
DOCUMENT = "# Lighthouse\n\nThe lighthouse has a lantern.\n\nWords are every where about the lighthouse.\n"


@dataclass(frozen=True)
class Acknowledged:
    """A turn as its client saw it."""

    turn_id: str
    session_id: str
    parent_turn_id: str | None
    status: str
    question: str
    answer: str
    sources: list[dict[str, Any]]

    @classmethod
    def of(cls, question: str, reply: Reply) -> Acknowledged:
        streamed = reply.streamed
        last = streamed.finished
        return cls(
            last["turn_id"],
            streamed.session_id,
            last["parent_turn_id"],
            last["status"],
            question,
            streamed.answer,
            streamed.sources,
        )


@dataclass
class Ledger:
    """Covers all clients together; `asked` also has the unanswered questions. While it is not `open`, nothing
    counts as acknowledged."""

    turns: dict[str, Acknowledged] = field(default_factory=dict)
    sessions: dict[str, list[str]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    open: bool = True

    def note(self, question: str, reply: Reply) -> Acknowledged | None:
        """Record what the reply acknowledges; its session is known as soon as it was named."""
        self.asked.add(question)
        if reply.status == 200 and (session_id := reply.streamed.session_id):
            self.sessions.setdefault(session_id, [])
        if not reply.acknowledged or not self.open:
            return None
        turn = Acknowledged.of(question, reply)
        if turn.turn_id not in self.turns:
            self.sessions[turn.session_id].append(turn.turn_id)
        self.turns[turn.turn_id] = turn
        return turn


async def check_turn(client: Client, acknowledged: Acknowledged, outcome: Outcome, where: str) -> None:
    """It can be read, completely, and as it was streamed."""
    reply = await client.get(f"/turns/{acknowledged.turn_id}")
    if reply.status != 200:
        outcome.losses.append(
            f"{where}: acknowledged turn {acknowledged.turn_id} reads as {reply.status} {reply.code}"
        )
        return
    turn = reply.json
    read = Acknowledged(
        turn["turn_id"],
        turn["session_id"],
        turn["parent_turn_id"],
        turn["status"],
        turn["question"],
        turn["answer"],
        turn["sources"],
    )
    outcome.expect(
        read == acknowledged,
        f"{where}: acknowledged turn {acknowledged.turn_id} reads as {read}, was {acknowledged}",
    )
    if acknowledged.status == "completed":
        whole = answer_to(acknowledged.question)
        outcome.expect(
            acknowledged.answer == whole,
            f"{where}: {acknowledged.turn_id} was answered {acknowledged.answer!r}",
        )


async def check_session(client: Client, ledger: Ledger, session_id: str, outcome: Outcome, where: str) -> int:
    """Each acknowledged turn exists once, parents resolve without cycles, nothing is half written or running.

    Returns how many turns the session has.
    """
    tree = await client.get(f"/sessions/{session_id}/tree")
    acknowledged = ledger.sessions.get(session_id, [])
    if tree.status != 200:
        unknown = not acknowledged and tree.status == 404
        outcome.expect(
            unknown, f"{where}: session {session_id} with {len(acknowledged)} turns reads as {tree.status}"
        )
        return 0
    parents = {node["turn_id"]: node["parent_turn_id"] for node in tree.json["turns"]}
    listed = [node["turn_id"] for node in tree.json["turns"]]
    outcome.expect(len(listed) == len(parents), f"{where}: session {session_id} lists a turn twice")
    missing = set(acknowledged) - set(listed)
    outcome.expect(not missing, f"{where}: session {session_id} lacks acknowledged {sorted(missing)}")
    outcome.losses += [f"{where}: session {session_id}: {fault}" for fault in faults_of(parents)]
    await _check_texts(client, ledger, session_id, listed, outcome, where)
    return len(listed)


def faults_of(parents: dict[str, str | None]) -> list[str]:
    """Parents that are not turns of the session, and cycles."""
    faults = [
        f"{turn_id} has the unknown parent {p}" for turn_id, p in parents.items() if p and p not in parents
    ]
    for turn_id in parents:
        at: str | None = turn_id
        steps = 0
        while at is not None and steps <= len(parents):
            at, steps = parents.get(at), steps + 1
        if at is not None:
            faults.append(f"{turn_id} is its own ancestor")
    return faults


async def _check_texts(
    client: Client, ledger: Ledger, session_id: str, listed: list[str], outcome: Outcome, where: str
) -> None:
    """Unacknowledged turns are complete, or interrupted with their question. No question occurs twice."""
    questions: list[str] = []
    for turn_id in listed:
        if turn_id in ledger.turns:
            questions.append(ledger.turns[turn_id].question)
            await check_turn(client, ledger.turns[turn_id], outcome, where)
            continue
        turn = (await client.get(f"/turns/{turn_id}")).json
        questions.append(turn["question"])
        outcome.losses += [f"{where}: {turn_id} {fault}" for fault in faults_of_unacknowledged(turn, ledger)]
    outcome.expect(
        len(questions) == len(set(questions)), f"{where}: session {session_id} has a question twice"
    )


def faults_of_unacknowledged(turn: dict[str, Any], ledger: Ledger) -> list[str]:
    asked, answer, status = turn["question"], turn["answer"], turn["status"]
    if asked not in ledger.asked:
        return [f"has a question that nobody asked: {asked!r}"]
    whole = answer_to(asked)
    faults = []
    if status not in ENDED:
        faults.append(f"is {status} after a restart")
    if status == "completed" and answer != whole:
        faults.append(f"is completed and half: {answer!r} of {whole!r}")
    if not whole.startswith(answer):
        faults.append(f"has {answer!r}, which was never said")
    return faults
