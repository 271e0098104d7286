"""Measure relevant history on sets of long chats, through the real service.

`python -m scripts.evaluate_recall FOLDER` expects in FOLDER one folder per set, with corpus.jsonl
{id, text, scope}, queries.jsonl {id, text, scope, answerable} and qrels.jsonl {query_id, doc_id, rel}. Every
scope becomes one session in a store that is thrown away, every line of it one turn, in order; then each
question is asked of its session. "ranked" is the order alone, "kept" what of its first ten reaches the
threshold and so would be told again. The milliseconds are the product's own recall (branch, recent and
relevant history, as configured by default), the embedding of the question not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from api.container import open_container
from config.settings import load_settings
from core.turns import Turn, TurnStatus
from scripts.cached_embedding import CachedEmbedding
from scripts.recall_figures import COLUMNS, TOP, Answered, ChatSet, Question, load, report, write_run
from services.conversation_manager import ConversationManager
from services.embedding import EmbeddingService
from services.query_builder import QueryBuilder
from services.turn_store import TurnStore, TurnVectors

OWNER = "local"
BEGAN_US = 1_700_000_000_000_000
EMBEDDING = "services.adapters.bundled_embedding:BundledEmbedding"


@dataclass(slots=True)
class Stored:
    """Each scope's session, and each turn's line."""

    sessions: dict[str, str] = field(default_factory=dict)
    line_of: dict[str, str] = field(default_factory=dict)


async def evaluate(chats: ChatSet, cache: Path | None) -> list[Answered]:
    async with _services(cache) as (ranking, product, queries):
        stored = await _store(chats, ranking)
        return [
            await _answer(question, stored, ranking, product, queries)
            for question in tqdm(chats.questions, desc=f"{chats.name} questions")
        ]


@asynccontextmanager
async def _services(
    cache: Path | None,
) -> AsyncIterator[tuple[ConversationManager, ConversationManager, QueryBuilder]]:
    """Over one store: all the turns of a branch ranked ten deep, and the product's defaults for the time."""
    with tempfile.TemporaryDirectory(prefix="wenmai-recall-") as folder:
        settings = load_settings(store={"data_dir": folder}, knowledge={"load_sample": False})
        async with open_container(settings) as container:
            embedding = _cached(cache) if cache else container.embedding
            deep = settings.conversation.model_copy(update={"max_relevant_turns": TOP, "max_recent_turns": 0})
            keep_s, names = settings.conversation.history_cache_s, settings.store
            turns = TurnStore(container.store, names.conversation_collection, keep_s)
            ranking = ConversationManager(turns, embedding, deep)
            product = ConversationManager(turns, embedding, settings.conversation)
            yield ranking, product, QueryBuilder(embedding)
            if cache:
                await embedding.close()


def _cached(folder: Path) -> EmbeddingService:
    module, _, name = EMBEDDING.partition(":")
    model = CachedEmbedding(getattr(importlib.import_module(module), name)(), folder)
    return EmbeddingService(model, model.model_name, len(model.get_query_embedding("1")))


async def _store(chats: ChatSet, manager: ConversationManager) -> Stored:
    """Every line a turn without an answer, on the turn before it, a second later."""
    stored = Stored()
    for scope, lines in tqdm(chats.lines.items(), desc=f"{chats.name} turns"):
        session_id, turn_ids = str(uuid.uuid4()), [str(uuid.uuid4()) for _ in lines]
        turns = [
            Turn(
                turn_id=turn_id,
                session_id=session_id,
                owner=OWNER,
                user_query=text,
                created_us=BEGAN_US + at * 1_000_000,
                status=TurnStatus.COMPLETED,
                parent_turn_id=turn_ids[at - 1] if at else None,
                seq=at,
            )
            for at, (turn_id, (_, text)) in enumerate(zip(turn_ids, lines, strict=True))
        ]
        await manager.turns.put_many([(turn, TurnVectors()) for turn in turns])
        stored.sessions[scope] = session_id
        stored.line_of |= {turn_id: line for turn_id, (line, _) in zip(turn_ids, lines, strict=True)}
    with tqdm(desc=f"{chats.name} embedding", total=len(stored.line_of)) as bar:
        await manager.index_missing(lambda done, of: bar.update(done - bar.n))
    return stored


async def _answer(
    question: Question,
    stored: Stored,
    ranking: ConversationManager,
    product: ConversationManager,
    queries: QueryBuilder,
) -> Answered:
    session_id = stored.sessions[question.scope]
    query = await queries.build(question.text, [])
    started = time.perf_counter()
    branch = await product.find_branch(session_id, OWNER)
    recent = await product.get_recent_history(branch)
    await product.retrieve_relevant_history(query, branch, recent, OWNER)
    elapsed_ms = (time.perf_counter() - started) * 1000
    ranked = (await ranking.recall.rank(query, branch, (), OWNER))[:TOP]
    kept = ranking.recall.keep(await ranking.recall.judge(query, ranked))
    return Answered(
        question,
        [(stored.line_of[each.turn_id], each.score) for each in ranked],
        [(stored.line_of[each.turn.turn_id], each.chance) for each in kept],
        elapsed_ms,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.evaluate_recall",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder of sets")
    parser.add_argument("--sets", nargs="+", default=["locomo", "realtalk"], help="which of them")
    parser.add_argument("--cache", type=Path, help="folder for vectors, made when missing")
    parser.add_argument("--out", type=Path, help="folder for run files")
    arguments = parser.parse_args()
    missing = [name for name in arguments.sets if not (arguments.folder / name / "corpus.jsonl").is_file()]
    if missing:
        parser.error(f"no corpus.jsonl in {', '.join(str(arguments.folder / name) for name in missing)}")
    lines: list[str] = []
    for name in arguments.sets:
        answered = asyncio.run(evaluate(load(arguments.folder / name), arguments.cache))
        lines += report(name, answered)
        if arguments.out:
            write_run(arguments.out, name, answered)
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * len(COLUMNS)}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
