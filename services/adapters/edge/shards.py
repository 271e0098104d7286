"""All shards of one data folder, and what may be asked of them. Runs in the store process only.

Each collection is a folder of that name. It appears and disappears by a rename, so that a crash leaves
it whole or absent.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import qdrant_edge as edge

from services.adapters.edge import collection as on_disk
from services.adapters.edge import engine, wire
from services.adapters.edge.integrity import Integrity, unreadable_unless_done
from services.adapters.edge.journal import FILE, MOST_BYTES, Journal, put_aside, remove
from services.adapters.edge.points import Feeds, Points, ids_of
from services.adapters.edge.wire import RESERVE_BYTES, remove_copies
from services.store.durable import ReserveFile, free_bytes, sync_folder, sync_tree

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NEW, _DELETED = ".new", ".gone"
_STAND_IN, _DAMAGED = ".empty", ".damaged"
_GROWING = (
    wire.CreateCollection, wire.CreateIndex, wire.Upsert, wire.UpdateVectors, wire.SetPayload, wire.Adopt,
)  # fmt: skip
_DELETING = (wire.Delete, wire.DeletePayload, wire.DeleteCollection)
_LEAST_BYTES = 4 << 20  # left by deletions for the engine to flush them; and a start needs as much


class Noted(NamedTuple):
    """A change that may be made; `number` is its own in the journal."""

    change: wire.Change
    number: int | None = None


class Shards:
    """Open with `open_all` and `begin`, ask with `answer` or, for a change, `note`, `commit` and `make`; then
    `close`. When a part is lost, all the rest can be read, and nothing is written.

    Writes that need room are refused while the disk has less than `reserve_bytes` left: a mapped file that
    cannot grow kills the process. Deletions go on: they use the reserve.
    """

    def __init__(self, folder: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = folder
        self._journal: Journal | None = None
        self._reserve_bytes = reserve_bytes
        self._for_deletions = ReserveFile(folder / wire.DELETIONS_FILE, wire.DELETIONS_BYTES)
        self._collections: dict[str, on_disk.Collection] = {}
        self._unreadable: dict[str, on_disk.Unreadable] = {}
        self._left: dict[str, on_disk.Left] = {}
        self._stand_ins: set[str] = set()
        self._integrity = Integrity(self._collections)
        self._feeds = Feeds()
        self._points = Points(self._collections, self._integrity, self._feeds)
        self._answers: dict[type[Any], Callable[[Any], object]] = {
            wire.ListCollections: lambda _: list(self._collections),
            wire.CreateCollection: self._create,
            wire.DeleteCollection: self._drop,
            wire.Describe: self._describe,
            wire.Release: self._release,
            wire.Adopt: self._adopt,
            wire.LookAt: self._look_at,
            wire.AcceptLoss: self._accept_loss,
            **self._points.answers,
        }

    def answer(self, request: wire.Request) -> object:
        """A change that comes alone is noted, committed and made."""
        if isinstance(request, wire.CHANGES):
            noted = self.note(request)
            self.commit()
            return self.make(noted)
        if isinstance(request, wire.CreateCollection | wire.DeleteCollection | wire.Adopt):
            self._check_writable(request)
            self._make_room(request)
        return self._answers[type(request)](request)

    def note(self, request: wire.Change) -> Noted:
        """The change as it is to be made once `commit` has returned. Raises Refusal: then it is not."""
        self._check_writable(request)
        self._points.collection(request.collection)
        change = self._points.by_ids(request)
        self._make_room(change)
        if isinstance(request, wire.Upsert | wire.UpdateVectors):
            on_disk.check_vectors(self._points.collection(request.collection).spec, request.points)
        if self._journal is None or self._integrity.lost:
            return Noted(change)
        return Noted(change, self._journal.note(wire.encode(change)))

    def make(self, noted: Noted) -> object:
        """Raises Refusal, and what the engine raises."""
        change, number = noted
        try:
            return self._answers[type(change)](change)
        except Exception as error:  # the engine raises bare Exception
            partly = isinstance(error, on_disk.Refusal) and error.verdict is wire.Verdict.UNKNOWN_POINT
            if self._journal is not None and number is not None and not partly:
                self._journal.take_back(number)
                self._integrity.expected.unsure(change.collection, ids_of(change))
            raise

    def _check_writable(self, request: wire.Request) -> None:
        if self._integrity.lost and not isinstance(request, wire.CreateIndex):
            sentence = f"the store can only be read, since a part of it is lost: {self._integrity.line}"
            raise on_disk.Refusal(wire.Verdict.READ_ONLY, sentence)

    def _make_room(self, request: wire.Request) -> None:
        """Raises Refusal for what would grow a file on a full disk. What matches no point needs none."""
        if getattr(request, "ids", None) == []:
            return
        deletes = isinstance(request, _DELETING) or getattr(request, "deletes", False)
        if deletes and free_bytes(self._folder) < self._reserve_bytes:
            self._for_deletions.give()
        if isinstance(request, _GROWING):
            least = min(_LEAST_BYTES, self._reserve_bytes) if deletes else self._reserve_bytes
            on_disk.check_room(self._folder, least)

    @property
    def unflushed(self) -> bool:
        """A write is in the engine's log only, which a start would have to replay."""
        return self._points.unflushed

    def put_flush_off(self) -> None:
        """Until something is written again."""
        self._points.unflushed = False

    @property
    def has_room(self) -> bool:
        return free_bytes(self._folder) >= self._reserve_bytes

    def hold_reserve(self) -> None:
        """Again, once there is room."""
        if self._journal is not None:
            self._for_deletions.hold(self._reserve_bytes)

    def without_path(self, refusal: on_disk.Refusal) -> str:
        """A request's answer may reach a person elsewhere, whom the folder's place does not concern."""
        return str(refusal).replace(str(self._folder), "the data folder")

    # ---- life -----------------------------------------------------------------------------------

    def open_all(self, *, probing: bool = False) -> None:
        """What cannot be read is left out until `begin`. With `probing` a collection that ends whoever reads
        it is found out, too. Raises Refusal when the disk is too full to open one: then none was touched."""
        remove_copies(self._folder)
        self._make_room_to_open()
        for entry in sorted(self._folder.glob(f"*{on_disk.OLD}")):
            on_disk.put_back(entry)
        for entry in sorted(self._folder.iterdir()):
            if entry.suffix in {_NEW, _DELETED, _STAND_IN}:
                shutil.rmtree(entry)
            elif entry.is_dir() and _NAME.fullmatch(entry.name):
                self._left[entry.name] = on_disk.left_by_close(entry)
        # before the engine has a thread, which no fork would have
        doubtful = [name for name, left in self._left.items() if probing or left.doubt]
        self._unseal()
        ends_reader = {name for name in doubtful if not on_disk.is_readable(self._folder / name)}
        for name, left in self._left.items():
            self._open(name, left, ends_reader=name in ends_reader)

    def _make_room_to_open(self) -> None:
        """A start writes a little, too. Raises Refusal."""
        if free_bytes(self._folder) < _LEAST_BYTES:
            self._for_deletions.give()
        if (left := free_bytes(self._folder)) < _LEAST_BYTES:
            need = f"{left >> 20} MB are left, and opening the store needs {_LEAST_BYTES >> 20}"
            sentence = f"the disk of the data folder {self._folder} is full: {need}; make room on it"
            raise on_disk.Refusal(wire.Verdict.DISK_FULL, sentence)

    def _unseal(self) -> None:
        """The engine changes what it loads, also in a start that comes to no end: a later one must not call
        that damage. What is damaged keeps its note, to be found again. A journal that is not whole is worth
        nothing where everything else is as it was left."""
        if not on_disk.is_journal_whole(self._folder / FILE, self._left.values()):
            remove(self._folder)
        for name, left in self._left.items():
            if left.sealed:
                on_disk.note_opened(self._folder / name)

    def _open(self, name: str, left: on_disk.Left, *, ends_reader: bool) -> None:
        place = self._folder / name
        if ends_reader:
            self._unreadable[name] = on_disk.Unreadable(f"{place} cannot be read to its end ({left.doubt})")
            return
        try:
            self._collections[name] = collection = on_disk.load_collection(place)
        except on_disk.Unreadable as error:
            self._unreadable[name] = error
            return
        if doubt := left.doubt or on_disk.doubt_of_points(collection, left):
            self._integrity.lost[name] = doubt

    def begin(self, journal: Journal | None, why_not: str = "") -> None:
        """Bring back what was accepted and is in the journal only; from now on changes are noted there.

        `why_not`: there was one, and it cannot be read. Raises Refusal(UNREADABLE) naming a collection that
        can neither be read nor stood in for, sqlite3.Error when the journal is damaged.
        """
        members = journal.members() if journal is not None else {}
        self._integrity.begin(journal)
        for name in sorted(members.keys() | self._unreadable.keys()):
            if name not in self._collections:
                self._stand_in(name, members.get(name))
        if why_not:
            self._integrity.lost[FILE] = f"{why_not}; the changes of the last moments may be missing"
        if journal is not None:
            self._replay(journal, members)
        if not self._integrity.lost:
            for name in self._collections:
                on_disk.note_opened(self._folder / name)
        self._journal = journal
        self.flush()

    def _stand_in(self, name: str, spec: bytes | None) -> None:
        """An empty one, for the journal's changes; what is left of the other is not touched."""
        unreadable = self._unreadable.get(name)
        if spec is None:
            assert unreadable is not None
            raise unreadable
        place = self._folder / (name + _STAND_IN)
        on_disk.create_collection(place, msgspec.msgpack.decode(spec, type=wire.CollectionSpec))
        self._collections[name] = on_disk.load_collection(place)
        self._stand_ins.add(name)
        self._integrity.lost[name] = self.without_path(unreadable) if unreadable else "its folder is missing"

    def _replay(self, journal: Journal, members: dict[str, bytes]) -> None:
        decoder = msgspec.msgpack.Decoder(wire.Request)
        changes = [decoder.decode(change) for change in journal.changes()]
        if not self._integrity.lost:
            self._number_on()
        for change in changes:
            self._repeat(change)
        for name, collection in self._collections.items():
            if name not in members:  # an earlier version's, or made just before a kill
                journal.expect(name, wire.encode(collection.spec), engine.checksums(collection.shard))
            elif name in self._stand_ins:
                points = len(self._integrity.expected.ids(name))
                self._integrity.lost[name] = f"{points} points were in it: {self._integrity.lost[name]}"
            elif name not in self._integrity.lost and (changes or not self._left[name].sealed):
                self._integrity.compare(name)
        self._integrity.compare_more()

    def _number_on(self) -> None:
        for name, collection in self._collections.items():
            if name not in self._left or not self._left[name].sealed:
                with unreadable_unless_done(name):
                    doubt = on_disk.number_on(self._folder / name, collection.shard)
                if doubt:
                    self._integrity.lost[name] = doubt

    def _repeat(self, change: wire.Request) -> None:
        """What was refused when it came is refused again."""
        try:
            self._answers[type(change)](change)
        except Exception as error:
            refusal = error if isinstance(error, on_disk.Refusal) else on_disk.refusal_from(error)
            if refusal.verdict is wire.Verdict.UNKNOWN_POINT:  # it was deleted later
                return
            if refusal.verdict is not wire.Verdict.REFUSED:
                raise
            on_disk.log_line(f"not made again: {refusal}")

    def flush(self) -> None:
        """All that was answered is in the engine's files, and the journal empty, unless a part is lost: then
        it may be all that there is."""
        if self._integrity.lost:
            return
        for collection in self._collections.values():
            collection.shard.flush()
        self._points.unflushed = False
        if self._journal is not None:
            self._empty(self._journal)

    def _empty(self, journal: Journal) -> None:
        try:
            self._integrity.flushed()
        except (sqlite3.Error, OSError) as error:  # all is in the engine's files
            on_disk.log_line(f"the journal is made anew: {error}")
            self._integrity.expected.forget()
            journal.renew()

    @property
    def is_behind(self) -> bool:
        """There is something to do while nobody asks."""
        return self._integrity.is_behind and not self._points.unflushed

    def look_on(self) -> None:
        """A step of it; what fails is not tried again before the next flush."""
        try:
            self._integrity.look_on()
        except Exception as error:  # noqa: BLE001 — the engine raises bare Exception
            self._integrity.give_up()
            on_disk.log_line(f"vectors are not compared: {error}")

    def commit(self) -> None:
        """What was noted is on the disk when this returns. Raises sqlite3.Error, OSError: then `flush` after
        the changes were made does the same."""
        if self._journal is not None:
            self._journal.commit()

    @property
    def is_full(self) -> bool:
        """The journal is to be emptied before more is noted there."""
        return self._journal is not None and self._journal.size > MOST_BYTES

    def close(self) -> None:
        if self._journal is not None:
            try:
                self.flush()
            except Exception as error:  # noqa: BLE001 — what is in the journal comes back at the next start
                on_disk.log_line(f"the last flush failed: {error}")
            self._journal.close()
        left = on_disk.fingerprint(self._folder / FILE) if self._journal is not None else None
        while self._collections:
            name, collection = self._collections.popitem()
            if self._integrity.lost:  # as it was found, to be found again
                collection.shard.close()
            else:
                on_disk.close_collection(self._folder / name, collection, left)

    # ---- collections ----------------------------------------------------------------------------

    def _create(self, request: wire.CreateCollection) -> bool:
        name = request.collection
        if not _NAME.fullmatch(name):
            raise on_disk.Refusal(wire.Verdict.REFUSED, f"Collection name {name!r} is not allowed")
        if name in self._collections:
            raise on_disk.Refusal(wire.Verdict.REFUSED, f"Collection {name} already exists")
        target = self._folder / name
        fresh = self._folder / (name + _NEW)
        shutil.rmtree(fresh, ignore_errors=True)
        on_disk.create_collection(fresh, request.spec)
        sync_tree(fresh)
        fresh.rename(target)
        sync_folder(self._folder)
        self._collections[name] = on_disk.open_collection(target)
        self._feeds.made_or_dropped(name)
        if self._journal is not None:
            self._journal.expect(name, wire.encode(request.spec), {})
        return True

    def _drop(self, request: wire.DeleteCollection) -> bool:
        if request.collection not in self._collections:
            return False
        self.flush()  # else a start would replay its changes into another of this name
        if self._journal is not None:
            self._journal.expect_no_more(request.collection)
        collection = self._collections.pop(request.collection)
        self._feeds.made_or_dropped(request.collection)
        self._integrity.dropped(request.collection)
        collection.shard.close()
        deleted = (self._folder / request.collection).rename(self._folder / (request.collection + _DELETED))
        sync_folder(self._folder)
        shutil.rmtree(deleted, ignore_errors=True)
        return True

    def _release(self, request: wire.Release) -> None:
        collection = self._points.collection(request.collection)
        del self._collections[request.collection]
        on_disk.close_collection(self._folder / request.collection, collection)
        sync_tree(self._folder / request.collection)

    def _adopt(self, request: wire.Adopt) -> bool:
        """All that followers are owed stays: no point changes by it."""
        name = request.collection
        place, copy = self._folder / name, self._folder / request.copies / name
        last = self._points.take_last(wire.TakeLast(request.feed, request.most))
        if last is None:
            return False
        old = self._collections[name]
        changed = last.get(name, wire.LastChanged([], []))
        self._points.unflushed = True
        if self._journal is not None:
            self._journal.forget_all_vectors(name)  # the copy's are rounded once more
        try:
            self._collections[name] = on_disk.adopt(place, old, copy, changed)
        except on_disk.Refusal:
            self._collections[name] = on_disk.open_collection(place)
            raise
        self.flush()  # the journal knows nothing of what was written to the copy
        return True

    def _describe(self, request: wire.Describe) -> wire.Description:
        collection = self._points.collection(request.collection)
        info = collection.shard.info()
        return wire.Description(
            collection.spec,
            collection.shard.count(edge.CountRequest(exact=True)),
            info.segments_count,
            {field: engine.index_state(index) for field, index in info.payload_schema.items()},
        )

    # ---- damage ---------------------------------------------------------------------------------

    def _look_at(self, request: wire.LookAt) -> wire.State:
        lines, read_only = self._integrity.lines(whole=request.whole), bool(self._integrity.lost)
        if self._journal is None:
            return wire.State(lines, read_only)
        return wire.State(lines, read_only, self._journal.flushes, self._journal.is_writable())

    def _accept_loss(self, _: wire.AcceptLoss) -> list[str]:
        """What is there is all that there is, from now on; what was damaged is put aside. Returns what was
        lost."""
        lost = self._integrity.lines(whole=True)
        if not lost:
            return []
        for name in sorted(self._collections.keys() - self._stand_ins):
            if doubt := on_disk.number_on(self._folder / name, self._collections[name].shard):
                raise on_disk.Refusal(wire.Verdict.REFUSED, f"{name}: {doubt}: put it back from a backup")
        for name in sorted(self._stand_ins):
            self._put_in_place(name)
        for name, ids in self._integrity.damaged_points():
            self._collections[name].shard.update(edge.UpdateOperation.delete_points(list(ids)))
        for name, collection in self._collections.items():
            collection.shard.flush()
            on_disk.note_opened(self._folder / name)
        if self._journal is None and FILE in self._integrity.lost:
            put_aside(self._folder)
            self._journal = Journal(self._folder)
        self._integrity.begin(self._journal)
        if self._journal is not None:
            self._journal.empty({})
            for name, collection in self._collections.items():
                points = engine.checksums(collection.shard)
                self._journal.expect(name, wire.encode(collection.spec), points)
        self._integrity.accepted()
        self._stand_ins.clear()
        return lost

    def _put_in_place(self, name: str) -> None:
        place, stand_in = self._folder / name, self._folder / (name + _STAND_IN)
        self._collections.pop(name).shard.close()
        if place.exists():
            shutil.rmtree(place.with_name(name + _DAMAGED), ignore_errors=True)
            place.rename(place.with_name(name + _DAMAGED))
        sync_tree(stand_in)
        stand_in.rename(place)
        sync_folder(self._folder)
        self._collections[name] = on_disk.load_collection(place)
