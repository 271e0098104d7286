"""What LlamaIndex and qdrant-client load when a small module of theirs is imported, and when more is asked
for."""

from __future__ import annotations

import pytest

from tests.support.servers.commands import python

DEFERRED = "import sys; from config.deferred import defer_packages, import_foreign; defer_packages(); "
IS_WHOLE = "print('llama_index.core.indices.base' in sys.modules, 'sqlalchemy' in sys.modules)"


@pytest.mark.slow("an interpreter of its own")
def test_the_models_and_readers_are_imported_without_every_index_and_sqlalchemy() -> None:
    """Discriminates: a start that waits for parts that no question uses, an import of the server's that asks
    for them, and a model whose callbacks do."""
    modules = "api.wiring.parts, services.retrieval.reranking, services.adapters.readers.documents"
    makes_a_model = "from services.models.extractive import ExtractiveLLM; ExtractiveLLM(); "
    assert python(f"{DEFERRED} import {modules}; {makes_a_model} {IS_WHOLE}").stdout == "False False\n"


@pytest.mark.slow("an interpreter of its own")
def test_a_class_of_other_people_gets_any_part() -> None:
    """Discriminates: a plug-in that imports what the package itself offers, and meets an empty package."""
    asks = (
        "from llama_index.core.schema import Document; "
        "from llama_index.core import VectorStoreIndex, Settings; import llama_index.core as whole; "
        "from llama_index.core.readers import SimpleDirectoryReader; "
        "from llama_index.core.postprocessor import SimilarityPostprocessor; "
        "print(whole.Document is Document, hasattr(whole, 'Nothing'), 'Settings' in whole.__all__); "
    )
    assert python(DEFERRED + asks).stdout == "True False True\n"


@pytest.mark.slow("two interpreters of their own")
def test_what_needs_its_own_order_is_imported_all_the_same() -> None:
    """Discriminates: a plug-in made of selectors, which import each other unless the whole package came
    first; and one that is not there."""
    asks = "print(import_foreign('llama_index.core.selectors').LLMSingleSelector.__name__)"
    assert python(DEFERRED + asks).stdout == "LLMSingleSelector\n"
    assert "No module named 'nowhere'" in python(f"{DEFERRED} import_foreign('nowhere')", check=False).stderr


@pytest.mark.slow("an interpreter of its own")
def test_where_it_is_loaded_already_nothing_changes() -> None:
    after = "import llama_index.core as one; "
    assert python(after + DEFERRED + "print(sys.modules['llama_index.core'] is one)").stdout == "True\n"


@pytest.mark.slow("an interpreter of its own")
def test_the_embedded_store_loads_no_client_and_a_server_gets_its_own() -> None:
    """Discriminates: gRPC and every client in a process that asks no server: 11 MB, a fifth of a second."""
    embedded = (
        "import services.adapters.edge.client, services.store.collections; print('grpc' in sys.modules); "
    )
    server = (
        "from qdrant_client import AsyncQdrantClient, models; from qdrant_client.http import models as same; "
    )
    shown = "print('grpc' in sys.modules, AsyncQdrantClient.__name__, models.Record is same.Record)"
    assert python(DEFERRED + embedded + server + shown).stdout == "False\nTrue AsyncQdrantClient True\n"
