"""Fixtures that several packages use.

They import the application themselves: the process that distributes the tests reads this file before it
starts its workers, and needs nothing of the application.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.warm.client import can_be_forked

if TYPE_CHECKING:
    from tests.support.servers.app import App

# A slow machine is not a failure: the tests about time measure it themselves.
settings.register_profile("wenmai", deadline=None)
settings.load_profile("wenmai")


def pytest_configure() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Freeze what was loaded: each full garbage collection would scan all of it."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _children_are_forked() -> Iterator[None]:
    """Fork stores and parsers of this process; a server that a test starts has its own, started as usual."""
    from services.knowledge.parsing import process
    from services.store import spawn
    from tests.support.warm.parsers import begin_forked
    from tests.support.warm.stores import spawn_forked

    with pytest.MonkeyPatch.context() as here:
        if can_be_forked({}):
            here.setattr(spawn, "_spawn", spawn_forked)
            here.setattr(process, "_begin", begin_forked)
        yield


@pytest.fixture
def started_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are children of this process, as they are of a server."""
    from services.knowledge.parsing import process
    from services.store import spawn
    from tests.support.warm.parsers import begin_started
    from tests.support.warm.stores import spawn_started

    monkeypatch.setattr(spawn, "_spawn", spawn_started)
    monkeypatch.setattr(process, "_begin", begin_started)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command that runs inside a test configures the logs of the process, on a stream that ends with the
    test; loggers used meanwhile would keep that stream."""
    import structlog

    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        lazy = type(structlog.get_logger())
        for module in list(sys.modules.values()):
            logger = vars(module).get("log")
            if isinstance(logger, lazy):
                vars(logger).pop("bind", None)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """The real application with the extractive answerer and a hashing embedding."""
    from tests.support.servers.app import make_settings, open_app

    async with open_app(make_settings(tmp_path)) as opened:
        yield opened


@pytest.fixture
def on_disk(pytestconfig: pytest.Config) -> Iterator[Path]:
    """For tests that measure the space of files: in memory, where other tests have theirs, a hole in a file
    takes space, too."""
    assert pytestconfig.cache
    with tempfile.TemporaryDirectory(dir=pytestconfig.cache.mkdir("stores")) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real server without a configuration, with real models and a few pages of the guide."""
    from tests.support.servers.sample import guided_folder
    from tests.support.servers.server import running_server

    with running_server(guided_folder(tmp_path_factory), LOAD_SAMPLE="false") as started:
        yield started.url


@pytest.fixture(scope="session")
def sample_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real server as a newcomer has it: the whole guide is its sample, which takes a minute to ingest."""
    from tests.support.servers.sample import sampled_folder
    from tests.support.servers.server import running_server

    with running_server(sampled_folder(tmp_path_factory)) as started:
        yield started.url
