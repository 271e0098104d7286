"""A store is moved between the engines, in both directions, and the counts are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.offline.stores import open_source, open_target
from core.errors import StartRefusedError
from core.operations.reports import ReceiptKind
from services.operations.backup.filling import (
    FillReport,
    Migration,
    MoveIncompleteError,
    StoreNotEmptyError,
    Target,
)
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore
from tests.services.adapters.edge.stores import NO_INDEX_WARNING, open_store
from tests.services.operations.backup.stores import contents, fill, make, open_embedded, settings_of
from tests.services.operations.backup.test_filling import same_points
from tests.services.operations.reembedding.test_run import ForgetfulClient

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)


async def move(source: VectorStore, target: Target) -> FillReport:
    return await Migration(source, target.settings).into(target, lambda _: None)


@pytest.mark.full("works through many cases, for seconds")
async def test_a_migration_there_and_back_changes_nothing(tmp_path: Path) -> None:
    first, second = settings_of(tmp_path / "first"), settings_of(tmp_path / "second")
    async with open_store("memory", tmp_path) as server:
        async with open_embedded(tmp_path / "first") as source:
            await fill(source, first, 100)
            restored = await contents(source, first)
            plan = await Migration(source, first).plan()
            report = await move(source, Target(server, first))
            assert report.points == plan.points
            assert sum(plan.points.values()) == sum(map(len, restored.values()))
        same_points(await contents(server, first), restored)
        async with open_target(second) as target:
            await move(server, target)
        async with open_source(second) as back:
            same_points(await contents(back, second), restored)
            receipts = await ReceiptStore(back, "operations").newest(kind=ReceiptKind.MIGRATION)
            assert [receipt.counts["conversations"] for receipt in receipts] == [100, 100]


async def test_a_non_empty_target_is_refused(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    async with open_store("memory", tmp_path) as source, open_store("memory", tmp_path) as target:
        for store in (source, target):
            await make(store, settings)
            await fill(store, settings)
        with pytest.raises(StoreNotEmptyError, match="5 in conversations"):
            await move(source, Target(target, settings))


async def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    async with open_store("memory", tmp_path) as source:
        with pytest.raises(StartRefusedError):
            await Migration(source, settings_of(tmp_path)).plan()
    with pytest.raises(StartRefusedError, match="there is no store"):
        async with open_source(settings_of(tmp_path / "nowhere")):
            pass
    assert not (tmp_path / "nowhere").exists()


async def test_missing_points_are_noticed(tmp_path: Path) -> None:
    """Discriminates: not comparing counts."""
    settings = settings_of(tmp_path)
    target = ForgetfulClient(":memory:")
    async with open_store("memory", tmp_path) as source:
        await make(source, settings)
        await fill(source, settings)
        with pytest.raises(MoveIncompleteError, match="the target has a different number"):
            await move(source, Target(target, settings))  # type: ignore[arg-type]
    await target.close()
