from __future__ import annotations

from typing import Any

import pytest
import structlog
from pydantic import ValidationError

from config.settings import ModelSettings, StoreSettings, load_settings, not_as_fitted
from core.owners import owner_of
from routes.server import warn_of_settings


def test_a_suffix_applies_to_every_collection_except_those_with_a_configured_name() -> None:
    """Discriminates: two installations on one Qdrant server that share their turns."""
    store = StoreSettings(collection_suffix="b")
    assert store.conversation_collection == "conversations_b"
    assert (store.knowledge_collection, store.session_collection) == ("knowledge_b", "sessions_b")
    assert StoreSettings.model_validate(store.model_dump()) == store
    own = StoreSettings(collection_suffix="b", conversation_collection="turns")
    assert (own.conversation_collection, own.memory_collection) == ("turns", "memories_b")
    assert StoreSettings().operations_collection == "operations"
    with pytest.raises(ValidationError, match="another collection"):
        StoreSettings(collection_suffix="b", conversation_collection="knowledge_b")


@pytest.mark.parametrize(("replicas", "confirming"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_write_is_confirmed_by_half_of_the_replicas_rounded_up(replicas: int, confirming: int) -> None:
    """Discriminates: two of two, by which every write fails while a node is down; one of three."""
    assert StoreSettings(replication_factor=replicas).confirming_replicas == confirming


@pytest.mark.parametrize(
    ("embedding", "name"),
    [
        ("openai", "text-embedding-3-small"),
        ("openai:BAAI/bge-m3", "BAAI/bge-m3"),
        ("openai:a:b", "a:b"),
        ("bundled", "text-embedding-3-small"),
    ],
)
def test_an_embedding_endpoint_is_named_with_its_model(embedding: str, name: str) -> None:
    assert ModelSettings(embedding=embedding).openai_embedding == name


@pytest.mark.parametrize(
    ("sections", "changed"),
    [
        ({}, []),
        ({"knowledge": {"chunk_tokens": 96}}, ["CHUNK_TOKENS is 96, but the ranking was fitted with 192"]),
        (
            {"retrieval": {"reranker_input_top_n": 50}},
            ["RERANKER_INPUT_TOP_N is 50, but the ranking was fitted with 20"],
        ),
        (
            {"models": {"embedding": "openai:m"}},
            ["EMBEDDING is openai:m, but the ranking was fitted with bundled"],
        ),
        ({"models": {"embedding": "openai", "reranker": "none"}, "knowledge": {"chunk_tokens": 96}}, []),
    ],
)
def test_a_model_the_calibrated_reranker_was_not_fitted_on_is_named(
    sections: dict[str, Any], changed: list[str]
) -> None:
    settings = load_settings(**sections)
    assert not_as_fitted(settings) == changed
    with structlog.testing.capture_logs() as logged:
        warn_of_settings(settings, {})
    assert [(line["log_level"], line["settings"]) for line in logged] == [("warning", changed)] * bool(
        changed
    )


@pytest.mark.parametrize(
    ("models", "warned"),
    [
        ({"llm_model": "qwen3:8b"}, True),
        ({"llm_model": "qwen3:8b", "llms": {"default": {"provider": "extractive"}}}, True),
        ({"llm_model": "qwen3:8b", "openai_base_url": "http://127.0.0.1:11434/v1"}, False),
        ({"llm_model": "gpt-4o", "openai_api_key": "k"}, False),
        ({}, False),
    ],
)
def test_the_start_warns_of_a_configured_model_that_is_not_used(models: dict[str, Any], warned: bool) -> None:
    """Discriminates: quoted answers without a hint why the configured model does not write them."""
    with structlog.testing.capture_logs() as logged:
        warn_of_settings(load_settings(models=models), {})
    assert [line["event"] for line in logged] == ["llm_model_not_used"] * warned


def test_the_start_warns_of_a_folder_whose_owner_has_no_key() -> None:
    """Discriminates: a misspelt owner, or one whose key has changed: nobody finds the documents, and nothing
    says why."""
    owners: dict[str, str | None] = {
        "one": owner_of("k-one"),
        "admin": owner_of("k-root"),
        "name": "anna",
        "old": owner_of("k-old"),
    }
    owners |= {"all": "shared", "unset": None, "keyless": "local"}
    sources = {name: {"folder": f"/srv/{name}", "owner": owner} for name, owner in owners.items()}
    server = {"api_keys": ("k-one",), "admin_api_keys": ("k-root",)}
    for keys, strangers in ((server, ["name", "old", "keyless"]), ({}, ["one", "admin", "name", "old"])):
        settings = load_settings(server=keys, knowledge={"sources": sources})
        with structlog.testing.capture_logs() as logged:
            warn_of_settings(settings, {})
        assert [(line["event"], line["source"]) for line in logged] == [
            ("source_owner_without_key", name) for name in strangers
        ]
