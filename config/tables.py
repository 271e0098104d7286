"""Validated types for settings, and the tables of wenmai.toml: `[sources.<name>]`, `[llms.<model_id>]` and
`[tools.<name>]`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from config.secrets import is_secret_name, looks_like_key

URL_EXAMPLES = {"qdrant_url": "http://127.0.0.1:6333", "reranker_url": "http://127.0.0.1:8080/rerank"}
MODEL_URL = "http://127.0.0.1:11434/v1 or https://api.deepseek.com/v1"


def is_address(text: str) -> bool:
    """Whether this is the URL of an HTTP server."""
    try:
        parts = urlsplit(text)
        return bool(
            parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in text
        )
    except ValueError:
        return False


def _checked_url(value: str | None, info: ValidationInfo) -> str | None:
    if not value:
        return None
    if not is_address(value):
        raise ValueError(f"it must be an address like {URL_EXAMPLES.get(info.field_name or '', MODEL_URL)}")
    return value


def _checked_secret(value: SecretStr | None) -> SecretStr | None:
    if value is not None and not value.get_secret_value().strip().isascii():
        raise ValueError("must be plain ASCII: it is sent in a header")
    return value


def _checked_keys(keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    """Reject empty keys: one would match every caller that sends none."""
    for place, key in enumerate(keys, 1):
        check_key(key.get_secret_value(), f"key {place}")
    return keys


def check_key(key: str, name: str) -> None:
    """Raises ValueError for a key that cannot be sent in a header."""
    if not re.fullmatch("[!-~]+", key):
        raise ValueError(
            f"{name} must be of printable ASCII characters, without spaces: it is sent in a header"
        )


def _listed(value: object) -> object:
    """Split a comma-separated list, as lists are written in the environment."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


LISTED = BeforeValidator(_listed)
BLANK_IS_UNSET = BeforeValidator(lambda value: None if value == "" else value)
Keys = Annotated[tuple[SecretStr, ...], LISTED, AfterValidator(_checked_keys)]
Secret = Annotated[SecretStr | None, BLANK_IS_UNSET, AfterValidator(_checked_secret)]
OptionalPath = Annotated[Path | None, BLANK_IS_UNSET]
Url = Annotated[str | None, AfterValidator(_checked_url), Field(repr=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=0.9, allow_inf_nan=False)]
FilterPath = Annotated[str, Field(pattern=r"^[\w.]+:\w+$", description="module:name, of each filter")]
LETTERS = "at most {} letters, digits, - and _"
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool_for_number(cls, value: object, info: ValidationInfo) -> object:
        """Reject true for a number: Pydantic reads it as 1 (a day, a turn, a second)."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise PydanticCustomError("truth", "true and false are not allowed")
        return value

    @field_validator("*")
    @classmethod
    def _reject_key(cls, value: Any) -> Any:
        """Reject what looks like a key: fields that are not secret are shown in many places."""
        if isinstance(value, str | Path) and looks_like_key(str(value)):
            raise ValueError("this is a secret key: put it in api_key or …_API_KEY")
        return value


MAX_TAGS = 32
MAX_TAG_CHARS = 64


class SourceSettings(Section):
    """One `[sources.<name>]` table: a folder whose files are followed as they are added, changed and removed.

    `include` and `exclude` are path patterns relative to the folder, as in .gitignore; hidden files and links
    are skipped. Without an `owner` its documents are shared by everyone.
    """

    folder: Path
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    owner: str | None = Field(None, min_length=1, max_length=200)

    @field_validator("folder", mode="before")
    @classmethod
    def _whole_path(cls, folder: object) -> object:
        """Require an absolute path: a relative one depends on where a command is started."""
        whole = Path(folder).expanduser() if isinstance(folder, str) and folder else folder
        if not isinstance(whole, Path) or not whole.is_absolute():
            raise ValueError("folder must be an absolute path, such as /srv/handbook or ~/handbook")
        return whole

    @field_validator("tags")
    @classmethod
    def _short_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if len(tags) > MAX_TAGS or any(len(tag.strip()) > MAX_TAG_CHARS for tag in tags):
            raise ValueError(f"at most {MAX_TAGS} tags, of at most {MAX_TAG_CHARS} characters each")
        return tags

    @field_validator("include")
    @classmethod
    def _includes_something(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        if not patterns:
            raise ValueError("include must name at least one pattern, such as *.md")
        return patterns


HTTP_PROVIDERS = ("openai", "anthropic")  # the others load local files and classes


class LLMSettings(Section):
    """One `[llms.<model_id>]` table. `api_key_env` names the environment variable that holds the key."""

    provider: str = Field(
        pattern=r"^(openai|anthropic|gguf|extractive|llama_index:[\w.]+:\w+)$",
        description="openai, anthropic, gguf, extractive or llama_index:module:Class",
    )
    model: str = ""
    base_url: Url = None
    api_key: Annotated[SecretStr | None, AfterValidator(_checked_secret)] = None
    api_key_env: str | None = Field(
        None, pattern=r"^[A-Z_][A-Z0-9_]*$", description="the name of a variable, such as DEEPSEEK_API_KEY"
    )
    context_window: int | None = Field(None, ge=512, le=10_000_000)
    tokenizer: str | None = None
    max_tokens: int = Field(2_048, ge=1, le=1_000_000)
    temperature: float = Field(0.2, ge=0, le=2, allow_inf_nan=False)
    layout: Literal["auto", "one_system", "many_system", "system_field", "flat"] | None = None
    begins_thinking: Literal["auto", "always", "never"] = "auto"
    vision: bool = False
    tools: Literal["native", "prompt"] = "native"
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    thinking_on: dict[str, Any] | None = Field(None, repr=False)
    thinking_off: dict[str, Any] | None = Field(None, repr=False)

    @model_validator(mode="after")
    def _sends_no_key_in_the_body(self) -> Self:
        """A key in the request body would be stored with every prompt."""
        sent = (*self.options, *(self.thinking_on or ()), *(self.thinking_off or ()))
        secret = next((name for name in sent if is_secret_name(name)), None)
        if secret is not None and self.provider in (*HTTP_PROVIDERS, "gguf"):
            raise ValueError(
                f"options are sent in the request body, so {secret} does not belong there: set api_key "
                "instead"
            )
        return self

    @model_validator(mode="after")
    def _can_be_sent_images(self) -> Self:
        if self.vision and (self.provider not in HTTP_PROVIDERS or self.layout == "flat"):
            raise ValueError("vision is for provider openai or anthropic, and not for layout flat")
        return self

    @model_validator(mode="after")
    def _reads_its_prompt(self) -> Self:
        if self.tools == "prompt" and self.provider == "extractive":
            raise ValueError(
                "tools = 'prompt' needs a model that writes: extractive only quotes and calls no tools"
            )
        return self

    @model_validator(mode="after")
    def _names_its_model(self) -> Self:
        if self.provider in (*HTTP_PROVIDERS, "gguf") and not self.model:
            raise ValueError(f"a table with provider = {self.provider!r} needs model")
        return self


VariableName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="names of environment variables, such as GITHUB_TOKEN",
    ),
]


class ToolSettings(Section):
    """One `[tools.<name>]` table: an MCP server, either started as a program or reached at a URL.

    `env` names the environment variables passed to the program; `headers` maps HTTP headers to the variables
    that hold their values. `confirm` says which tools need a person's approval before they run.
    """

    command: tuple[str, ...] = Field((), repr=False)
    url: Url = None
    env: tuple[VariableName, ...] = ()
    headers: dict[str, VariableName] = Field(default_factory=dict)
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    confirm: Literal["never", "write", "always"] = "write"
    timeout_s: float = Field(30, ge=0.1, le=600, allow_inf_nan=False)

    @model_validator(mode="after")
    def _is_reached_in_one_way(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("a tools table needs either command (a program and its arguments) or url")
        if self.headers and not self.url:
            raise ValueError("headers are for url; use env to pass variables to a program")
        if self.env and not self.command:
            raise ValueError("env is for command; use headers with url")
        return self
