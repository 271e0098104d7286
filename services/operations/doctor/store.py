"""The doctor's checks of the store: every collection opens, and references point to something that exists.

Only ids, states and times are read, never texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from config.settings import ModelSettings, StoreSettings
from core.conversation.turns import TurnStatus
from core.errors import StartRefusedError, WenmaiError
from core.formats import reading_of
from core.knowledge import DocumentStatus
from core.operations.reports import Finding, fail, ok, warn
from core.text import counted
from services.knowledge.chunks import ADVICE, MAX_EMBEDDED_CHUNKS
from services.operations.reembedding.level import lacks
from services.operations.repair.documents import UnsearchedDocuments
from services.store.collections import REEMBED_COMMAND, collection_specs, read_stored_as
from services.store.dialect import Filter, StoreCondition, StoreUpkeep, VectorStore
from services.store.points import equals, is_empty, of_sample, scroll_all

# The size of the knowledge base.


def check_size(chunks: int, *, embedded: bool) -> Finding:
    if not embedded:
        return ok("size", f"{counted(chunks, 'chunk')}, in a Qdrant server")
    if chunks > MAX_EMBEDDED_CHUNKS:
        return warn(
            "size",
            f"{chunks} chunks are more than the {MAX_EMBEDDED_CHUNKS} that the embedded store is designed "
            f"for, and every search takes longer: {ADVICE}",
        )
    return ok("size", f"{counted(chunks, 'chunk')}; the embedded store is designed for {MAX_EMBEDDED_CHUNKS}")


MAX_DOCUMENTS = 100_000
BUNDLED_NAME = "multilingual-e5-small"
REPAIR = "run `wenmai repair`"
_TURN_FIELDS = ["session_id", "parent_turn_id", "created_us", "status"]


@dataclass(slots=True)
class StoreFindings:
    """`newest_turn_us` is None if no turn has a readable time."""

    findings: list[Finding] = field(default_factory=list)
    newest_turn_us: int | None = None


@dataclass(slots=True)
class _Turns:
    ids: set[str] = field(default_factory=set)
    parents: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    newest_us: int | None = None
    unreadable: int = 0
    running: int = 0


def embedding_name(settings: ModelSettings) -> str:
    """Return the name under which the store records the configured embedding, without loading the model."""
    kind, _, target = settings.embedding.partition(":")
    if kind == "sentence-transformers":
        return target.rstrip("/").rpartition("/")[2]
    return {"bundled": BUNDLED_NAME, "openai": settings.openai_embedding}.get(kind, target)


async def check_store(
    store: VectorStore, names: StoreSettings, settings: ModelSettings, report: StoreFindings | None = None
) -> StoreFindings:
    """Check every collection. Never raises for the store's errors: they are reported as findings. What is
    found is added to `report` at once, for a caller with a time limit."""
    report = report or StoreFindings()
    try:
        counts = await _counts(store, names)
        if not counts:
            report.findings.append(ok("store", "nothing is stored yet"))
            return report
        report.findings.append(ok("store", ", ".join(f"{name} {count}" for name, count in counts.items())))
        if isinstance(store, StoreUpkeep):
            report.findings += _damage(await store.condition(whole=True))
        if names.knowledge_collection in counts:
            chunks = counts[names.knowledge_collection]
            report.findings.append(check_size(chunks, embedded=not names.qdrant_url))
        report.findings.append(await _check_embedding(store, names, embedding_name(settings)))
        if names.conversation_collection in counts:
            await _check_turns(store, names, report, with_sessions=names.session_collection in counts)
        if {names.knowledge_collection, names.document_collection} <= counts.keys():
            report.findings += await _check_documents(store, names)
    except (WenmaiError, OSError) as error:
        report.findings.append(fail("store", f"it cannot be read: {_one_line(error)}"))
    return report


def _damage(condition: StoreCondition) -> list[Finding]:
    if not condition.damage:
        return [ok("damage", "every acknowledged point is present and unchanged")]
    advice = "restore a backup, or run `wenmai repair --accept-loss`"
    return [fail("damage", f"{line}: {advice}") for line in condition.damage]


async def _counts(store: VectorStore, names: StoreSettings) -> dict[str, int]:
    return {
        spec.name: (await store.count(spec.name)).count
        for spec in collection_specs(names)
        if await store.collection_exists(spec.name)
    }


async def _check_embedding(store: VectorStore, names: StoreSettings, configured: str) -> Finding:
    for spec in collection_specs(names):
        if not spec.dense or not await store.collection_exists(spec.name):
            continue
        stored = read_stored_as((await store.get_collection(spec.name)).config.metadata)
        if stored is None:
            return fail(
                "embedding",
                f"collection {spec.name!r} does not say what it was embedded with: run `{REEMBED_COMMAND}`",
            )
        if stored.embedding != configured:
            return fail(
                "embedding",
                f"stored with {stored.embedding}, configured is {configured}: a prepared copy is used at the "
                f"next start, else set EMBEDDING back or run `{REEMBED_COMMAND}`",
            )
    return ok("embedding", f"what is stored is embedded with {configured}")


async def _check_turns(
    store: VectorStore, names: StoreSettings, report: StoreFindings, *, with_sessions: bool
) -> None:
    turns = await _read_turns(store, names.conversation_collection)
    report.newest_turn_us = turns.newest_us
    recorded = await _ids(store, names.session_collection) if with_sessions else set()
    report.findings += [
        _sessions(turns, recorded),
        _times(turns),
        _parents(turns),
        await _vectors(store, names.conversation_collection),
    ]
    if turns.running:
        report.findings.append(
            ok("running", f"{counted(turns.running, 'turn')} cut off, which the next start marks interrupted")
        )


def _sessions(turns: _Turns, recorded: set[str]) -> Finding:
    without = len(turns.sessions - recorded)
    if without:
        return warn("sessions", f"{counted(without, 'session')} with turns and no record: {REPAIR}")
    empty = len(recorded - turns.sessions)
    return ok("sessions", f"{counted(len(recorded), 'session')}, {empty} of them without a turn")


def _times(turns: _Turns) -> Finding:
    if turns.unreadable:
        return warn("times", f"{counted(turns.unreadable, 'turn')} without a readable time: {REPAIR}")
    return ok("times", f"{counted(len(turns.ids), 'turn')} with a readable time")


def _parents(turns: _Turns) -> Finding:
    missing = sum(parent not in turns.ids for parent in turns.parents)
    if not missing:
        return ok("parents", "every turn's parent exists")
    return ok(
        "parents",
        f"{counted(missing, 'turn')} whose parent was deleted, treated as the start of a conversation",
    )


async def _vectors(store: VectorStore, collection: str) -> Finding:
    point_filter = Filter(
        # an answer is embedded only when it leaves the recent history, and most never do
        must=[equals("status", TurnStatus.COMPLETED.value), lacks(("question",))],
        must_not=[_has_command()],
    )
    lacking = (await store.count(collection, point_filter)).count
    if lacking:
        return warn(
            "vectors",
            f"{counted(lacking, 'turn')} without vectors, so not recalled: restart the server, or {REPAIR}",
        )
    return ok("vectors", "every completed turn has its vectors")


def _has_command() -> Filter:
    """Match slash commands, stored with a name; in a question the field is missing or empty."""
    return Filter(must_not=[is_empty("command"), equals("command", "")])


async def _check_documents(store: VectorStore, names: StoreSettings) -> list[Finding]:
    known = await _ids(store, names.document_collection)
    facet = await store.facet(names.knowledge_collection, "document_id", limit=MAX_DOCUMENTS)
    orphans = sum(hit.count for hit in facet.hits if str(hit.value) not in known)
    begun = equals("status", DocumentStatus.INGESTING.value)
    unfinished = (await store.count(names.document_collection, Filter(must=[begun]))).count
    unsearched = await UnsearchedDocuments(store, names).find()
    findings = []
    if unsearched:
        some = ", ".join(unsearched[:3])
        findings.append(
            warn(
                "documents",
                f"{counted(len(unsearched), 'document')} marked ready but not searched ({some}): {REPAIR}",
            )
        )
    if orphans:
        findings.append(
            warn("documents", f"{counted(orphans, 'chunk')} without a document: remove with `wenmai erase`")
        )
    if unfinished:
        findings.append(
            warn(
                "documents",
                f"{counted(unfinished, 'document')} not read to the end: the next start continues; what came "
                "from a restored backup is marked failed and must be uploaded again",
            )
        )
    findings = findings or [
        ok("documents", f"{counted(len(known), 'document')}, no chunk without its document")
    ]
    return findings + await _outdated(store, names)


async def _outdated(store: VectorStore, names: StoreSettings) -> list[Finding]:
    """Followed folders are read again on their own, uploads only if they are sent again."""
    ready = Filter(must=[equals("status", DocumentStatus.READY.value)], must_not=[of_sample()])
    fields = ["file_name", "reading", "source"]
    outdated = []
    async for record in scroll_all(store, names.document_collection, ready, with_payload=fields):
        payload = record.payload or {}
        file_name, reading = str(payload.get("file_name") or ""), payload.get("reading") or 0
        if not payload.get("source") and reading // 2 < reading_of(file_name) // 2:
            outdated.append(file_name)
    if not outdated:
        return []
    some = ", ".join(sorted(outdated)[:3])
    number = counted(len(outdated), "document")
    return [ok("readings", f"{number} read by an earlier release ({some}): add the files again to gain")]


async def _read_turns(store: VectorStore, collection: str) -> _Turns:
    turns = _Turns()
    async for record in scroll_all(store, collection, with_payload=_TURN_FIELDS):
        payload = record.payload or {}
        turns.ids.add(str(record.id))
        if isinstance(session := payload.get("session_id"), str):
            turns.sessions.add(session)
        if isinstance(parent := payload.get("parent_turn_id"), str):
            turns.parents.append(parent)
        created = payload.get("created_us")
        if isinstance(created, int) and created > 0:
            turns.newest_us = max(created, turns.newest_us or 0)
        else:
            turns.unreadable += 1
        turns.running += payload.get("status") == TurnStatus.RUNNING.value
    return turns


async def _ids(store: VectorStore, collection: str) -> set[str]:
    return {str(record.id) async for record in scroll_all(store, collection, with_payload=False)}


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) if isinstance(error, (WenmaiError, StartRefusedError)) else ""
    return text or type(error).__name__
