"""A proof put together: the fields that can name it, everything stored, and the copies of the store."""

from __future__ import annotations

from config.settings import StoreSettings
from core.erasure import (
    ErasedKind,
    ErasureOptions,
    Left,
    Proof,
    Quoted,
    Searched,
    Thoroughness,
    Traced,
    total_hits,
)
from core.erasure_quotes import Quotes
from core.turns import rfc3339
from services.clock import Clock
from services.erasure.copies import Copies, CopiesFound
from services.erasure.everything import FullSearch
from services.erasure.proof import References, merged
from services.erasure.reading import StoreReader
from services.erasure.store_files import FilesSaid

_AGAIN = "Erase it again; if it is found once more, something else writes it: look at the place named."
_UNDER_WAY = "Answers under way may still name it; they are cleaned when they end, and then nothing is left."
_NO_FILES = FilesSaid()


class Prover:
    def __init__(
        self, names: StoreSettings, reader: StoreReader, references: References, copies: Copies, clock: Clock
    ) -> None:
        self._names = names
        self._reader = reader
        self._references = references
        self._copies = copies
        self._clock = clock

    async def prove(
        self,
        traced: Traced,
        options: ErasureOptions,
        texts: Quotes | None = None,
        late: int = 0,
        files: FilesSaid = _NO_FILES,
    ) -> tuple[Proof, Quoted]:
        """Search every place; `late` answers are under way that may still name it."""
        checked_us = self._clock()
        searched, quoted = await self._references.search(traced), Quoted()
        if options.mode is Thoroughness.FULL:
            everything, quoted = await self._everything(traced, texts)
            searched += everything
        copies = await self._in_copies(traced, options)
        places = merged([*searched, *files.searched, *copies.searched])
        left = [Left(each.place, each.hits, _AGAIN) for each in merged(searched) if each.hits]
        if late:
            left.append(Left("memory: running answers", 0, _UNDER_WAY))
        searchable = all(each.holds != "may" for each in copies.copies)
        proof = Proof(
            checked_at=rfc3339(checked_us),
            mode=options.mode,
            hits=total_hits(places),
            complete=not late and not files.failed and searchable,
            searched=places,
            left=(*left, *files.left, *copies.left),
            backups=copies.copies,
        )
        return proof, quoted

    async def _everything(self, traced: Traced, texts: Quotes | None) -> tuple[list[Searched], Quoted]:
        names = self._names
        collections = [
            names.knowledge_collection, names.document_collection, names.conversation_collection,
            names.session_collection, names.memory_collection, names.operations_collection,
        ]  # fmt: skip
        search = FullSearch(self._reader, traced, texts)
        return await search.run(collections, names.knowledge_collection)

    async def _in_copies(self, traced: Traced, options: ErasureOptions) -> CopiesFound:
        owner = traced.name if traced.kind is ErasedKind.OWNER else ""
        if options.delete_backups:
            await self._copies.delete_holding(traced.ids, owner)
        thorough = options.mode is Thoroughness.FULL
        return await self._copies.search(traced.ids, owner, thorough=thorough)
