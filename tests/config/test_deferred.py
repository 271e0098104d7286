"""What LlamaIndex and qdrant-client load when a small module of theirs is imported, and when more is asked
for."""

from __future__ import annotations

import pytest

from tests.support.servers.commands import python

DEFERRED = "import sys; from config.deferred import defer_packages, import_foreign; defer_packages(); "
NOT_AT_THE_START = (
    *("llama_index.core.indices.base", "sqlalchemy"),
    *("grpc", "qdrant_client.http.api_client"),
    *("mcp", "jsonschema"),
)


@pytest.mark.slow("an interpreter of its own")
def test_a_start_imports_no_index_no_sqlalchemy_no_client_of_qdrant_and_nothing_of_mcp() -> None:
    """Discriminates: a start that waits for parts that no question uses, an import of the server's that asks
    for them, and a model whose callbacks do; and the SDK of MCP, which is for a table of tools, or for the
    first request of an agent."""
    adapters = "services.adapters.edge.client, services.adapters.readers.documents"
    imports = f"import routes.server, api.wiring.assembly, {adapters}"
    makes_a_model = "from services.models.extractive import ExtractiveLLM; ExtractiveLLM()"
    asks = f"print([name for name in {NOT_AT_THE_START} if name in sys.modules])"
    assert python(f"{DEFERRED} {imports}; {makes_a_model}; {asks}").stdout == "[]\n"


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


@pytest.mark.slow("an interpreter of its own")
def test_what_needs_its_own_order_is_imported_all_the_same() -> None:
    """Discriminates: a plug-in made of selectors, which import each other unless the whole package came
    first; and one that is not there."""
    asks = "print(import_foreign('llama_index.core.selectors').LLMSingleSelector.__name__); "
    ended = python(f"{DEFERRED} {asks} import_foreign('nowhere')", check=False)
    assert ended.stdout == "LLMSingleSelector\n"
    assert "No module named 'nowhere'" in ended.stderr


@pytest.mark.slow("an interpreter of its own")
def test_where_it_is_loaded_already_nothing_changes() -> None:
    after = "import llama_index.core as one; "
    assert python(after + DEFERRED + "print(sys.modules['llama_index.core'] is one)").stdout == "True\n"


@pytest.mark.slow("an interpreter of its own")
def test_a_server_gets_its_client_and_the_models_are_those_of_the_embedded_store() -> None:
    """Discriminates: models that exist twice, and models that are not complete when they are first made."""
    embedded = (
        "from qdrant_client.http.models import models as ours; "
        "made = ours.Filter(must=[ours.FieldCondition(key='k', match=ours.MatchValue(value=1))]); "
    )
    server = (
        "from qdrant_client import AsyncQdrantClient, models; from qdrant_client.http import models as same; "
    )
    shown = (
        "print(made.must[0].match.value, AsyncQdrantClient.__name__, "
        "models.Filter is same.Filter, same.Filter is ours.Filter)"
    )
    assert python(DEFERRED + embedded + server + shown).stdout == "1 AsyncQdrantClient True True\n"
