"""All shards of one data folder, and the requests they answer. Runs in the store process only.

Each collection is a folder with its name; renames create and delete it, so a crash leaves it whole or absent.
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

from core.text import counted
from services.adapters.edge import collection as on_disk
from services.adapters.edge import engine, wire
from services.adapters.edge.integrity import Integrity, unreadable_unless_done
from services.adapters.edge.journal import FILE, MAX_BYTES, Journal, put_aside, remove
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
_MIN_FREE_BYTES = 4 << 20  # left free by deletions for the engine to flush them; a start needs as much


class Noted(NamedTuple):
    """A change that may be applied; `number` is its number in the journal."""

    change: wire.Change
    number: int | None = None


class Shards:
    """Open with `open_all` and `begin`; send requests to `answer` or, for a change, to `note`, `commit` and
    `make`; then `close`. When a part is lost, all the rest can be read, and nothing is written.

    Writes that need space are refused while the disk has less than `reserve_bytes` left: a mapped file that
    cannot grow kills the process. Deletions still work: they use the reserve.
    """

    def __init__(self, folder: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = folder
        self._journal: Journal | None = None
        self._reserve_bytes = reserve_bytes
        self._for_deletions = ReserveFile(folder / wire.DELETIONS_FILE, wire.DELETIONS_BYTES)
        self._collections: dict[str, on_disk.Collection] = {}
        self._unreadable: dict[str, on_disk.Unreadable] = {}
        self._last_closes: dict[str, on_disk.LastClose] = {}
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
        """Answer one request; a change is noted, committed and applied on its own."""
        if isinstance(request, wire.CHANGES):
            noted = self.note(request)
            self.commit()
            return self.make(noted)
        if isinstance(request, wire.CreateCollection | wire.DeleteCollection | wire.Adopt):
            self._check_writable(request)
            self._make_room(request)
        return self._answers[type(request)](request)

    def note(self, request: wire.Change) -> Noted:
        """The change to be applied once `commit` has returned. Raises Refusal if it must not be."""
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
        """Apply the change. Raises Refusal, and what the engine raises."""
        change, number = noted
        try:
            return self._answers[type(change)](change)
        except Exception as error:  # the engine raises bare Exception
            partly = isinstance(error, on_disk.Refusal) and error.verdict is wire.Verdict.UNKNOWN_POINT
            if self._journal is not None and number is not None and not partly:
                self._journal.revoke(number)
                self._integrity.expected.unsure(change.collection, ids_of(change))
            raise

    def _check_writable(self, request: wire.Request) -> None:
        if self._integrity.lost and not isinstance(request, wire.CreateIndex):
            sentence = f"the store is read-only because part of it is lost: {self._integrity.line}"
            raise on_disk.Refusal(wire.Verdict.READ_ONLY, sentence)

    def _make_room(self, request: wire.Request) -> None:
        """Raises Refusal if the request would grow a file on a full disk, unless it matches no points."""
        if getattr(request, "ids", None) == []:
            return
        deletes = isinstance(request, _DELETING) or getattr(request, "deletes", False)
        if deletes and free_bytes(self._folder) < self._reserve_bytes:
            self._for_deletions.release()
        if isinstance(request, _GROWING):
            least = min(_MIN_FREE_BYTES, self._reserve_bytes) if deletes else self._reserve_bytes
            on_disk.check_room(self._folder, least)

    @property
    def unflushed(self) -> bool:
        """Whether a write is only in the engine's log, which a start would have to replay."""
        return self._points.unflushed

    def postpone_flush(self) -> None:
        """Postpone the flush until something is written again."""
        self._points.unflushed = False

    @property
    def has_room(self) -> bool:
        return free_bytes(self._folder) >= self._reserve_bytes

    def hold_reserve(self) -> None:
        """Take the reserve again, once there is space."""
        if self._journal is not None:
            self._for_deletions.acquire(self._reserve_bytes)

    def without_path(self, refusal: on_disk.Refusal) -> str:
        """Hide the folder's path, since an answer may reach a remote user, who must not learn it."""
        return str(refusal).replace(str(self._folder), "the data folder")

    # ---- life -----------------------------------------------------------------------------------

    def open_all(self, *, probing: bool = False) -> None:
        """Unreadable collections are left out until `begin`. With `probing`, those that kill their reader are
        found, too. Raises Refusal, with all untouched, when the disk is too full to open one."""
        remove_copies(self._folder)
        self._make_room_to_open()
        for entry in sorted(self._folder.glob(f"*{on_disk.OLD}")):
            on_disk.put_back(entry)
        for entry in sorted(self._folder.iterdir()):
            if entry.suffix in {_NEW, _DELETED, _STAND_IN}:
                shutil.rmtree(entry)
            elif entry.is_dir() and _NAME.fullmatch(entry.name):
                self._last_closes[entry.name] = on_disk.read_last_close(entry)
        # before the engine has threads, which a fork would not have
        doubtful = [name for name, left in self._last_closes.items() if probing or left.doubt]
        self._unseal()
        ends_reader = {name for name in doubtful if not on_disk.is_readable(self._folder / name)}
        for name, left in self._last_closes.items():
            self._open(name, left, ends_reader=name in ends_reader)

    def _make_room_to_open(self) -> None:
        """A start also writes a little. Raises Refusal when the disk is too full for it."""
        if free_bytes(self._folder) < _MIN_FREE_BYTES:
            self._for_deletions.release()
        if (left := free_bytes(self._folder)) < _MIN_FREE_BYTES:
            need = f"{left >> 20} MB are left, and opening the store needs {_MIN_FREE_BYTES >> 20}"
            sentence = f"the disk of the data folder {self._folder} is full: {need}; free some space on it"
            raise on_disk.Refusal(wire.Verdict.DISK_FULL, sentence)

    def _unseal(self) -> None:
        """The engine changes the files it loads, even in a start that fails: a later one must not call that
        damage. A damaged collection keeps its record, to be detected again. A journal that differs from the
        recorded one is removed: it is worthless when everything else is unchanged."""
        if not on_disk.is_journal_intact(self._folder / FILE, self._last_closes.values()):
            remove(self._folder)
        for name, left in self._last_closes.items():
            if left.sealed:
                on_disk.drop_close_record(self._folder / name)

    def _open(self, name: str, left: on_disk.LastClose, *, ends_reader: bool) -> None:
        place = self._folder / name
        if ends_reader:
            self._unreadable[name] = on_disk.Unreadable(f"{place} cannot be read to its end ({left.doubt})")
            return
        try:
            self._collections[name] = collection = on_disk.load_collection(place)
        except on_disk.Unreadable as error:
            self._unreadable[name] = error
            return
        if doubt := left.doubt or on_disk.doubt_about_points(collection, left):
            self._integrity.lost[name] = doubt

    def begin(self, journal: Journal | None, why_not: str = "") -> None:
        """Replay accepted changes that are only in the journal; from now on changes are noted there.

        `why_not`: why an existing journal cannot be used. Raises Refusal(UNREADABLE) naming a collection that
        can neither be read nor replaced by a stand-in, sqlite3.Error when the journal is damaged.
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
                on_disk.drop_close_record(self._folder / name)
        self._journal = journal
        self.flush()

    def _stand_in(self, name: str, spec: bytes | None) -> None:
        """Open an empty collection for the journal's changes; the remains of the lost one stay untouched."""
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
            self._advance_numbers()
        for change in changes:
            self._reapply(change)
        for name, collection in self._collections.items():
            if name not in members:  # from an earlier version, or created just before a kill
                journal.expect(name, wire.encode(collection.spec), engine.checksums(collection.shard))
            elif name in self._stand_ins:
                held = counted(len(self._integrity.expected.ids(name)), "point")
                self._integrity.lost[name] = f"held {held}: {self._integrity.lost[name]}"
            elif name in self._integrity.lost:
                with unreadable_unless_done(name):
                    self._integrity.count_missing(name)
            elif changes or not self._last_closes[name].sealed:
                self._integrity.compare(name)
        self._integrity.compare_at_start()

    def _advance_numbers(self) -> None:
        for name, collection in self._collections.items():
            if name not in self._last_closes or not self._last_closes[name].sealed:
                with unreadable_unless_done(name):
                    doubt = on_disk.advance_numbers(self._folder / name, collection.shard)
                if doubt:
                    self._integrity.lost[name] = doubt

    def _reapply(self, change: wire.Request) -> None:
        """Replay a change; one that was refused when it arrived is refused again."""
        try:
            self._answers[type(change)](change)
        except Exception as error:
            refusal = error if isinstance(error, on_disk.Refusal) else on_disk.refusal_from(error)
            if refusal.verdict is wire.Verdict.UNKNOWN_POINT:  # it was deleted later
                return
            if refusal.verdict is not wire.Verdict.REFUSED:
                raise
            on_disk.log_line(f"not replayed: {refusal}")

    def flush(self) -> None:
        """Flush everything answered to the engine's files and empty the journal, unless a part is lost: the
        journal may then be the only copy."""
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
        except (sqlite3.Error, OSError) as error:  # everything is in the engine's files
            on_disk.log_line(f"the journal is recreated: {error}")
            self._integrity.expected.forget()
            journal.renew()

    @property
    def is_behind(self) -> bool:
        """Whether there is work to do while idle."""
        return self._integrity.is_behind and not self._points.unflushed

    def idle_step(self) -> None:
        """Take one step of the idle work; after a failure it stops until the next flush."""
        try:
            self._integrity.idle_step()
        except Exception as error:  # noqa: BLE001 — the engine raises bare Exception
            self._integrity.give_up()
            on_disk.log_line(f"vectors are not compared: {error}")

    def commit(self) -> None:
        """On return, all noted changes are on disk. Raises sqlite3.Error, OSError; applying the changes and
        then calling `flush` is equivalent."""
        if self._journal is not None:
            self._journal.commit()

    @property
    def is_full(self) -> bool:
        """Whether the journal must be emptied before more is noted there."""
        return self._journal is not None and self._journal.size > MAX_BYTES

    def close(self) -> None:
        if self._journal is not None:
            try:
                self.flush()
            except Exception as error:  # noqa: BLE001 — the next start replays the journal
                on_disk.log_line(f"the last flush failed: {error}")
            self._journal.close()
        left = on_disk.fingerprint(self._folder / FILE) if self._journal is not None else None
        while self._collections:
            name, collection = self._collections.popitem()
            if self._integrity.lost:  # unsealed, so that the loss is detected again
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
        self._feeds.created_or_deleted(name)
        if self._journal is not None:
            self._journal.expect(name, wire.encode(request.spec), {})
        return True

    def _drop(self, request: wire.DeleteCollection) -> bool:
        if request.collection not in self._collections:
            return False
        self.flush()  # else a start would replay its changes into a new collection of this name
        if self._journal is not None:
            self._journal.stop_expecting(request.collection)
        collection = self._collections.pop(request.collection)
        self._feeds.created_or_deleted(request.collection)
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
        """Changes that followers have not taken yet are kept: adopting changes no point."""
        name = request.collection
        place, copy = self._folder / name, self._folder / request.copies / name
        last = self._points.take_last(wire.TakeLast(request.feed, request.max_points))
        if last is None:
            return False
        old = self._collections[name]
        changed = last.get(name, wire.LastChanged([], []))
        self._points.unflushed = True
        if self._journal is not None:
            self._journal.forget_all_vectors(name)  # those of the copy are rounded once more
        try:
            self._collections[name] = on_disk.adopt(place, old, copy, changed)
        except on_disk.Refusal:
            self._collections[name] = on_disk.open_collection(place)
            raise
        self.flush()  # the journal does not have what was written to the copy
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
        """Treat what is left as complete from now on, and set damaged files aside. Returns what was lost."""
        lost = self._integrity.lines(whole=True)
        if not lost:
            return []
        for name in sorted(self._collections.keys() - self._stand_ins):
            if doubt := on_disk.advance_numbers(self._folder / name, self._collections[name].shard):
                raise on_disk.Refusal(wire.Verdict.REFUSED, f"{name}: {doubt}: restore it from a backup")
        for name in sorted(self._stand_ins):
            self._put_in_place(name)
        for name, ids in self._integrity.damaged_points():
            self._collections[name].shard.update(edge.UpdateOperation.delete_points(list(ids)))
        for name, collection in self._collections.items():
            collection.shard.flush()
            on_disk.drop_close_record(self._folder / name)
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
