"""What the server is, what it offers (the library among it), whether it is ready, and how much it stores."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from routes.wire.fields import MaxTokens, PlainText, Reply, Temperature, WireModel, example


class Liveness(Reply):
    """The process answers."""

    model_config = example({"status": "live"})

    status: Literal["live"] = Field(description="Always live.")


class Readiness(Reply):
    """Whether a question can be asked."""

    model_config = example({"status": "ready", "problems": {}, "warnings": {}, "durability": "power"})

    status: Literal["ready", "degraded", "not_ready"] = Field(
        description="degraded: a question can be asked, and that may end soon, or a part of what was stored "
        "is lost and nothing is written."
    )
    problems: dict[str, str] = Field(description="Why it is not ready, by part.")
    warnings: dict[str, str] = Field(description="What may end it soon, or is lost, by part.")
    durability: Literal["power", "process", "server"] = Field(
        description="What an acknowledged change survives: a cut of power, the end of the process, or what "
        "the Qdrant server promises."
    )


class Model(Reply):
    """A configured model."""

    id: str = Field(description="What `model_id` takes.")
    label: str = Field(description="What people call it.")
    provider: str = Field(description="Who answers.")
    generative: bool = Field(description="false: it quotes, and does not write.")
    vision: bool = Field(False, description="Whether a question may have images.")


class ModelList(Reply):
    """The models a question may be sent to."""

    model_config = example(
        {
            "models": [{"id": "default", "label": "DeepSeek", "provider": "openai", "generative": True}],
            "default": "default",
        }
    )

    models: list[Model] = Field(description="As configured.")
    default: str = Field(description="The one that answers when none is named.")


class ModelTable(WireModel):
    """What PUT /admin/models/{model_id} takes: a model's table as in wenmai.toml, but for its key."""

    model_config = example(
        {"provider": "openai", "base_url": "https://api.deepseek.com/v1", "model": "deepseek-chat",
         "api_key_env": "DEEPSEEK_API_KEY"}
    )  # fmt: skip

    provider: Literal["openai", "anthropic"] = Field(description="Whose API it speaks.")
    model: PlainText = Field(min_length=1, max_length=200, description="Its name there.")
    base_url: PlainText | None = Field(
        None, max_length=500, description="Its server; absent: the provider's."
    )
    api_key_env: PlainText | None = Field(
        None, max_length=100, description="The variable that holds its key."
    )
    context_window: int | None = Field(None, description="Tokens; absent: as its server tells.")
    max_tokens: MaxTokens = Field(2_048, description="The longest answer.")
    temperature: Temperature = Field(0.2, description="Sampling temperature.")
    layout: Literal["auto", "one_system", "many_system", "system_field", "flat"] | None = Field(
        None, description="How messages are laid out."
    )
    begins_thinking: Literal["auto", "always", "never"] = Field(
        "auto", description="Whether answers begin in thinking without a tag."
    )
    options: dict[str, Any] = Field({}, description="Further parameters of every request.")
    thinking_on: dict[str, Any] | None = Field(None, description="Parameters when thinking is asked for.")
    thinking_off: dict[str, Any] | None = Field(None, description="Parameters when it is not.")


class StoredModels(Reply):
    """The models that were added while the server ran."""

    model_config = example({"models": {"fast": {"provider": "openai", "model": "deepseek-chat"}}})

    models: dict[str, dict[str, Any]] = Field(description="Their tables by id, as they were written.")


class AvailableModel(Reply):
    """A model that a server offers."""

    name: str = Field(description="What `model` takes.")
    window: int = Field(description="Tokens that it reads; 0: its server does not tell.")


class AvailableModels(Reply):
    """What a server offers."""

    model_config = example({"models": [{"name": "deepseek-chat", "window": 0}], "message": ""})

    models: list[AvailableModel] = Field(description="In the server's order.")
    message: str = Field(description="Why the server told nothing; empty when it did.")


class ModelAnswer(Reply):
    """How one model answered a short question."""

    name: str = Field(description="`model` and its id, `embedding` or `reranker`.")
    ok: bool = Field(description="Whether it answered.")
    time_ms: float = Field(description="Until its answer, or until it was known that there is none.")
    cause: str = Field(description="Why it did not, as a word; empty when it did.")
    message: str = Field(description="The same for people, with the setting to look at.")


class ModelCheck(Reply):
    """How every model answered."""

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
    """The texts for models."""

    model_config = example({"overridden": ["general.zh", "knowledge.zh"]})

    overridden: list[str] = Field(description="The names of those that PROMPTS_DIR overrides.")


class TopN(Reply):
    """How many candidates a question may ask for."""

    default: int = Field(description="When it does not say.")
    max: int = Field(description="At most.")


class PublicSettings(Reply):
    """What a front end needs to know before it asks."""

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

    max_question_chars: int = Field(description="The longest question.")
    max_persona_chars: int = Field(description="The longest persona.")
    max_upload_bytes: int = Field(description="The largest upload.")
    expire_days: int = Field(description="The age at which turns expire, in days.")
    store_id: str = Field("", description="The embedded store's own id; empty of a Qdrant server's.")
    embedding: str = Field(description="The embedding model.")
    formats: list[str] = Field(description="The endings of files that can be read in.")
    tools: list[str] = Field(description="What `tools` in a question may name.")
    insert_block: bool = Field(description="Whether some model can judge candidates.")
    rerank_top_n: TopN = Field(description="How many candidates a question may ask for.")


class Widget(Reply):
    """A small chat for the pages of the sites in CORS_ORIGINS."""

    model_config = example(
        {
            "html": '<script src="https://wenmai.example.org/widget.js" data-key="site-…"></script>',
            "origins": ["https://www.example.org"],
        }
    )

    html: str = Field(
        description="What to put into a page. Its key is for asking alone: every visitor has a history apart."
    )
    origins: list[str] = Field(description="The sites on which it works.")


class Statistics(Reply):
    """How much is stored, and what runs just now."""

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

    store_id: str = Field("", description="The embedded store's own id; empty of a Qdrant server's.")
    stored: dict[str, int] = Field(description="Things in the store, by kind.")
    chunks_made_for: int | None = Field(description="Chunks the engine is meant for; null: any number.")
    bytes_on_disk: int | None = Field(description="Size on the disk; null: the engine does not say.")
    running_turns: int = Field(description="Turns that are answered now.")
    tasks: int = Field(description="Tasks of the event loop.")


class LibraryModule(Reply):
    """A folder of the library."""

    name: str = Field(description="Its name.")
    batches: int = Field(description="How many batches it has.")


class LibraryModules(Reply):
    """What the library has."""

    model_config = example(
        {"modules": [{"name": "客服", "batches": 2}], "problems": ["客服/旧.csv: no item in it."]}
    )

    modules: list[LibraryModule] = Field(description="By name.")
    problems: list[str] = Field(description="A line for each file that was left out, with the reason.")


class LibraryBatchName(Reply):
    """A file of a module."""

    model_config = example({"batch_name": "售前", "items": 12})

    batch_name: str = Field(description="Its name: that of the file without its ending.")
    items: int = Field(description="How many items it has.")


class LibraryBatches(Reply):
    """The batches of one module."""

    model_config = example({"module": "客服", "batches": [{"batch_name": "售前", "items": 12}]})

    module: str = Field(description="The module.")
    batches: list[LibraryBatchName] = Field(description="By name.")


class LibraryItem(Reply):
    """A persona, a prompt template, or any other text."""

    title: str = Field(description="Its title.")
    content: str = Field(description="Its text.")
    variables: list[str] = Field(description="The names in braces; one with some is a prompt template.")


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

    module: str = Field(description="The module.")
    batch_name: str = Field(description="The batch.")
    items: list[LibraryItem] = Field(description="In the order of the file.")
    next: int | None = Field(description="`after` of the next page; null: this is the last one.")


class PromptTemplate(LibraryItem):
    """An item with variables, and where it stands."""

    module: str = Field(description="Its module.")
    batch_name: str = Field(description="Its batch.")


class PromptTemplates(Reply):
    """Prompt templates that everybody may use."""

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

    templates: list[PromptTemplate] = Field(description="Those whose title begins with the words first.")
