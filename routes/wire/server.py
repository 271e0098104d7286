"""What the server is and offers (including the library), whether it is ready, and how much it stores."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from routes.wire.fields import MaxTokens, PlainText, Reply, Temperature, WireModel, example


class Liveness(Reply):
    """The process is responding."""

    model_config = example({"status": "live"})

    status: Literal["live"] = Field(description="Always live.")


class Readiness(Reply):
    """Whether questions can be asked."""

    model_config = example({"status": "ready", "problems": {}, "warnings": {}, "durability": "power"})

    status: Literal["ready", "degraded", "not_ready"] = Field(
        description="degraded: questions can be asked, but that may end soon, or stored data was lost and "
        "the store is read-only."
    )
    problems: dict[str, str] = Field(description="Why the server is not ready, by part.")
    warnings: dict[str, str] = Field(description="What may soon become a problem, or was lost, by part.")
    durability: Literal["power", "process", "server"] = Field(
        description="What an acknowledged change survives: a power cut, the end of the process, or what the "
        "Qdrant server promises."
    )


class Model(Reply):
    """A configured model."""

    id: str = Field(description="The value for `model_id`.")
    label: str = Field(description="The model's display name.")
    provider: str = Field(description="The provider, such as openai or gguf.")
    generative: bool = Field(description="false: the model only quotes documents.")
    vision: bool = Field(False, description="Whether questions may contain images.")


class ModelList(Reply):
    """The models that can answer questions."""

    model_config = example(
        {
            "models": [{"id": "default", "label": "DeepSeek", "provider": "openai", "generative": True}],
            "default": "default",
        }
    )

    models: list[Model] = Field(description="The models, in the order of the configuration.")
    default: str = Field(description="The model that answers if none is named.")


class ModelTable(WireModel):
    """The request body of PUT /admin/models/{model_id}: a model's table of wenmai.toml without its key."""

    model_config = example(
        {"provider": "openai", "base_url": "https://api.deepseek.com/v1", "model": "deepseek-chat",
         "api_key_env": "DEEPSEEK_API_KEY"}
    )  # fmt: skip

    provider: Literal["openai", "anthropic"] = Field(description="The API that the model's server speaks.")
    model: PlainText = Field(min_length=1, max_length=200, description="The model's name at the provider.")
    base_url: PlainText | None = Field(
        None, max_length=500, description="The URL of the model's server; absent: the provider's."
    )
    api_key_env: PlainText | None = Field(
        None, max_length=100, description="The environment variable that holds the API key."
    )
    context_window: int | None = Field(None, description="Tokens; absent: as reported by the model's server.")
    max_tokens: MaxTokens = Field(2_048, description="The longest answer, in tokens.")
    temperature: Temperature = Field(0.2, description="Sampling temperature.")
    layout: Literal["auto", "one_system", "many_system", "system_field", "flat"] | None = Field(
        None, description="How messages are arranged."
    )
    begins_thinking: Literal["auto", "always", "never"] = Field(
        "auto", description="Whether answers begin in thinking without a tag."
    )
    options: dict[str, Any] = Field({}, description="Further parameters of every request.")
    thinking_on: dict[str, Any] | None = Field(None, description="Parameters when thinking is requested.")
    thinking_off: dict[str, Any] | None = Field(None, description="Parameters when thinking is not wanted.")


class StoredModels(Reply):
    """The models added while the server runs."""

    model_config = example({"models": {"fast": {"provider": "openai", "model": "deepseek-chat"}}})

    models: dict[str, dict[str, Any]] = Field(description="The models' tables by id, as sent.")


class AvailableModel(Reply):
    """A model that a server offers."""

    name: str = Field(description="The value for `model`.")
    window: int = Field(description="The context window in tokens; 0: not reported by the server.")


class AvailableModels(Reply):
    """The models a server offers."""

    model_config = example({"models": [{"name": "deepseek-chat", "window": 0}], "message": ""})

    models: list[AvailableModel] = Field(description="The models, in the server's order.")
    message: str = Field(description="Why the server returned no list; empty if it did.")


class ModelAnswer(Reply):
    """How one model answered a short question."""

    name: str = Field(description="`model` and the model's id, `embedding` or `reranker`.")
    ok: bool = Field(description="Whether the model answered.")
    time_ms: float = Field(description="Milliseconds until the model answered or failed.")
    cause: str = Field(description="Why the model did not answer, for programs; empty if it did.")
    message: str = Field(description="The same in a sentence for a person, with the setting to check.")


class ModelCheck(Reply):
    """The results of asking every model."""

    model_config = example(
        {
            "models": [
                {"name": "model default", "ok": True, "time_ms": 412.5, "cause": "", "message": ""},
                {
                    "name": "embedding",
                    "ok": False,
                    "time_ms": 3.1,
                    "cause": "unreachable",
                    "message": "The embedding model at http://127.0.0.1:8080 cannot be reached. Is it "
                    "running? EMBEDDING_BASE_URL sets its address.",
                },
            ]
        }
    )

    models: list[ModelAnswer] = Field(description="The language models, the embedding and the reranker.")


class Prompts(Reply):
    """The prompts for models."""

    model_config = example({"overridden": ["general.zh", "knowledge.zh"]})

    overridden: list[str] = Field(description="The names of the prompts that PROMPTS_DIR overrides.")


class TopN(Reply):
    """How many passages a question may request."""

    default: int = Field(description="The number if a question requests none.")
    max: int = Field(description="The largest number that a question may request.")


class PublicSettings(Reply):
    """What a front end needs to know before asking."""

    model_config = example(
        {
            "max_question_chars": 8000,
            "max_persona_chars": 16000,
            "max_upload_bytes": 52428800,
            "expire_days": 180,
            "store_id": "0b0e7f5c-2a1d-4a0f-9b3c-6d8e1f2a3b4c",
            "embedding": "multilingual-e5-small",
            "formats": [".md", ".pdf"],
            "tools": ["calendar", "search_knowledge"],
            "insert_block": True,
            "rerank_top_n": {"default": 10, "max": 50},
        }
    )

    max_question_chars: int = Field(description="The longest question, in characters.")
    max_persona_chars: int = Field(description="The longest persona, in characters.")
    max_upload_bytes: int = Field(description="The largest upload, in bytes.")
    expire_days: int = Field(description="The age at which turns expire, in days.")
    store_id: str = Field("", description="The embedded store's id; empty for a Qdrant server.")
    embedding: str = Field(description="The embedding model.")
    formats: list[str] = Field(description="The extensions of files that can be ingested.")
    tools: list[str] = Field(description="The names that `tools` of a question may contain.")
    insert_block: bool = Field(description="Whether some model can judge candidates.")
    rerank_top_n: TopN = Field(description="How many passages a question may request.")


class Widget(Reply):
    """A small chat for the pages of the sites in CORS_ORIGINS."""

    model_config = example(
        {
            "html": '<script src="https://wenmai.example.org/widget.js" data-key="site-…"></script>',
            "origins": ["https://www.example.org"],
        }
    )

    html: str = Field(
        description="HTML for a page. Its key only allows asking; every visitor has a separate history."
    )
    origins: list[str] = Field(description="The sites on which it works.")


class Statistics(Reply):
    """How much is stored, and what is running."""

    model_config = example(
        {
            "store_id": "0b0e7f5c-2a1d-4a0f-9b3c-6d8e1f2a3b4c",
            "stored": {"turns": 240, "sessions": 30, "documents": 12, "chunks": 480, "memories": 0},
            "chunks_made_for": 20000,
            "bytes_on_disk": 7340032,
            "running_turns": 1,
            "tasks": 14,
        }
    )

    store_id: str = Field("", description="The embedded store's id; empty for a Qdrant server.")
    stored: dict[str, int] = Field(description="The number of stored items, by kind.")
    chunks_made_for: int | None = Field(description="How many chunks the engine is designed for; null: any.")
    bytes_on_disk: int | None = Field(description="Size on disk; null: not reported by the engine.")
    running_turns: int = Field(description="Turns being answered.")
    tasks: int = Field(description="Tasks of the event loop.")


class LibraryModule(Reply):
    """A folder of the library."""

    name: str = Field(description="The module's name.")
    batches: int = Field(description="The number of batches.")


class LibraryModules(Reply):
    """The contents of the library."""

    model_config = example(
        {"modules": [{"name": "客服", "batches": 2}], "problems": ["客服/旧.csv: it contains no items."]}
    )

    modules: list[LibraryModule] = Field(description="The modules, sorted by name.")
    problems: list[str] = Field(description="One line per file left out, with the reason.")


class LibraryBatchName(Reply):
    """A file of a module."""

    model_config = example({"batch_name": "售前", "items": 12})

    batch_name: str = Field(description="The batch's name: the file name without extension.")
    items: int = Field(description="The number of items.")


class LibraryBatches(Reply):
    """The batches of one module."""

    model_config = example({"module": "客服", "batches": [{"batch_name": "售前", "items": 12}]})

    module: str = Field(description="The module's name.")
    batches: list[LibraryBatchName] = Field(description="The batches, sorted by name.")


class LibraryItem(Reply):
    """A persona, a prompt template, or any other text."""

    title: str = Field(description="The item's title.")
    content: str = Field(description="The item's text.")
    variables: list[str] = Field(description="The names in braces; an item with any is a prompt template.")


class LibraryItems(Reply):
    """A page of the items of one batch."""

    model_config = example(
        {
            "module": "客服",
            "batch_name": "售前",
            "items": [{"title": "顾问", "content": "你是{产品}的售前顾问。", "variables": ["产品"]}],
            "next": None,
        }
    )

    module: str = Field(description="The module's name.")
    batch_name: str = Field(description="The batch's name.")
    items: list[LibraryItem] = Field(description="The items, in the order of the file.")
    next: int | None = Field(description="`after` of the next page; null: this is the last one.")


class PromptTemplate(LibraryItem):
    """An item with variables, and its location."""

    module: str = Field(description="The item's module.")
    batch_name: str = Field(description="The item's batch.")


class PromptTemplates(Reply):
    """Prompt templates shared by all users."""

    model_config = example(
        {
            "templates": [
                {
                    "module": "日常",
                    "batch_name": "周报",
                    "title": "周报",
                    "content": "总结{项目}的进展。",
                    "variables": ["项目"],
                }
            ]
        }
    )

    templates: list[PromptTemplate] = Field(description="Templates whose titles begin with `q` come first.")
