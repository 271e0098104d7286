"""Sessions: each is a tree of turns; a branch is the path from a turn up to its root. Also their system
prompts, the personas: what a caller may send, and the stored form. And the slash commands: a closed list of
first words; everything else that begins with a slash is a question."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Literal

from core.conversation.turns import KnowledgeUse, Turn, TurnRequest, TurnStatus
from core.errors import BadRequestError
from core.memory.statements import explicit_request
from core.text import Language, fold_width, language_of, preprocess_question

MAX_NAME_CHARS = 200
MAX_PERSONA_CHARS = 16_000  # bounds what is stored; the prompt's limit is a share of the window
KEEP: Final = "keep"
CHOICES = ("model_id", "temperature", "max_tokens", "thinking", "tools", "knowledge")
"""A session's defaults for what its questions leave open; None: the server's default."""


@dataclass(frozen=True, slots=True)
class Persona:
    """`updated_us` is UTC microseconds. `document_id` and `chunk_id` name the passage that the text comes
    from, or `batch_name` and `item` (its title) the library item."""

    persona_id: str
    name: str
    text: str
    updated_us: int
    document_id: str | None = None
    chunk_id: str | None = None
    batch_name: str | None = None
    item: str | None = None


@dataclass(frozen=True, slots=True)
class PersonaDraft:
    """A persona as a caller sends it, before it has an id and a time."""

    text: str
    name: str = ""
    document_id: str | None = None
    chunk_id: str | None = None
    batch_name: str | None = None
    item: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A link that lets anybody who has it read one branch, as it was when it was shared.

    `leaf` is the branch's last turn; `secret_hash` is the SHA-256, in hex, of the half of the link that is
    stored nowhere; `passages`: whether the texts of its sources are shown. Times are UTC microseconds.
    """

    share_id: str
    secret_hash: str
    leaf: str
    created_us: int
    expires_us: int
    passages: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """Times are UTC microseconds; `updated_us` is when its last turn began. `hold` exempts it from expiry.

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
        """The CHOICES that this session sets."""
        made = {name: getattr(self, name) for name in CHOICES}
        return {name: value for name, value in made.items() if value is not None}

    @property
    def persona_text(self) -> str:
        return self.persona.text if self.persona else ""


@dataclass(frozen=True, slots=True)
class TurnMatch:
    """A turn that matches a search in a session, and the words around the match in one line."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What to change; None, or KEEP if None is a value, leaves a field as it is.

    `choices` are the CHOICES to set, by name.
    """

    title: str | None = None
    hold: bool | None = None
    expire_days: int | Literal["keep"] | None = KEEP
    choices: Mapping[str, Any] = field(default_factory=dict)


def settled(request: TurnRequest, choices: Mapping[str, Any]) -> TurnRequest:
    """Return the request with the session's choices for what it leaves open."""
    chosen = {name: value for name, value in choices.items() if name in request.left_open}
    model_id = chosen.pop("model_id", request.model_id)
    return replace(request, model_id=model_id, how=replace(request.how, **chosen), left_open=frozenset())


def _anything(text: str) -> None:
    """Accepts any number of tokens."""


@dataclass(frozen=True, slots=True)
class PersonaRules:
    """`check` raises BadRequestError for a text with more tokens than its share of the window."""

    check: Callable[[str], None] = _anything
    max_chars: int = MAX_PERSONA_CHARS

    def checked(self, text: str, field: str = "text") -> str:
        """Return the text as stored: scrubbed and stripped. Raises BadRequestError, which names `field`."""
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
"""None: the language is unknown, so the reply is in both."""


class CommandName(StrEnum):
    HELP = "help"
    CLEAR = "clear"
    PERSONA = "persona"
    REMEMBER = "remember"
    FORGET = "forget"
    MEMORIES = "memories"


_NAMES = {f"/{name.value}": name for name in CommandName}
_MAX_COMMAND_CHARS = max(map(len, _NAMES))
_SLASHES = ("/", "\uff0f")


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` is what follows the name, stripped; "" if nothing does."""

    name: CommandName
    argument: str = ""

    @property
    def clears_persona(self) -> bool:
        return self.name is CommandName.PERSONA and self.argument.lower() == "clear"

    @property
    def text(self) -> str:
        """The person's own text in it; "" if it only names a command."""
        brings = self.name in (CommandName.REMEMBER, CommandName.FORGET)
        return self.argument if brings else self.persona_text or ""

    @property
    def persona_text(self) -> str | None:
        """The persona to set; None if it is shown, cleared, or this is another command."""
        sets = self.name is CommandName.PERSONA and self.argument and not self.clears_persona
        return self.argument if sets else None


def parse_command(question: str) -> Command | None:
    """Return the command that the first word names, in any case and width; None for a question."""
    words = question.split(maxsplit=1)
    if not words or not words[0].startswith(_SLASHES) or len(words[0]) > _MAX_COMMAND_CHARS:
        return None
    name = _NAMES.get(fold_width(words[0]).lower())
    return Command(name, words[1].strip() if len(words) > 1 else "") if name else None


def plain_request(question: str) -> Command | None:
    """Return the command for a message that is nothing but a plain-language wish to remember or forget
    something; None for a question."""
    request = explicit_request(question)
    if request is None or not request.whole:
        return None
    return Command(CommandName.FORGET if request.forget else CommandName.REMEMBER, request.content)


def command_language(command: Command, earlier: str = "", reader: CommandLanguage = None) -> CommandLanguage:
    """Return the language to reply in: that of the command's text, else the reader's if known, else that of
    an earlier question or command of the session."""
    before = parse_command(earlier)
    return language_of(command.text) or reader or language_of(before.text if before else earlier)


AHEAD_US = 86_400_000_000  # tolerance for a clock that was ahead: a day
CLEAR = "clear"  # the command after which the next question starts a new root


@dataclass(frozen=True, slots=True)
class TurnNode:
    """A turn without its texts: enough to walk the tree. `command` is "" for a question; `has_answer`: at
    least a word of an answer came."""

    turn_id: str
    parent_turn_id: str | None
    created_us: int
    seq: int
    status: TurnStatus
    command: str = ""
    has_summary: bool = False
    has_answer: bool = False

    @classmethod
    def of(cls, turn: Turn) -> TurnNode:
        return cls(
            turn_id=turn.turn_id,
            parent_turn_id=turn.parent_turn_id,
            created_us=turn.created_us,
            seq=turn.seq,
            status=turn.status,
            command=turn.command,
            has_summary=turn.summary is not None,
            has_answer=bool(turn.answer),
        )

    @property
    def order(self) -> tuple[int, int, str]:
        return (self.created_us, self.seq, self.turn_id)

    @property
    def recallable(self) -> bool:
        """Whether later questions may recall the turn: completed, and not a slash command."""
        return self.status is TurnStatus.COMPLETED and not self.command

    @property
    def is_history(self) -> bool:
        """Whether later prompts on its branch include it: a question that has ended, unless it failed before
        its answer began."""
        failed = self.status is TurnStatus.FAILED
        return self.status.finished and not self.command and (self.has_answer or not failed)


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a new turn is attached: its parent, the nodes from the root down to it, its place in the session.

    `aside` are the session's other turns, which no prompt of this branch may contain. `unreadable` counts
    turns of the session that cannot be read; they are on no branch. `silent` counts those that are not
    recallable, on this branch or aside.
    """

    session_id: str
    parent_turn_id: str | None
    nodes: tuple[TurnNode, ...]
    next_seq: int
    aside: tuple[str, ...] = ()
    unreadable: int = 0
    silent: int = 0
    newest_us: int = 0
    places: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    def time_after(self, now_us: int) -> int:
        """Return the time at which the session's newest turn begins: now, or just after the newest so far if
        a clock was ahead; a turn that is further ahead is not believed."""
        return now_us if self.newest_us > now_us + AHEAD_US else max(now_us, self.newest_us + 1)

    def place(self, turn_id: str) -> int | None:
        """Return the turn's index in `nodes`, None if it is not on the branch."""
        at = self.places.get(turn_id)  # shared with the branch as it grows, so it may include later turns
        return at if at is not None and at < len(self.nodes) else None


class SessionTree:
    """The turns of one session; a branch is walked once, and the next turn is appended to the cached walk.

    `gaps` are unreadable turns, each with its parent if known: branches lead past them.
    """

    def __init__(
        self, session_id: str, nodes: Iterable[TurnNode] = (), gaps: Mapping[str, str | None] | None = None
    ) -> None:
        self.session_id = session_id
        self.gaps = dict(gaps or {})
        self.nodes: dict[str, TurnNode] = {}
        self._next_seq = 0
        self._newest_us = 0
        self._latest: TurnNode | None = None
        self._walk: list[TurnNode] = []  # the last requested branch, from its root
        self._places: dict[str, int] = {}
        self._aside: dict[str, None] = {}  # the turns that are not on it, in the order of `nodes`
        self._silent: set[str] = set()
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        return len(self.nodes) + len(self.gaps)

    def __contains__(self, turn_id: str) -> bool:
        return turn_id in self.nodes or turn_id in self.gaps

    def put(self, node: TurnNode) -> None:
        """Add a turn, or replace it; a change of the summary alone leaves its position unchanged."""
        known = self.nodes.get(node.turn_id)
        if known is not None and replace(known, has_summary=node.has_summary) == node:
            self._summarise(node)
            return
        if self._walk and (self.gaps or node.turn_id in self._places or self._is_above(node.turn_id)):
            self._walk, self._places, self._aside = [], {}, {}
        self.gaps.pop(node.turn_id, None)
        self.nodes[node.turn_id] = node
        if self._walk:
            self._aside[node.turn_id] = None
        (self._silent.discard if node.recallable else self._silent.add)(node.turn_id)
        self._next_seq = max(self._next_seq, node.seq + 1)
        self._newest_us = max(self._newest_us, node.created_us)
        if self._latest is not None and self._latest.turn_id == node.turn_id:
            self._latest = max(filter(_may_lead_on, self.nodes.values()), key=_ORDER, default=None)
        elif _may_lead_on(node) and (self._latest is None or node.order > self._latest.order):
            self._latest = node

    def _summarise(self, node: TurnNode) -> None:
        self.nodes[node.turn_id] = node
        at = self._places.get(node.turn_id)
        if at is not None:
            self._walk[at] = node

    def default_parent(self, now_us: int) -> str | None:
        """Return the next turn's parent if it names none: the latest completed question; after /clear, none.

        None is a new root.
        """
        latest = self._latest
        if latest is not None and latest.created_us > now_us + AHEAD_US:
            latest = newest_of([node for node in self.nodes.values() if _may_lead_on(node)], now_us)
        return latest.turn_id if latest is not None and not latest.command else None

    def branch(self, leaf: str | None) -> Branch:
        """Return the branch on which a turn below `leaf` grows; None is a new root."""
        nodes = self._walk_to(leaf) if leaf is not None and leaf in self.nodes else []
        return Branch(
            session_id=self.session_id,
            parent_turn_id=leaf,
            nodes=tuple(nodes),
            next_seq=max(self._next_seq, len(self)),
            aside=tuple(self._aside if nodes else self.nodes),
            unreadable=len(self.gaps),
            silent=len(self._silent),
            newest_us=self._newest_us,
            places=self._places if nodes else {},
        )

    def _walk_to(self, leaf: str) -> list[TurnNode]:
        """Extend the last walked branch if `leaf` follows on it, else walk from the root again."""
        last = self._walk[-1].turn_id if self._walk else None
        follows = last is not None and self.nodes[leaf].parent_turn_id == last and leaf not in self._places
        if follows:
            self._places[leaf] = len(self._walk)
            del self._aside[leaf]
            self._walk.append(self.nodes[leaf])
        elif last != leaf:
            self._walk = walk_branch(self.nodes, leaf, self.gaps)
            self._places = {node.turn_id: at for at, node in enumerate(self._walk)}
            self._aside = {turn_id: None for turn_id in self.nodes if turn_id not in self._places}
        return self._walk

    def _is_above(self, turn_id: str) -> bool:
        return self._walk[0].parent_turn_id == turn_id


def walk_branch(
    nodes: Mapping[str, TurnNode], leaf: str | None, gaps: Mapping[str, str | None] | None = None
) -> list[TurnNode]:
    """Return the nodes from the root down to `leaf`. A dangling parent ends the walk; a cycle is cut.

    `gaps` are turns to walk past: they name a parent and nothing else.
    """
    gaps = gaps or {}
    branch: list[TurnNode] = []
    visited: set[str] = set()
    while leaf is not None and leaf not in visited:
        visited.add(leaf)
        node = nodes.get(leaf)
        if node is not None:
            branch.append(node)
        leaf = node.parent_turn_id if node is not None else gaps.get(leaf)
    branch.reverse()
    return branch


def _may_lead_on(node: TurnNode) -> bool:
    return node.status is TurnStatus.COMPLETED and node.command in ("", CLEAR)


_ORDER = attrgetter("order")


def newest_of(nodes: Collection[TurnNode], now_us: int) -> TurnNode | None:
    """Return the newest by time; if its clock was too far ahead, no time is trusted and `seq` decides."""
    newest = max(nodes, key=_ORDER, default=None)
    is_ahead = newest is not None and newest.created_us > now_us + AHEAD_US
    return max(nodes, key=attrgetter("seq")) if is_ahead else newest
