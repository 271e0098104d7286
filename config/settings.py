"""Settings: typed, bounded, frozen sections, read from the environment and one optional wenmai.toml.

Every setting has one name in both places: `MAX_RECENT_TURNS=5` in the environment, `max_recent_turns = 5` in
the file; the environment wins. Sections only group the settings that one service receives.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from config.sources import ConfigurationError, FlatSource, read_toml, refusal_of
from config.tables import (
    BLANK_IS_UNSET,
    LETTERS,
    LISTED,
    FilterPath,
    Fraction,
    Keys,
    LLMSettings,
    OptionalPath,
    Positive,
    Secret,
    Section,
    Share,
    SourceSettings,
    ToolSettings,
    Url,
)


def _origin(value: str) -> str:
    """Check that this is an origin as browsers send it, or apps built like one: app://obsidian.md. Raises
    ValueError for anything else: an address with a path, or a wildcard."""
    parts = urlsplit(value.lower())
    origin = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme in ("", "file") or not parts.hostname or "*" in value or origin != value.lower():
        raise ValueError("it must be an origin like https://www.example.org, without a path")
    return origin


VERSION = "0.2.0.dev0"  # as in pyproject.toml
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound, only translated


class ServerSettings(Section):
    """Where the server listens, who may call it, and what one caller may take."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    api_keys: Keys = ()
    admin_api_keys: Keys = ()
    allowed_hosts: Annotated[tuple[str, ...], LISTED] = ()
    cors_origins: Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], LISTED] = ()
    root_path: str = Field(
        "", pattern=r"^((/[A-Za-z0-9._~-]+)+)?$", description="a path like /wenmai, without a / at its end"
    )
    max_upload_bytes: int = Field(50_000_000, ge=1_000, le=2_000_000_000)
    max_streams: int = Field(1_000, ge=1, le=100_000)
    max_streams_per_key: int = Field(100, ge=1, le=100_000)
    ping_interval_s: Positive = 15
    disconnect_grace_s: float = Field(30, ge=0, le=3600)
    shutdown_grace_s: float = Field(30, ge=0, le=3600)
    progress_prefix: Literal["STATUS", "CONTENT"] = "STATUS"
    sources_in_text: Literal["off", "footer"] = "off"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "text", "json"] = "auto"

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of everyone who may ask, administrators included."""
        return tuple(key.get_secret_value() for key in (*self.api_keys, *self.admin_api_keys))

    def address(self, port: int) -> str:
        """Return the URL at which this machine reaches a server that is bound to `host`."""
        host = LOOPBACK_OF.get(self.host, self.host)
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


OTHER_COLLECTIONS = ("knowledge", "documents", "sessions", "memories", "operations")


EMBEDDED_FOLDER = "store"


class StoreSettings(Section):
    """The vector store: embedded in `data_dir` unless `qdrant_url` names a server.

    With a `collection_suffix` every collection's name ends in `_` and the suffix, as in `knowledge_b`; the
    turns' collection only if `conversation_collection` is not set.
    """

    data_dir: Path = Path("data")
    qdrant_url: Url = None
    qdrant_api_key: Secret = None
    qdrant_timeout_s: Positive = 5
    collection_suffix: str = Field("", pattern=r"^[A-Za-z0-9_-]{0,48}$", description=LETTERS.format(48))
    conversation_collection: str = Field(
        "conversations", pattern=r"^[A-Za-z0-9_-]{1,64}$", description=LETTERS.format(64)
    )
    durability: Literal["power", "process"] = "power"
    backup_dir: OptionalPath = None
    library_dir: OptionalPath = None
    low_disk_mb: int = Field(512, ge=64, le=1_000_000)
    replication_factor: int = Field(1, ge=1, le=32)

    @model_validator(mode="before")
    @classmethod
    def _suffix_goes_for_the_turns_too(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("collection_suffix"):
            return {"conversation_collection": f"conversations_{values['collection_suffix']}", **values}
        return values

    @model_validator(mode="after")
    def _collections_differ(self) -> Self:
        name = self.conversation_collection
        if name in map(self._suffixed, OTHER_COLLECTIONS):
            raise ValueError(
                f"CONVERSATION_COLLECTION = {name!r} is also the name of another collection of Wenmai: "
                "each needs its own name"
            )
        return self

    def _suffixed(self, name: str) -> str:
        return f"{name}_{self.collection_suffix}" if self.collection_suffix else name

    @property
    def knowledge_collection(self) -> str:
        return self._suffixed("knowledge")

    @property
    def document_collection(self) -> str:
        return self._suffixed("documents")

    @property
    def session_collection(self) -> str:
        return self._suffixed("sessions")

    @property
    def memory_collection(self) -> str:
        return self._suffixed("memories")

    @property
    def operations_collection(self) -> str:
        return self._suffixed("operations")

    @property
    def confirming_replicas(self) -> int:
        """How many replicas confirm a write: half, rounded up. One of two may be down, and one of three."""
        return (self.replication_factor + 1) // 2

    @property
    def embedded(self) -> Path:
        """The embedded engine's folder."""
        return self.data_dir / EMBEDDED_FOLDER

    @property
    def backups(self) -> Path:
        """Where backups are written and searched for."""
        return self.backup_dir or self.data_dir / "backups"

    @property
    def library(self) -> Path:
        """Where personas and prompt templates are read from, and uploads are written to."""
        return self.library_dir or self.data_dir / "library"


MIN_COMPRESSED_TOKENS = 200  # tokens; a summary of a shorter text would hardly be shorter


class ConversationSettings(Section):
    """What is remembered of a conversation, for how long, and how it enters prompts."""

    max_recent_turns: int = Field(5, ge=0, le=100)
    max_relevant_turns: int = Field(2, ge=0, le=50)
    relevant_turn_threshold: Fraction | None = None
    conversation_expire_days: int = Field(30, ge=1, le=36_500)
    cleanup_cron: str = "0 3 * * *"
    backup_before_cleanup: bool = False
    timezone: str | None = None
    context_lines: bool = True
    prompts_dir: OptionalPath = None
    use_chat_mode: bool = True
    client_session_ids: bool = True
    max_question_chars: int = Field(8_000, ge=1, le=100_000)
    answer_share: float = Field(0.25, ge=0.05, le=0.9, allow_inf_nan=False)
    knowledge_share: Share = 0.45
    compress_after_tokens: int = Field(3_000, ge=0, le=1_000_000)
    summary_model_id: str = "default"
    memory_recall: Literal["off", "new_session", "other_sessions", "always"] = "other_sessions"
    memory_min_messages: int = Field(4, ge=0, le=1_000)
    memory_expire_days: Annotated[int | None, BLANK_IS_UNSET] = Field(None, ge=1, le=36_500)
    memory_outlives_turns: bool = True
    prompt_keep_days: int = Field(30, ge=0, le=36_500)
    keep_raw_response: bool = False
    qa_log: OptionalPath = None
    question_filters: Annotated[tuple[FilterPath, ...], LISTED] = ()
    answer_filters: Annotated[tuple[FilterPath, ...], LISTED] = ()
    blocked_words: OptionalPath = None

    @field_validator("compress_after_tokens")
    @classmethod
    def _worth_a_summary(cls, tokens: int) -> int:
        if 0 < tokens < MIN_COMPRESSED_TOKENS:
            raise ValueError(f"must be 0 (no summaries) or at least {MIN_COMPRESSED_TOKENS}")
        return tokens


class KnowledgeSettings(Section):
    """Sizes are in tokens of the embedding model."""

    load_sample: bool = True
    chunk_tokens: int = Field(192, ge=32, le=4_096)
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    sync_cron: str = "*/10 * * * *"

    @field_validator("sources")
    @classmethod
    def _named_plainly(cls, sources: dict[str, SourceSettings]) -> dict[str, SourceSettings]:
        for name in sources:
            if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 64:
                raise ValueError(f"source {name!r} must be named with letters, digits, - and _ only")
        folders = [os.path.realpath(source.folder) for source in sources.values()]
        if len(set(folders)) < len(folders):
            raise ValueError("two sources name the same folder")
        return sources


def overlap(one: Path, other: Path) -> bool:
    """Whether one folder is the other or lies inside it; links are followed."""
    first, second = Path(os.path.realpath(one)), Path(os.path.realpath(other))
    return first.is_relative_to(second) or second.is_relative_to(first)


class RetrievalSettings(Section):
    """Whether documents are searched; how candidates are retrieved, fused, judged and cut."""

    knowledge: Literal["auto", "always", "never"] = "auto"
    reranker_input_top_n: int = Field(20, ge=1, le=200)
    rerank_score_threshold: Fraction = 0.05
    rerank_timeout_s: float = Field(5, ge=0.1, le=120, allow_inf_nan=False)
    rewrite_timeout_s: float = Field(3, ge=0, le=60, allow_inf_nan=False)
    widen_tokens: int = Field(0, ge=0, le=2_000)


OPENAI_EMBEDDING = "text-embedding-3-small"


class ModelSettings(Section):
    """Which models answer, embed and judge. Nothing here is fetched unless it is named."""

    embedding: str = Field(
        "bundled",
        pattern=r"^(bundled|sentence-transformers:.+|openai(:.+)?|llama_index:[\w.]+:\w+)$",
        description="bundled, openai, openai:NAME, sentence-transformers:NAME or llama_index:module:Class",
    )
    embedding_base_url: Url = None
    embedding_api_key: Secret = None
    embedding_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    reranker: str = Field(
        "calibrated",
        pattern=r"^(calibrated|none|http(:.+)?|cross-encoder:.+|llama_index:[\w.]+:\w+)$",
        description="calibrated, none, http, http:NAME, cross-encoder:NAME or llama_index:module:Class",
    )
    reranker_url: Url = None
    reranker_api_key: Secret = None
    reranker_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    openai_api_key: Secret = None
    openai_base_url: Url = None
    llm_model: Annotated[str | None, BLANK_IS_UNSET] = None
    llms: dict[str, LLMSettings] = Field(default_factory=dict)
    token_timeout_s: Positive = 60
    answer_timeout_s: Positive = 600
    max_answer_chars: int = Field(200_000, ge=1_000, le=10_000_000)

    @property
    def openai_embedding(self) -> str:
        """The model's name at the embedding endpoint if EMBEDDING is `openai` or `openai:NAME`."""
        kind, _, name = self.embedding.partition(":")
        return name if kind == "openai" and name else OPENAI_EMBEDDING

    @property
    def is_llm_model_unused(self) -> bool:
        """LLM_MODEL goes with OPENAI_…: without these, or with [llms.default], it has no effect."""
        has_endpoint = self.openai_base_url or self.openai_api_key
        return self.llm_model is not None and (not has_endpoint or "default" in self.llms)


SEARCH_TOOL = "search_knowledge"  # built in (core.tools), needs no table


class ToolsSettings(Section):
    """Which tools models may call, and how long to wait for tools and for people."""

    tools: dict[str, ToolSettings] = Field(default_factory=dict)
    max_tool_steps: int = Field(6, ge=1, le=50)
    tool_confirm_timeout_s: float = Field(120, ge=1, le=3_600, allow_inf_nan=False)

    @field_validator("tools")
    @classmethod
    def _named_plainly(cls, tools: dict[str, ToolSettings]) -> dict[str, ToolSettings]:
        for name in tools:
            if not re.fullmatch("[a-zA-Z0-9_-]{1,32}", name) or name == SEARCH_TOOL:
                raise ValueError(
                    f"tools {name!r} must be named with 1 to 32 letters, digits, - and _, "
                    f"and not {SEARCH_TOOL}"
                )
        return tools


class Settings(BaseSettings):
    """All sections. Build it with `load_settings()`."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    server: ServerSettings = Field(default_factory=ServerSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    conversation: ConversationSettings = Field(default_factory=ConversationSettings)
    retrieval: RetrievalSettings = Field(default_factory=RetrievalSettings)
    models: ModelSettings = Field(default_factory=ModelSettings)
    knowledge: KnowledgeSettings = Field(default_factory=KnowledgeSettings)
    tools: ToolsSettings = Field(default_factory=ToolsSettings)

    @model_validator(mode="after")
    def _follows_no_data_of_its_own(self) -> Self:
        for name, source in self.knowledge.sources.items():
            for own in (self.store.data_dir, self.store.backups):
                if overlap(source.folder, own):
                    raise ValueError(
                        f"source {name!r} follows {str(source.folder)!r}, where Wenmai stores its own "
                        "data: choose a folder outside DATA_DIR and BACKUP_DIR"
                    )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Explicit values take precedence over the environment, and the environment over the file."""
        environment = FlatSource(settings_cls, os.environ, unknown="ignored")
        file = FlatSource(settings_cls, read_toml(os.environ), unknown="refused")
        return init_settings, environment, file


_FITTED_ON = (("models", "embedding"), ("knowledge", "chunk_tokens"), ("retrieval", "reranker_input_top_n"))


def not_as_fitted(settings: Settings) -> list[str]:
    """Return the settings that differ from those the calibrated reranker was fitted on, with both values.

    Empty with another reranker: how its scores are to be read is not ours to judge.
    """
    if settings.models.reranker != "calibrated":
        return []
    changed = []
    for section, name in _FITTED_ON:
        part = getattr(settings, section)
        value, default = getattr(part, name), type(part).model_fields[name].default
        if value != default:
            changed.append(f"{name.upper()} is {value}, but the ranking was fitted with {default}")
    return changed


def load_settings(**sections: Any) -> Settings:
    """Read the settings. Raises ConfigurationError with one line that names key, value and allowed range."""
    try:
        return Settings(**sections)
    except ValidationError as error:
        refusal = refusal_of(error, Settings)
    raise ConfigurationError(refusal)  # raised out here, unchained: pydantic's error holds the values
