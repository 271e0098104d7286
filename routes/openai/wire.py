"""Requests, replies and errors in OpenAI's form, and what Wenmai adds to them."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from core import errors
from core.conversation.turns import KnowledgeUse
from core.images import SentImage
from core.text import scrub
from routes.wire.chat import DEFAULT_TOP_N, MAX_TOP_N
from routes.wire.fields import AskedDate, FiltersBody, Reply, Uuid, absent, example
from routes.wire.turns import SESSION_ID, TURN_ID, Citation

PREFIX = "/v1/"
# What clients append to a base address that is none of ours.
_MISPLACED = re.compile(r"/v1/v1/.*|(?:/v1|/chat/completions)*/(?:chat/completions|models|embeddings)")
_OWN = ("/v1/chat/completions", "/v1/models", "/v1/embeddings")
IMAGE = "[image]"  # where a history had one
MAX_MESSAGES = 20_000
MAX_EMBEDDED = 2_048
_A_NAME = re.compile(r"[\w.-]{1,40}", re.ASCII)
_MOST_NAMES = 50
# What may be asked for, and what to do where more was.
_POSSIBLE: dict[str, tuple[tuple[Any, ...], str]] = {
    "n": ((None, 1), "one answer is given: leave it out, and ask again for another"),
    "logprobs": ((None, False), "not known here: leave it out"),
    "modalities": ((None, ["text"]), "answers are text: leave it out"),
    "response_format": (
        (None, {"type": "text"}),
        "answers are text: leave it out, and ask for JSON in a message",
    ),
    "tool_choice": ((None, "auto", "none"), "no tool of a client's is called: leave it out, or send auto"),
}


class MessageImage(BaseModel):
    """An image."""

    model_config = ConfigDict(extra="ignore", strict=True)

    url: str = Field(description="data:image/png;base64,… (or jpeg, webp, gif); no address is fetched.")


class ContentPart(BaseModel):
    """A part of a message; of those that are neither text nor image, the type alone counts."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: str = Field(description="text, image_url, …")
    text: str = Field("", description="The text of a part of the type text.")
    image_url: MessageImage | None = Field(None, description="The image of a part of the type image_url.")


class ChatMessage(BaseModel):
    """A message of the conversation. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"] = Field(
        description="Who speaks."
    )
    content: str | list[ContentPart] | None = Field(None, description="Text, or a list of parts.")
    tool_calls: list[JsonValue] | None = Field(None, description="Calls of tools: left out.")

    @property
    def is_spoken(self) -> bool:
        """Of a tool's calls and results, only what the model says beside them counts."""
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
        """Without a note for each image."""
        if isinstance(self.content, list):
            return "\n\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""

    @property
    def images(self) -> tuple[SentImage, ...]:
        parts = self.content if isinstance(self.content, list) else []
        return tuple([SentImage(part.image_url.url) for part in parts if part.image_url is not None])

    @property
    def has_other_parts(self) -> bool:
        """What is neither text nor image."""
        parts = self.content if isinstance(self.content, list) else []
        return any(part.type != "text" and part.image_url is None for part in parts)


class StreamOptions(BaseModel):
    """How a stream is written."""

    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool | None = Field(None, description="true: a chunk with the usage before the end.")


class CompletionBody(BaseModel):
    """What POST /v1/chat/completions takes. Parameters of OpenAI's that are not listed do not apply: they are
    accepted, and named in the header X-Ignored-Parameters."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        protected_namespaces=(),
        **example({"model": "wenmai", "messages": [{"role": "user", "content": "父子链是什么？"}]}),
    )
    __pydantic_extra__: dict[str, Any]

    model: str = Field(
        max_length=200, description="wenmai, wenmai/<model_id>, or plain/<model_id>: of GET /v1/models."
    )
    messages: list[ChatMessage] = Field(
        min_length=1, max_length=MAX_MESSAGES, description="The whole conversation; the last is a user's."
    )
    stream: bool | None = Field(None, description="true: chunks as Server-Sent Events.")
    stream_options: StreamOptions | None = Field(None, description="How the stream is written.")
    n: int | None = Field(None, description="One answer is given: 1.")
    logprobs: bool | None = Field(None, description="Not known here: false.")
    modalities: list[str] | None = Field(None, description="Text alone.")
    response_format: dict[str, Any] | None = Field(None, description="Text alone.")
    tool_choice: str | dict[str, Any] | None = Field(None, description="No tool is called: auto or none.")
    session_id: Uuid | None = Field(
        None, description="The session to ask in; absent: the messages say where. X-Session-Id is the same."
    )
    parent_turn_id: Uuid | None = Field(
        None, description="The turn to follow; absent: the messages say which; null: none, a new root."
    )
    turn_id: Uuid | None = Field(None, description="Your own id for this turn, for retries.")
    thinking: bool = Field(
        False, description='true, or {"type": "enabled"}: the prompt asks for the model\'s reasoning first.'
    )
    knowledge: KnowledgeUse = Field("auto", description="Whether the documents are searched.")
    rerank_top_n: int = Field(
        DEFAULT_TOP_N, ge=1, le=MAX_TOP_N, description="Maximum number of passages that the model receives."
    )
    filters: FiltersBody | None = Field(None, description="Which documents are searched; absent: all.")
    date: AskedDate = ""
    sources_in_text: Literal["off", "footer"] | None = Field(
        None,
        description="footer: a list of the sources below the answer, for clients that show only text; "
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
        """Not given, as with OpenAI's own fields."""
        return cls.model_fields[info.field_name or ""].default if value is None else value

    @field_validator("thinking", mode="before")
    @classmethod
    def _thinking(cls, value: Any) -> Any:
        """As DeepSeek, GLM, Kimi and Doubao have it: {"type": "enabled"}."""
        kind = value.get("type") if isinstance(value, dict) else None
        if kind in ("enabled", "auto", "disabled"):
            return kind != "disabled"
        return False if value is None else value

    @property
    def ignored(self) -> list[str]:
        """Parameters that do not apply."""
        return [name for name in self.__pydantic_extra__ if _A_NAME.fullmatch(name)][:_MOST_NAMES]


class CompletionUsage(Reply):
    """Tokens of the model call."""

    prompt_tokens: int = Field(description="Of the prompt.")
    completion_tokens: int = Field(description="Of the answer, thinking included.")
    total_tokens: int = Field(description="Both.")


class UrlCitation(Reply):
    """Where in the answer a source is named, and the page that opens its passage."""

    start_index: int = Field(description="First character of the mark.")
    end_index: int = Field(description="The character behind it.")
    title: str = Field(description="The document's name.")
    url: str = Field(description="Opens the passage in Wenmai's page.")


class Annotation(Reply):
    """A mark of a source in the answer."""

    type: Literal["url_citation"] = Field(description="The only kind.")
    url_citation: UrlCitation = Field(description="The source.")


class Asked(Reply):
    """Where the turn is stored."""

    session_id: str = Field(description="Its session.")
    turn_id: str = Field(description="Its id.")
    parent_turn_id: str | None = Field(description="The turn before it; null for a root.")


class CompletionMessage(Reply):
    """The answer."""

    role: Literal["assistant"] = Field(description="Always the assistant.")
    content: str = Field(description="The text.")
    refusal: None = Field(None, description="Never set.")
    reasoning_content: str = absent("The model's visible thinking.")
    annotations: list[Annotation] = absent("The marks of the sources.")
    citations: list[Citation] = absent("The passages the model was shown.")


class CompletionChoice(Reply):
    """The one answer."""

    index: int = Field(description="0.")
    message: CompletionMessage = Field(description="The answer.")
    finish_reason: str = Field(description="stop, length or content_filter.")
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
    object: Literal["chat.completion"] = Field(description="What it is.")
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="As requested.")
    choices: list[CompletionChoice] = Field(description="One.")
    usage: CompletionUsage = Field(description="Tokens.")
    wenmai: Asked = absent("Where it is stored; absent for a plain answer.")


class CompletionDelta(Reply):
    """What is new; the last one has the sources."""

    role: Literal["assistant"] = absent("In the first chunk.")
    content: str = absent("A piece of the answer.")
    reasoning_content: str = absent("A piece of the thinking.")
    annotations: list[Annotation] = absent("The marks of the sources.")
    citations: list[Citation] = absent("The passages the model was shown.")


class ChunkChoice(Reply):
    """The one answer."""

    index: int = Field(description="0.")
    delta: CompletionDelta = Field(description="What is new.")
    finish_reason: str | None = Field(description="Set in the last chunk.")


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

    id: str = Field(description="The same in all chunks.")
    object: Literal["chat.completion.chunk"] = Field(description="What it is.")
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="As requested.")
    choices: list[ChunkChoice] = Field(description="One; none beside the usage.")
    usage: CompletionUsage | None = absent("Where include_usage asks for it: null but in the last chunk.")
    wenmai: Asked = absent("Where it is stored: in the last chunk with a choice.")


class EmbeddingBody(BaseModel):
    """What POST /v1/embeddings takes."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        protected_namespaces=(),
        **example({"model": "wenmai", "input": ["父子链是什么？"], "input_type": "query"}),
    )

    model: str = Field(max_length=200, description="wenmai, or the name of the configured embedding.")
    input: str | list[str] = Field(description="One text, or at most 2,048.")
    encoding_format: Literal["float", "base64"] = Field("float", description="How the numbers are written.")
    dimensions: int | None = Field(None, description="Those of the embedding, or absent.")
    input_type: Literal["passage", "query"] = Field(
        "passage", description="What the texts are: questions are embedded in another way than passages."
    )

    @field_validator("input", mode="before")
    @classmethod
    def _no_token_ids(cls, value: Any) -> Any:
        """They are of another model's vocabulary."""
        first = value[0] if isinstance(value, list) and value else None
        if isinstance(first[0] if isinstance(first, list) and first else first, int):
            raise PydanticCustomError(
                "token_ids",
                "token ids are not taken, texts are; in LangChain's OpenAIEmbeddings set "
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

    prompt_tokens: int = Field(description="Of all texts, estimated.")
    total_tokens: int = Field(description="The same.")


class Embedded(Reply):
    """The vector of one text."""

    object: Literal["embedding"] = Field(description="What it is.")
    index: int = Field(description="The place of the text in the request.")
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

    object: Literal["list"] = Field(description="What it is.")
    data: list[Embedded] = Field(description="One for each text.")
    model: str = Field(description="As requested.")
    usage: EmbeddingUsage = Field(description="Not counted.")


class OfferedModel(Reply):
    """A model that may be asked."""

    model_config = example({"id": "wenmai", "object": "model", "created": 0, "owned_by": "wenmai"})

    id: str = Field(description="What `model` takes.")
    object: Literal["model"] = Field(description="What it is.")
    created: int = Field(description="0: not known.")
    owned_by: str = Field(description="wenmai.")


class OfferedModels(Reply):
    """All models that may be asked."""

    model_config = example(
        {
            "object": "list",
            "data": [{"id": "wenmai", "object": "model", "created": 0, "owned_by": "wenmai"}],
        }
    )

    object: Literal["list"] = Field(description="What it is.")
    data: list[OfferedModel] = Field(description="With knowledge: wenmai…; without: plain/….")


# Errors; what our own clients know of one stands beside it.

_ERROR_CODES = {
    errors.UnknownModelError.code: "model_not_found",
    errors.UnauthorizedError.code: "invalid_api_key",
    errors.QuestionTooLongError.code: "context_length_exceeded",
    errors.TooManyStreamsError.code: "rate_limit_exceeded",
}
_REFUSED_PARAM = re.compile(r"(?:missing: )?([a-z_]+(?:\.\w+)*)(?::|$)")


def status_in_openai(status: int) -> int:
    """A refused field is 400 there."""
    return 400 if status == 422 else status


def is_misplaced(path: str) -> bool:
    """Whether a client of OpenAI's API asks at the wrong base address, when there is nothing at `path`."""
    return path not in _OWN and _MISPLACED.fullmatch(path) is not None


def not_offered(path: str) -> str:
    """What to ask instead, for what OpenAI's API has there and ours has not (/v1/responses); else ""."""
    offered = f"There is nothing here: /v1 has {', '.join(_OWN[:-1])} and {_OWN[-1]}."
    return offered if path.startswith(PREFIX) else ""


def right_base(root: str) -> str:
    return (
        f"There is nothing here: the base address is {root}/v1, or {root} for a client that appends /v1 "
        "to it by itself."
    )


def error_in_openai(status: int, error: dict[str, Any]) -> dict[str, Any]:
    """The object of an error; its message begins with the parameter, where one was refused."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = "server_error" if status >= 500 else kinds.get(status, "invalid_request_error")
    refused = _REFUSED_PARAM.match(error["message"]) if kind == "invalid_request_error" else None
    param = refused[1].replace("model_id", "model") if refused else None
    return {**error, "code": _ERROR_CODES.get(error["code"], error["code"]), "type": kind, "param": param}
