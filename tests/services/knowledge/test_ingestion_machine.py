"""Property: whatever is added, changed and deleted, and whenever the power fails, the search afterwards
covers exactly one whole version of each existing document, and nothing that was accepted is lost.

Discriminates: publishing before all is stored; removing old chunks before the record is replaced; a recovery
that forgets half a swap; an upload that is dropped before it is ingested.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from core import formats
from core.errors import StoreUnavailableError, WenmaiError
from core.knowledge import Document, DocumentStatus, Upload
from services.adapters.edge.client import open_edge_client
from services.knowledge.upload import version_of
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore
from tests.support.models.hashing_embedding import DIMENSION
from tests.support.stores.knowledge import ME, SETTINGS, Bench, memory_store, open_bench

T = TypeVar("T")
WRITES = frozenset(("upsert", "delete", "set_payload", "delete_payload"))
NAMES = ("a", "b", "c")
COMMON = [f"Section {number} says what is common to all of them, at some length." for number in range(30)]


class Power:
    """A store that accepts `writes` more of them and none after: then the power has failed."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.writes: int | None = None

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._store, name)
        return self._limited(act) if name in WRITES else act

    def _limited(self, act: Any) -> Any:
        async def write(*arguments: Any, **named: Any) -> Any:
            if self.writes is not None:
                if self.writes <= 0:
                    raise StoreUnavailableError("the power has gone")
                self.writes -= 1
            return await act(*arguments, **named)

        return write


def text_of(number: int) -> bytes:
    """Texts differ in some sections, and in how many they have."""
    remaining = COMMON[: 12 + number % 3 * 8]
    return "\n\n".join([f"This is version {number}.", *remaining, f"It ends with {number * 7}."]).encode()


class Machine(RuleBasedStateMachine):
    embedded = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.life = AsyncExitStack()
        self.contents: dict[str, set[bytes]] = {}  # by name: acceptable search results
        self.ever: dict[str, set[bytes]] = {}
        self.sourced: set[str] = set()
        self.is_quiet = True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        if self.embedded:
            edge = await self.stack.enter_async_context(open_edge_client(self.folder / "store"))
            await ensure_collections(edge, SETTINGS, embedding_name="hashing", dimension=DIMENSION)
            self.store: VectorStore = edge
        else:
            self.store = await self.stack.enter_async_context(memory_store())
        await self._begin()

    async def _begin(self) -> None:
        self.power = Power(self.store)
        bench = open_bench(cast(VectorStore, self.power), data_dir=self.folder)
        self.bench: Bench = await self.life.enter_async_context(bench)
        await self.bench.knowledge.recover()

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 5), sourced=st.booleans())
    def add(self, name: str, number: int, sourced: bool) -> None:
        self.is_quiet = False
        self.run(self._add(name, number, sourced))

    async def _add(self, name: str, number: int, sourced: bool) -> None:
        content = text_of(number)
        self.ever.setdefault(name, set()).add(content)
        upload = Upload("ann", f"{name}.txt", content, name, source="s" if sourced else "")
        await self.bench.knowledge.add(upload)
        before = self.contents.get(name, set())
        if sourced:  # after a crash the previous version may exist, or none
            self.sourced.add(name)
            self.contents[name] = before | {content}
        else:
            self.sourced.discard(name)
            self.contents[name] = {content}

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.run(self._delete(name))

    async def _delete(self, name: str) -> None:
        for document in await self._documents():
            if document.external_id == name:
                await self.bench.knowledge.erase(document.document_id)
        self.contents.pop(name, None)
        self.sourced.discard(name)

    @rule()
    def wait(self) -> None:
        self.is_quiet = True

    @rule(
        name=st.sampled_from(NAMES),
        number=st.integers(0, 5),
        sourced=st.booleans(),
        writes=st.integers(0, 9),
        is_upgraded=st.booleans(),
    )
    def lose_power(self, name: str, number: int, sourced: bool, writes: int, is_upgraded: bool) -> None:
        self.is_quiet = True
        self.run(self._lose_power(name, number, sourced, writes, is_upgraded))

    async def _lose_power(
        self, name: str, number: int, sourced: bool, writes: int, is_upgraded: bool
    ) -> None:
        """After this many writes of a change of existing documents, and of concurrent work. A release with a
        better reader may be what starts next."""
        if name not in self.contents:
            await self._add(name, number + 1, sourced)
            await self._finish()
        before, sourced_before = dict(self.contents), set(self.sourced)
        self.power.writes = writes
        try:
            await self._add(name, number, sourced)
        except WenmaiError:  # not accepted: then either may exist
            self.contents = before
            self.contents[name] = before.get(name, set()) | {text_of(number)}
            self.sourced = sourced_before | {name}
        await self._finish()
        self.power.writes = 0
        await self.life.aclose()
        formats._READERS[formats.DocumentFormat.TEXT] += is_upgraded
        await self._begin()
        await self._check_while_jobs_run()

    @invariant()
    def a_search_covers_one_whole_version_of_each(self) -> None:
        if self.is_quiet:  # else jobs continue into the next step
            self.run(self._check())

    async def _check_while_jobs_run(self) -> None:
        """Both versions may be searchable for a moment, but never half of one, nor none."""
        while True:
            running = any(not job.stage.is_final for job in self.bench.knowledge.jobs.list(ME))
            documents = {each.document_id: each for each in await self._documents()}
            for document_id, chunks in (await self._searched()).items():
                versions = {version for version, _ in chunks}
                for version in versions:
                    places = sorted(place for its, place in chunks if its == version)
                    whole = "\n\n".join(chunks[version, place] for place in places)
                    name = documents[document_id].external_id or ""
                    assert any(_says(whole, content) for content in self.ever[name]), "half a version"
                assert len(versions) <= 2
            if not running:
                return
            await asyncio.sleep(0)

    async def _check(self) -> None:
        await self._finish()
        ready = await self._searched()
        living = {each.external_id or "": each for each in await self._documents()}
        assert set(living) <= set(self.contents) | self.sourced
        for name, document in living.items():
            chunks = ready.pop(document.document_id, {})
            self._check_one(name, document, chunks)
        assert not ready, "chunks of documents that are gone"
        assert await self.bench.chunk_count(ready=False) == 0, "chunks that nobody will publish"
        assert set(self.contents) - self.sourced <= set(living), "an accepted document is lost"

    def _check_one(self, name: str, document: Document, chunks: dict[tuple[str, int], str]) -> None:
        if document.status is DocumentStatus.FAILED:
            assert name in self.sourced, f"an accepted document is {document.error}"
            assert not chunks
            return
        assert document.status is DocumentStatus.READY
        expected = [(version_of(document.revision), place) for place in range(document.chunk_count)]
        assert sorted(chunks) == expected
        whole = "\n\n".join(chunks[key] for key in expected)
        assert any(_says(whole, content) for content in self.contents[name]), whole[:80]

    async def _finish(self) -> None:
        for job in self.bench.knowledge.jobs.list(ME):
            await self.bench.knowledge.wait(job.job_id, ME)

    async def _documents(self) -> list[Document]:
        return list((await self.bench.knowledge.documents.page(ME, 100)).documents)

    async def _searched(self) -> dict[str, dict[tuple[str, int], str]]:
        records, _ = await self.store.scroll(SETTINGS.knowledge_collection, limit=1_000)
        results: dict[str, dict[tuple[str, int], str]] = {}
        for record in records:
            payload = record.payload or {}
            if payload["ready"]:
                place = payload["version"], payload["position"]
                results.setdefault(payload["document_id"], {})[place] = payload["text"]
        return results

    def teardown(self) -> None:
        formats._READERS[formats.DocumentFormat.TEXT] = 1
        with suppress(AttributeError):
            self.run(self.life.aclose())
        self.run(self.stack.aclose())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()


def _says(whole: str, content: bytes) -> bool:
    lines = content.decode().split("\n\n")
    return all(line in whole for line in lines) and f"version {lines[0][-2]}" in whole


class EmbeddedMachine(Machine):
    embedded = True


@pytest.mark.slow("runs a state machine of 30 histories")
@pytest.mark.parametrize(
    ("machine", "examples"),
    [(Machine, 30), pytest.param(EmbeddedMachine, 6, marks=pytest.mark.full("a long property run"))],
)
def test_a_search_always_covers_exactly_one_whole_version(machine: type[Machine], examples: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=12,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(7)(machine), settings=chosen)
