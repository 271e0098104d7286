"""Requests and replies in OpenAI's form, with Wenmai's additions."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from core.conversation.turns import KnowledgeUse
from core.images import SentImage
from core.prompt.exchange import CallOptions
from core.text import scrub
from routes.wire.chat import DEFAULT_TOP_N, MAX_TOP_N
from routes.wire.fields import (
    AskedDate,
    FiltersBody,
    MaxTokens,
    Reply,
    Temperature,
    Uuid,
    absent,
    example,
)
from routes.wire.turns import SESSION_ID, TURN_ID, Citation

IMAGE = "[image]"  # stands for an image in the history
MAX_MESSAGES = 20_000
MAX_EMBEDDED = 2_048
_PARAMETER_NAME = re.compile(r"[\w.-]{1,40}", re.ASCII)
_MAX_NAMES = 50
# Supported values, and advice for other values.
_POSSIBLE: dict[str, tuple[tuple[Any, ...], str]] = {
    "n": ((None, 1), "only one answer is returned: omit it, and ask again for another"),
    "logprobs": ((None, False), "not supported here: omit it"),
    "modalities": ((None, ["text"]), "answers are text: omit it"),
    "response_format": (
        (None, {"type": "text"}),
        "answers are text: omit it, and ask for JSON in a message",
    ),
    "tool_choice": ((None, "auto", "none"), "tools of the client are not called: omit it, or send auto"),
}


class MessageImage(BaseModel):
    """An image."""

    model_config = ConfigDict(extra="ignore", strict=True)

    url: str = Field(description="data:image/png;base64,… (or jpeg, webp, gif); URLs are not fetched.")


class ContentPart(BaseModel):
    """A part of a message; of parts that are neither text nor image, only the type is used."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: str = Field(description="text, image_url, …")
    text: str = Field("", description="The text, for type text.")
    image_url: MessageImage | None = Field(None, description="The image, for type image_url.")


class ChatMessage(BaseModel):
    """A message of the conversation. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"] = Field(
        description="The author of the message."
    )
    content: str | list[ContentPart] | None = Field(None, description="Text, or a list of parts.")
    tool_calls: list[JsonValue] | None = Field(None, description="Tool calls; ignored.")

    @property
    def is_spoken(self) -> bool:
        """Of messages with tool calls and results, only the model's own text counts."""
        return self.role not in ("tool", "function") and bool(self.text.strip() or not self.tool_calls)

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n\n".join(
                part.text if part.type in ("text", "refusal") else IMAGE for part in self.content
            )
        return self.content or ""

    @property
    def words(self) -> str:
        """The text without notes for images."""
        if isinstance(self.content, list):
            return "\n\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""

    @property
    def images(self) -> tuple[SentImage, ...]:
        parts = self.content if isinstance(self.content, list) else []
        return tuple([SentImage(part.image_url.url) for part in parts if part.image_url is not None])

    @property
    def has_other_parts(self) -> bool:
        """Whether any part is neither text nor image."""
        parts = self.content if isinstance(self.content, list) else []
        return any(part.type != "text" and part.image_url is None for part in parts)


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool | None = Field(None, description="true: send the usage in a final chunk.")


class CompletionBody(BaseModel):
    """The request body of POST /v1/chat/completions. OpenAI parameters that are not listed have no effect:
    they are accepted, and named in the header X-Ignored-Parameters."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        protected_namespaces=(),
        **example({"model": "wenmai", "messages": [{"role": "user", "content": "父子链是什么？"}]}),
    )
    __pydantic_extra__: dict[str, Any]

    model: str = Field(
        max_length=200, description="wenmai, wenmai/<model_id>, or plain/<model_id>, as in GET /v1/models."
    )
    messages: list[ChatMessage] = Field(
        min_length=1, max_length=MAX_MESSAGES, description="The conversation, ending with a user's message."
    )
    stream: bool | None = Field(None, description="true: chunks as Server-Sent Events.")
    stream_options: StreamOptions | None = Field(None, description="How the stream is written.")
    temperature: Temperature | None = Field(None, description="Temperature; absent: as in the model's table.")
    max_tokens: MaxTokens | None = Field(
        None, description="Maximum length of the answer in tokens; absent: as in the model's table."
    )
    max_completion_tokens: MaxTokens | None = Field(
        None, description="The current name of max_tokens, which it overrides."
    )
    reasoning_effort: str | None = Field(
        None, max_length=20, description="Without `thinking`: none and minimal turn thinking off, others on."
    )
    n: int | None = Field(None, description="Only 1 is supported.")
    logprobs: bool | None = Field(None, description="Only false is supported.")
    modalities: list[str] | None = Field(None, description="Only text is supported.")
    response_format: dict[str, Any] | None = Field(None, description="Only text is supported.")
    tool_choice: str | dict[str, Any] | None = Field(None, description="No tools are called: auto or none.")
    session_id: Uuid | None = Field(
        None, description="The session; absent: the one the messages belong to. X-Session-Id is the same."
    )
    parent_turn_id: Uuid | None = Field(
        None, description="The parent turn; absent: the one the messages lead to; null: a new root."
    )
    turn_id: Uuid | None = Field(None, description="Your own id for this turn, for retries.")
    thinking: bool | None = Field(
        None, description='true, or {"type": "enabled"}: ask the model to reason before it answers.'
    )
    knowledge: KnowledgeUse = Field("auto", description="Whether to search the documents.")
    rerank_top_n: int = Field(
        DEFAULT_TOP_N, ge=1, le=MAX_TOP_N, description="Maximum number of passages that the model receives."
    )
    filters: FiltersBody | None = Field(None, description="Which documents are searched; absent: all.")
    date: AskedDate = ""
    sources_in_text: Literal["off", "footer"] | None = Field(
        None,
        description="footer: list the sources below the answer, for clients that show only text; "
        "absent: as SOURCES_IN_TEXT says.",
    )

    @field_validator(*_POSSIBLE)
    @classmethod
    def _possible(cls, value: Any, info: ValidationInfo) -> Any:
        possible, advice = _POSSIBLE[info.field_name or ""]
        if value not in possible:
            raise PydanticCustomError("not_possible", advice)
        return value

    @field_validator("knowledge", "rerank_top_n", "date", mode="before")
    @classmethod
    def _null(cls, value: Any, info: ValidationInfo) -> Any:
        """null counts as absent, as in OpenAI's own fields."""
        return cls.model_fields[info.field_name or ""].default if value is None else value

    @field_validator("thinking", mode="before")
    @classmethod
    def _thinking(cls, value: Any) -> Any:
        """Accept the form of DeepSeek, GLM, Kimi and Doubao: {"type": "enabled"}."""
        kind = value.get("type") if isinstance(value, dict) else None
        if kind in ("enabled", "auto", "disabled"):
            return kind != "disabled"
        return value

    @property
    def options(self) -> CallOptions:
        """`thinking` is None if the request leaves it to the model."""
        thinking, effort = self.thinking, self.reasoning_effort
        if thinking is None and effort is not None:
            thinking = effort not in ("none", "minimal")
        return CallOptions(thinking, self.temperature, self.max_completion_tokens or self.max_tokens)

    @property
    def ignored(self) -> list[str]:
        """Parameters without effect."""
        return [name for name in self.__pydantic_extra__ if _PARAMETER_NAME.fullmatch(name)][:_MAX_NAMES]


class CompletionUsage(Reply):
    """Tokens of the model call."""

    prompt_tokens: int = Field(description="Tokens of the prompt.")
    completion_tokens: int = Field(description="Tokens of the answer, including its thinking.")
    total_tokens: int = Field(description="The sum of both.")


class UrlCitation(Reply):
    """Where the answer cites a source, and the URL that opens its passage."""

    start_index: int = Field(description="The first character of the citation mark.")
    end_index: int = Field(description="The character after it.")
    title: str = Field(description="The document's name.")
    url: str = Field(description="Opens the passage in Wenmai's page.")


class Annotation(Reply):
    """A citation mark in the answer."""

    type: Literal["url_citation"] = Field(description="Always url_citation.")
    url_citation: UrlCitation = Field(description="The source.")


class Asked(Reply):
    """Where the turn is stored."""

    session_id: str = Field(description="The id of the turn's session.")
    turn_id: str = Field(description="The turn's id.")
    parent_turn_id: str | None = Field(description="The id of the turn before this one; null for a root.")


class CompletionMessage(Reply):
    """The answer."""

    role: Literal["assistant"] = Field(description="Always the assistant.")
    content: str = Field(description="The text.")
    refusal: None = Field(None, description="Never set.")
    reasoning_content: str = absent("The model's visible thinking.")
    annotations: list[Annotation] = absent("The citation marks.")
    citations: list[Citation] = absent("The passages shown to the model.")


class CompletionChoice(Reply):
    """The one answer."""

    index: int = Field(description="Always 0.")
    message: CompletionMessage = Field(description="The answer.")
    finish_reason: str = Field(description="Why the model stopped: stop, length or content_filter.")
    logprobs: None = Field(None, description="Never set.")


class Completion(Reply):
    """An answer in OpenAI's form."""

    model_config = example(
        {
            "id": f"chatcmpl-{TURN_ID}",
            "object": "chat.completion",
            "created": 1_769_880_600,
            "model": "wenmai",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "每一轮都记下上一轮 [1]。", "citations": []},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 830, "completion_tokens": 12, "total_tokens": 842},
            "wenmai": {"session_id": SESSION_ID, "turn_id": TURN_ID, "parent_turn_id": None},
        }
    )

    id: str = Field(description="chatcmpl- and the turn's id.")
    object: Literal["chat.completion"] = Field(description="The object's type.")
    created: int = Field(description="When it began, in seconds since 1970.")
    model: str = Field(description="The model, as requested.")
    choices: list[CompletionChoice] = Field(description="The answer; always one.")
    usage: CompletionUsage = Field(description="Tokens of the model call.")
    wenmai: Asked = absent("Where the turn is stored; absent for a plain answer.")


class CompletionDelta(Reply):
    """What this chunk adds; the last one has the sources."""

    role: Literal["assistant"] = absent("Always assistant; in the first chunk.")
    content: str = absent("A piece of the answer.")
    reasoning_content: str = absent("A piece of the thinking.")
    annotations: list[Annotation] = absent("The citation marks.")
    citations: list[Citation] = absent("The passages shown to the model.")


class ChunkChoice(Reply):
    """The one answer."""

    index: int = Field(description="Always 0.")
    delta: CompletionDelta = Field(description="What this chunk adds.")
    finish_reason: str | None = Field(description="Why the model stopped; set in the last chunk.")


class CompletionChunk(Reply):
    """A chunk of an answer; `data: [DONE]` follows the last one."""

    model_config = example(
        {
            "id": f"chatcmpl-{TURN_ID}",
            "object": "chat.completion.chunk",
            "created": 1_769_880_600,
            "model": "wenmai",
            "choices": [{"index": 0, "delta": {"content": "每一轮"}, "finish_reason": None}],
        }
    )

    id: str = Field(description="chatcmpl- and the turn's id; the same in all chunks.")
    object: Literal["chat.completion.chunk"] = Field(description="The object's type.")
    created: int = Field(description="When it began, in seconds since 1970.")
    model: str = Field(description="The model, as requested.")
    choices: list[ChunkChoice] = Field(description="The answer; empty in the chunk with the usage.")
    usage: CompletionUsage | None = absent("With include_usage: tokens; null except in the last chunk.")
    wenmai: Asked = absent("Where the turn is stored; in the last chunk with a choice.")


class EmbeddingBody(BaseModel):
    """The request body of POST /v1/embeddings."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        protected_namespaces=(),
        **example({"model": "wenmai", "input": ["父子链是什么？"], "input_type": "query"}),
    )

    model: str = Field(max_length=200, description="wenmai, or the name of the configured embedding.")
    input: str | list[str] = Field(description="One text, or a list of up to 2,048.")
    encoding_format: Literal["float", "base64"] = Field("float", description="How the numbers are written.")
    dimensions: int | None = Field(None, description="The embedding's own dimension, or absent.")
    input_type: Literal["passage", "query"] = Field(
        "passage", description="What the texts are: questions are embedded differently from passages."
    )

    @field_validator("input", mode="before")
    @classmethod
    def _no_token_ids(cls, value: Any) -> Any:
        """Token ids belong to another model's vocabulary."""
        first = value[0] if isinstance(value, list) and value else None
        if isinstance(first[0] if isinstance(first, list) and first else first, int):
            raise PydanticCustomError(
                "token_ids",
                "send texts, not token ids; in LangChain's OpenAIEmbeddings set "
                "check_embedding_ctx_length=False",
            )
        return value

    @field_validator("input")
    @classmethod
    def _texts(cls, value: str | list[str]) -> str | list[str]:
        texts = [value] if isinstance(value, str) else value
        if not 0 < len(texts) <= MAX_EMBEDDED or not all(text.strip() for text in texts):
            raise PydanticCustomError(
                "texts", "must be 1 to {most} texts, none empty", {"most": MAX_EMBEDDED}
            )
        texts = [scrub(text) for text in texts]
        return texts[0] if isinstance(value, str) else texts


class EmbeddingUsage(Reply):
    """How much was embedded."""

    prompt_tokens: int = Field(description="Tokens of all texts, estimated.")
    total_tokens: int = Field(description="Equal to prompt_tokens.")


class Embedded(Reply):
    """The vector of one text."""

    object: Literal["embedding"] = Field(description="The object's type.")
    index: int = Field(description="The position of the text in the request.")
    embedding: list[float] | str = Field(description="The numbers, or base64 of 32-bit floats.")


class Embeddings(Reply):
    """The vectors, in the order of the texts."""

    model_config = example(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -0.2]}],
            "model": "wenmai",
            "usage": {"prompt_tokens": 6, "total_tokens": 6},
        }
    )

    object: Literal["list"] = Field(description="The object's type.")
    data: list[Embedded] = Field(description="One vector per text.")
    model: str = Field(description="The model, as requested.")
    usage: EmbeddingUsage = Field(description="How much was embedded.")


class OfferedModel(Reply):
    """A model that can be used."""

    model_config = example({"id": "wenmai", "object": "model", "created": 0, "owned_by": "wenmai"})

    id: str = Field(description="The value for `model`.")
    object: Literal["model"] = Field(description="The object's type.")
    created: int = Field(description="Always 0: unknown.")
    owned_by: str = Field(description="Always wenmai.")


class OfferedModels(Reply):
    """All models that can be used."""

    model_config = example(
        {
            "object": "list",
            "data": [{"id": "wenmai", "object": "model", "created": 0, "owned_by": "wenmai"}],
        }
    )

    object: Literal["list"] = Field(description="The object's type.")
    data: list[OfferedModel] = Field(description="wenmai… answers from the documents, plain/… without them.")
