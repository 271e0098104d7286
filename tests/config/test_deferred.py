"""What LlamaIndex and qdrant-client load when one of their small modules is imported, and when more of them
is used."""

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
def test_startup_imports_no_index_no_sqlalchemy_no_qdrant_client_and_no_mcp_sdk() -> None:
    """Discriminates: a start that loads parts no question uses, a server import that pulls them in, a model
    whose callbacks do; loading the MCP SDK, which only a table of tools or an agent's first request needs."""
    adapters = "services.adapters.edge.client, services.adapters.readers.documents"
    imports = f"import routes.server, api.wiring.assembly, {adapters}"
    makes_a_model = "from services.models.extractive import ExtractiveLLM; ExtractiveLLM()"
    asks = f"print([name for name in {NOT_AT_THE_START} if name in sys.modules])"
    assert python(f"{DEFERRED} {imports}; {makes_a_model}; {asks}").stdout == "[]\n"


@pytest.mark.slow("an interpreter of its own")
def test_a_library_that_inspects_all_modules_loads_nothing() -> None:
    """Discriminates: `inspect` and `warnings`, which ask each module for names of the import system."""
    asks = "import llama_index.core as whole; print(hasattr(whole, '__warningregistry__'), "
    loaded = "'llama_index.core.indices.base' in sys.modules)"
    assert python(DEFERRED + asks + loaded).stdout == "False False\n"


@pytest.mark.slow("an interpreter of its own")
def test_a_third_party_class_can_import_any_part() -> None:
    """Discriminates: a plug-in that imports what the package itself offers, and gets an empty package."""
    asks = (
        "from llama_index.core.schema import Document; "
        "from llama_index.core import VectorStoreIndex, Settings; import llama_index.core as whole; "
        "from llama_index.core.readers import SimpleDirectoryReader; "
        "from llama_index.core.postprocessor import SimilarityPostprocessor; "
        "print(whole.Document is Document, hasattr(whole, 'Nothing'), 'Settings' in whole.__all__); "
    )
    assert python(DEFERRED + asks).stdout == "True False True\n"


@pytest.mark.slow("an interpreter of its own")
def test_modules_that_depend_on_import_order_are_imported_correctly() -> None:
    """Discriminates: a plug-in that uses selectors, which import each other unless the whole package came
    first; a name that does not exist."""
    asks = "print(import_foreign('llama_index.core.selectors').LLMSingleSelector.__name__); "
    ended = python(f"{DEFERRED} {asks} import_foreign('nowhere')", check=False)
    assert ended.stdout == "LLMSingleSelector\n"
    assert "No module named 'nowhere'" in ended.stderr


@pytest.mark.slow("an interpreter of its own")
def test_nothing_changes_if_the_package_is_already_loaded() -> None:
    after = "import llama_index.core as one; "
    assert python(after + DEFERRED + "print(sys.modules['llama_index.core'] is one)").stdout == "True\n"


@pytest.mark.slow("an interpreter of its own")
def test_a_server_gets_its_client_and_shares_the_models_of_the_embedded_store() -> None:
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
