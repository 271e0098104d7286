"""Sessions; their own system prompts, the personas: what a caller may give, and the form it is kept in; and
the slash commands: a closed list of first words, everything else that begins with a slash is a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Literal

from core.conversation.turns import KnowledgeUse, TurnRequest
from core.dates import rfc3339
from core.errors import BadRequestError
from core.memory.requests import explicit_request
from core.text import Language, fold_width, is_mostly_chinese, preprocess_question

MAX_NAME_CHARS = 200
MAX_PERSONA_CHARS = 16_000  # what counts is its share of the model's window: this bounds what is stored
KEEP: Final = "keep"
CHOICES = ("model_id", "temperature", "max_tokens", "thinking", "tools", "knowledge")
"""What a session says of its questions where they do not say it themselves; None: as the server does."""


@dataclass(frozen=True, slots=True)
class Persona:
    """`updated_us` is UTC microseconds. `document_id` and `chunk_id` name the passage the text is from, or
    `batch_name` and `item` (its title) the item of the library."""

    persona_id: str
    name: str
    text: str
    updated_us: int
    document_id: str | None = None
    chunk_id: str | None = None
    batch_name: str | None = None
    item: str | None = None

    @property
    def updated_at(self) -> str:
        return rfc3339(self.updated_us)


@dataclass(frozen=True, slots=True)
class PersonaDraft:
    """A persona as a caller gives it, before it has an id and a time."""

    text: str
    name: str = ""
    document_id: str | None = None
    chunk_id: str | None = None
    batch_name: str | None = None
    item: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A link by which anybody who has it reads one branch, as it was when it was shared.

    `leaf` is the branch's last turn; `secret_hash` is SHA-256 in hex, of the half of the link that is stored
    nowhere; `passages`: whether the texts of its sources are shown. Times are UTC microseconds.
    """

    share_id: str
    secret_hash: str
    leaf: str
    created_us: int
    expires_us: int
    passages: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """Times are UTC microseconds; `updated_us` is when its last turn began. `hold` keeps it from expiry.

    `expire_days` is the session's own age limit in days; None: CONVERSATION_EXPIRE_DAYS. The rest is CHOICES.
    """

    session_id: str
    owner: str
    title: str
    created_us: int
    updated_us: int
    hold: bool = False
    persona: Persona | None = None
    expire_days: int | None = None
    shares: tuple[Share, ...] = ()
    model_id: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    thinking: bool | None = None
    tools: tuple[str, ...] | None = None
    knowledge: KnowledgeUse | None = None

    @property
    def choices(self) -> dict[str, Any]:
        """Those of CHOICES that it makes."""
        made = {name: getattr(self, name) for name in CHOICES}
        return {name: value for name, value in made.items() if value is not None}

    @property
    def persona_text(self) -> str:
        return self.persona.text if self.persona else ""

    @property
    def created_at(self) -> str:
        return rfc3339(self.created_us)

    @property
    def updated_at(self) -> str:
        return rfc3339(self.updated_us)


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What somebody changes; None, or KEEP where None means something, leaves it as it is.

    `choices` are those of CHOICES that are made anew, by name.
    """

    title: str | None = None
    hold: bool | None = None
    expire_days: int | Literal["keep"] | None = KEEP
    choices: Mapping[str, Any] = field(default_factory=dict)


def settled(request: TurnRequest, choices: Mapping[str, Any]) -> TurnRequest:
    """With the session's choices where it leaves them open."""
    chosen = {name: value for name, value in choices.items() if name in request.left_open}
    model_id = chosen.pop("model_id", request.model_id)
    return replace(request, model_id=model_id, how=replace(request.how, **chosen), left_open=frozenset())


def _anything(text: str) -> None:
    """No limit in tokens."""


@dataclass(frozen=True, slots=True)
class PersonaRules:
    """`check` refuses, with a BadRequestError, a text that has more tokens than its share of the window."""

    check: Callable[[str], None] = _anything
    max_chars: int = MAX_PERSONA_CHARS

    def checked(self, text: str, field: str = "text") -> str:
        """The text as it is kept: scrubbed and stripped. Raises BadRequestError, which names `field`."""
        if "\0" in text:
            raise BadRequestError(f"{field}: must not contain the NUL character.")
        text = preprocess_question(text)
        if not text:
            raise BadRequestError(f"{field}: must not be empty.")
        if len(text) > self.max_chars:
            raise BadRequestError(f"{field}: {len(text)} characters, at most {self.max_chars} are allowed.")
        self.check(text)
        return text


CommandLanguage = Language | None
"""None: the language is unknown; the answer is in both."""


class CommandName(StrEnum):
    HELP = "help"
    CLEAR = "clear"
    PERSONA = "persona"
    REMEMBER = "remember"
    FORGET = "forget"
    MEMORIES = "memories"


_NAMES = {f"/{name.value}": name for name in CommandName}
_LONGEST = max(map(len, _NAMES))
_SLASHES = ("/", "\uff0f")


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` is what follows the name, stripped; "" when nothing does."""

    name: CommandName
    argument: str = ""

    @property
    def clears_persona(self) -> bool:
        return self.name is CommandName.PERSONA and self.argument.lower() == "clear"

    @property
    def text(self) -> str:
        """What somebody wrote in it; "" for what only names a command."""
        brings = self.name in (CommandName.REMEMBER, CommandName.FORGET)
        return self.argument if brings else self.persona_text or ""

    @property
    def persona_text(self) -> str | None:
        """The persona that is to be set; None when it is shown, cleared, or another command."""
        sets = self.name is CommandName.PERSONA and self.argument and not self.clears_persona
        return self.argument if sets else None


def parse_command(question: str) -> Command | None:
    """The command that the first word names, in any case and width; None for a question."""
    words = question.split(maxsplit=1)
    if not words or not words[0].startswith(_SLASHES) or len(words[0]) > _LONGEST:
        return None
    name = _NAMES.get(fold_width(words[0]).lower())
    return Command(name, words[1].strip() if len(words) > 1 else "") if name else None


def plain_request(question: str) -> Command | None:
    """A message that is nothing but the wish that something be remembered or forgotten, in plain words: it
    is carried out like the command. None for a question."""
    request = explicit_request(question)
    if request is None or not request.whole:
        return None
    return Command(CommandName.FORGET if request.forget else CommandName.REMEMBER, request.content)


def command_language(command: Command, earlier: str = "", reader: CommandLanguage = None) -> CommandLanguage:
    """The language to answer in: that of the text it brings, else the reader's where it is known, else that
    of an earlier question of the session."""
    return _language_of(command.text) or reader or _language_of(earlier)


def _language_of(text: str) -> CommandLanguage:
    if not any(char.isalpha() for char in text):
        return None
    return "zh" if is_mostly_chinese(text) else "en"
