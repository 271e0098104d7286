"""Where settings come from: flat names (environment, TOML) are sorted into their sections; and the settings
that earlier versions had, with their replacements."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from config.secrets import Mask, is_secret_name

_COLLECTIONS = (
    "COLLECTION_SUFFIX is appended to the names of all collections; if yours have other names, back the "
    "store up with the previous version and restore it with this one"
)
_WEIGHTS = "keyword and vector results are fused with the fixed weights that the ranking was fitted with"
_PERSONA = "a persona has at most 15 % of the model's window, and 16,000 characters"
_SHARES = "what KNOWLEDGE_SHARE leaves is divided among the parts of the history"

REMOVED: Mapping[str, str] = {
    "chunk_overlap_tokens": "chunks no longer overlap; WIDEN_TOKENS adds the text around each passage",
    "compress_history": "COMPRESS_AFTER_TOKENS=0 switches summaries off",
    "dense_weight": _WEIGHTS,
    "document_collection": _COLLECTIONS,
    "embedding_model": "EMBEDDING=openai:NAME names the model of the embedding endpoint",
    "embedding_threads": "documents are read on half of the CPU cores",
    "first_token_timeout_s": "TOKEN_TIMEOUT_S also limits the wait for the first token",
    "history_cache_s": "a session's tree stays in memory for five minutes",
    "insert_block_max_parallel": "four passages are judged at once, all of them within 20 s",
    "insert_block_timeout_s": "all passages of a question are judged within 20 s",
    "knowledge_collection": _COLLECTIONS,
    "max_body_bytes": "MAX_UPLOAD_BYTES limits uploads; any other body may have at most 1,000,000 bytes",
    "max_persona_chars": _PERSONA,
    "memory_collection": _COLLECTIONS,
    "memory_model_id": "SUMMARY_MODEL_ID also names the model that extracts memories from turns",
    "memory_recall_limit": "at most five memories are recalled, in a twentieth of the prompt",
    "memory_share": "memories get a twentieth of the prompt, and what they leave goes to the other parts",
    "message_layout": "set layout in the model's [llms.<model_id>] table, or USE_CHAT_MODE=false",
    "operations_collection": _COLLECTIONS,
    "persona_share": _PERSONA,
    "recent_share": _SHARES,
    "relevant_share": _SHARES,
    "reranker_model": "RERANKER=http:NAME names the model of the rerank endpoint",
    "rrf_k": _WEIGHTS,
    "send_timeout_s": "a client that reads nothing for two PING_INTERVAL_S is disconnected",
    "session_collection": _COLLECTIONS,
    "shard_number": "Qdrant distributes a new collection over its nodes automatically",
    "sparse_weight": _WEIGHTS,
    "summary_share": _SHARES,
    "summary_tokens": "a summary has at most 400 tokens",
    "sync_at_start": "followed folders are synced at every start, unless SYNC_CRON is empty",
    "write_consistency_factor": "a write is confirmed by half of REPLICATION_FACTOR, rounded up",
}
"""Name, as in wenmai.toml → its replacement."""

_NAMES_STORED_DATA = frozenset(name for name, instead in REMOVED.items() if instead == _COLLECTIONS)


def removal_message(name: str) -> str:
    """Return a one-line message for a name in REMOVED."""
    return f"{name.upper()} is no longer a setting: {REMOVED[name]}."


def must_be_refused(name: str) -> bool:
    """Whether ignoring this name would start with an empty store instead of the one it names."""
    return name in _NAMES_STORED_DATA


def unread(environment: Mapping[str, str]) -> list[str]:
    """Return one line for each setting in the environment that is not read: removed ones, and tables."""
    names = sorted({key.lower() for key in environment})
    tables = f"{{}} is not read: put its tables in {DEFAULT_CONFIG_FILE}."
    removed = [removal_message(name) for name in names if name in REMOVED]
    return removed + [tables.format(name.upper()) for name in names if name in TABLES]


TABLES = ("llms", "sources", "tools")
"""Settings that only the file can hold."""


CONFIG_FILE_VARIABLE = "WENMAI_CONFIG"
DEFAULT_CONFIG_FILE = "wenmai.toml"


class ConfigurationError(ValueError):
    """The configuration is invalid; the message is one plain line. `wenmai serve` exits with 2."""


def section_of(settings_cls: type[BaseSettings]) -> dict[str, str]:
    """Setting name → section name, for every field of every section."""
    return {
        name: section
        for section, field in settings_cls.model_fields.items()
        for name in cast(type[BaseModel], field.annotation).model_fields
    }


class FlatSource(PydanticBaseSettingsSource):
    """Sorts a mapping of flat names (in any case) into sections."""

    def __init__(
        self,
        settings_cls: type[BaseSettings],
        values: Mapping[str, Any],
        unknown: Literal["refused", "ignored"],
    ) -> None:
        super().__init__(settings_cls)
        self._values = values
        self._unknown = unknown

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        sections = section_of(self.settings_cls)
        if removed := [name for name in map(str.lower, self._values) if self._is_refused(name)]:
            raise ConfigurationError(" ".join(map(removal_message, removed)))
        laid: dict[str, dict[str, Any]] = {}
        for key, value in self._values.items():
            name = key.lower()
            if name in sections:
                if self._unknown == "ignored" and name in TABLES:
                    continue
                laid.setdefault(sections[name], {})[name] = value
            elif self._unknown == "refused":
                hint = did_you_mean(name, sections)
                if isinstance(value, dict) and not hint:
                    hint = (
                        " Tables are [llms.NAME], [sources.NAME] and [tools.NAME]; "
                        "settings belong above them, outside any table."
                    )
                raise ConfigurationError(f"Unknown setting {key!r} in the configuration file.{hint}")
        return laid

    def _is_refused(self, name: str) -> bool:
        return name in REMOVED and (self._unknown == "refused" or must_be_refused(name))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with a leading space, or "" if no known name is similar."""
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    return f" Did you mean {near[0]}?" if near else ""


def read_toml(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read the file named by WENMAI_CONFIG, or else ./wenmai.toml if it exists; otherwise return {}."""
    named = environment.get(CONFIG_FILE_VARIABLE)
    path = Path(named or DEFAULT_CONFIG_FILE)
    if not (named or os.path.lexists(path)):
        return {}
    if not os.path.isfile(path):  # Path.is_file() raises without permission
        called = (
            f"{CONFIG_FILE_VARIABLE} names {named!r}, which" if named else f"{path} in the current folder"
        )
        raise ConfigurationError(f"{called} is not a file.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        refusal = f"{path.name} is not valid TOML: {error}"
    except OSError as error:
        refusal = f"{path} cannot be read ({error.strerror}): let the server's user read it."
    raise ConfigurationError(refusal)  # not chained: the decoder's error holds the whole file


SHOWN_CHARS = 16  # every key is longer
_KINDS = {
    "integer": "an integer",
    "number": "a finite number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
}


_PYDANTIC = (
    (r"^Value error, ", ""),
    (r"^UUID input should .*", "this is not a valid id: a UUID is expected."),
    (r"^\w+ should (?=be |have |match )", "must "),
    (r" a valid (?:integer|int)\b.*", " a whole number"),
    (r" a valid number\b.*", " a number"),
    (r" a valid boolean\b.*", " true or false"),
    (r" a valid dictionary\b.*", " an object"),
    (r" a valid (?=string|list|tuple)", " a "),
    (r" match pattern '\^(\w+)\$'$", r" be '\1'"),
    (r" match pattern ", " match the pattern "),
    (r" after validation\b", ""),
)


def in_plain_words(message: str) -> str:
    """Return a message of pydantic's without its terms for Python's types."""
    for pattern, words in _PYDANTIC:
        message = re.sub(pattern, words, message)
    return message


def refusal_of(error: ValidationError, settings_cls: type[BaseSettings]) -> str:
    """Return one line that names key, value and allowed range; the value only if it cannot be a secret."""
    errors = error.errors(include_url=False)
    # report a misspelt field before the field that is missing because of it
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    loc = [part for part in first["loc"][1:] if isinstance(part, str)]  # without list indexes
    name = ".".join(loc).upper()
    reason = Mask()(in_plain_words(first["msg"]))
    if not name:
        return f"The configuration is refused: {reason}."
    table = _model_at(settings_cls, [str(part) for part in first["loc"][:1]] + loc[:-1])
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(loc[-1], table.model_fields if table else ())
        if loc[-1] in section_of(settings_cls):
            hint = " It does not belong in a table: put it above the first one."
        return f"{name} is refused: there is no such setting.{hint}"
    if first["type"] == "missing":
        return f"{name} is missing: it must be {_allowed(table, loc[-1])}."
    if first["type"] not in ("value_error", "assertion_error"):
        reason = f"it must be {_allowed(table, loc[-1])}"
    return f"{name}{_shown(name, first)} is refused: {reason}."


def _model_at(kind: Any, loc: Sequence[str]) -> type[BaseModel] | None:
    """Return the model of a section or of a table below it; None if `loc` ends at a table's name."""
    for part in loc:
        fields = getattr(kind, "model_fields", None)
        kind = fields[part].annotation if fields else get_args(kind)[-1]
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _allowed(table: type[BaseModel] | None, name: str) -> str:
    """Describe the values that the field accepts, from its JSON schema; a pattern only by its description."""
    if table is None:
        return "a table, with a line for each of its fields"
    schema = table.model_json_schema()["properties"][name]
    described = schema.get("description") or schema.get("items", {}).get("description")
    variants = [schema, *schema.get("anyOf", ())]
    kind: dict[str, Any] = next((each for each in variants if "enum" in each or "type" in each), {})
    if described or "enum" in kind:
        return described or f"one of {', '.join(kind['enum'])}"
    if "exclusiveMinimum" in kind:
        return f"a finite number above {kind['exclusiveMinimum']:g}"
    limits = f" from {kind['minimum']:.9g} to {kind['maximum']:.9g}" if "minimum" in kind else ""
    return _KINDS.get(kind.get("type", ""), "a table") + limits


def _shown(name: str, error: ErrorDetails) -> str:
    """Return " = value", or "" for a table, a long text, an unknown name, or a possible secret."""
    value = error["input"]
    if is_secret_name(name) or error["type"] == "extra_forbidden" or not isinstance(value, str | int | float):
        return ""
    return "" if len(str(value)) > SHOWN_CHARS or "@" in str(value) else f" = {value!r}"
