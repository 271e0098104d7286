"""A collection's compacted copy takes its place. Runs in the store process only.

An open shard knows its files by their path, so both shards are closed while folders change names:
NAME → NAME.old, copy → NAME, open it and write what changed meanwhile, NAME.old → away. While there is a
NAME.old it is the collection, and a start puts it back; from its removal on, NAME is.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import qdrant_edge as edge

from core.failpoints import failpoint
from services.adapters import edge_engine as engine
from services.adapters import edge_wire as wire
from services.adapters.edge_collection import Collection, Refusal, open_collection
from services.adapters.edge_files import sync_folder
from services.adapters.edge_memory import release_mapped_files

OLD = ".old"


class _Known(NamedTuple):
    """What the copy must have in common with the original."""

    points: int
    indexes: frozenset[str]


def adopt(place: Path, old: Collection, copy: Path, last: wire.LastChanged) -> Collection:
    """Close `old`, and return the copy, open in its place; what was written last is to be flushed.

    Raises Refusal(UNAVAILABLE) when the copy is not the collection; then `old` is closed, too, and is to be
    opened again.
    """
    known = _known(old)
    old.shard.close()
    failpoint("compact.adopting")
    aside = place.rename(place.with_name(place.name + OLD))
    try:
        copy.rename(place)
        sync_folder(place.parent)
        failpoint("compact.renamed")
        adopted = _open_changed(place, last, known)
    except Exception as error:  # the engine raises bare Exception
        put_back(aside)
        raise Refusal(wire.Verdict.UNAVAILABLE, f"the compacted copy was not taken: {error}") from error
    aside.rename(copy)
    sync_folder(place.parent)
    failpoint("compact.adopted")
    return adopted


def _open_changed(place: Path, last: wire.LastChanged, known: _Known) -> Collection:
    adopted = open_collection(place)
    try:
        _write(adopted.shard, last)
        _compare(_known(adopted), known)
    except Exception:
        adopted.shard.close()
        raise
    release_mapped_files(place)
    return adopted


def _known(collection: Collection) -> _Known:
    shard = collection.shard
    return _Known(shard.count(edge.CountRequest(exact=True)), frozenset(shard.info().payload_schema))


def _compare(copy: _Known, original: _Known) -> None:
    if copy != original:
        raise Refusal(wire.Verdict.UNAVAILABLE, f"it has {copy} instead of {original}")


def _write(shard: edge.EdgeShard, last: wire.LastChanged) -> None:
    if last.records:
        points = engine.points(wire.point_of(found) for found in last.records)
        shard.update(edge.UpdateOperation.upsert_points(points))
    if last.gone:
        shard.update(edge.UpdateOperation.delete_points(list(last.gone)))


def put_back(aside: Path) -> None:
    """Undo an adoption that did not come to its end; both shards are closed."""
    place = aside.with_name(aside.name.removesuffix(OLD))
    if place.exists():
        shutil.rmtree(place)
    aside.rename(place)
    sync_folder(place.parent)
