"""/remember, /forget and /memories, and the same in plain words: answered by the server, without a model."""

from __future__ import annotations

from api.memories import MemoriesHandler
from core.conversation.sessions import Command, CommandLanguage, CommandName
from core.conversation.turns import Turn
from core.errors import MemoryRefusedError
from core.memory.gate import Refusal
from core.memory.record import MAX_CONTENT_CHARS, Memory, MemoryDraft
from core.memory.requests import type_of

MOST_SHOWN = 20
_TEXTS: dict[str, tuple[str, str]] = {
    "remembered": ("已记住：{}", "I will remember: {}"),
    "known": ("这件事已经记着：{}", "I remember that already: {}"),
    "instead": ("（取代了：{}）", " (instead of: {})"),
    "forgotten": ("已忘掉 {} 条：", "Forgotten ({}):"),
    "no_match": (
        "没有记着与“{}”相符的事。`/memories` 列出记住的一切。",
        "I remember nothing that matches “{}”. `/memories` lists everything.",
    ),
    "what": ("请写上要记住的内容：`/remember 文字`。", "Say what to remember: `/remember TEXT`."),
    "which": ("请写上要忘掉的内容：`/forget 词`。", "Say what to forget: `/forget WORDS`."),
    "none": ("还没有记住任何事。", "Nothing is remembered yet."),
    "list": ("记住的事（最新的在前）：", "Remembered, the newest first:"),
    "more": ("还有更多，见网页的“记忆”。", "There is more: see Memory on the page."),
    "off": (
        "你关闭了记忆，所以没有记下。可以在网页的“记忆”里重新打开。",
        "You switched memory off, so this was not kept. Switch it on again under Memory on the page.",
    ),
    Refusal.SECRET: (
        "密码、密钥、卡号和证件号不会被记住。",
        "Passwords, keys, card numbers and identity numbers are never remembered.",
    ),
    Refusal.TOO_LONG: (
        f"太长了：一条记忆最多 {MAX_CONTENT_CHARS} 个字符。",
        f"That is too long: a memory has at most {MAX_CONTENT_CHARS} characters.",
    ),
}


class MemoryCommands:
    def __init__(self, memories: MemoriesHandler) -> None:
        self._memories = memories

    async def run(self, command: Command, turn: Turn, language: CommandLanguage) -> str:
        """Raises EmbeddingUnavailableError, StoreUnavailableError."""
        match command.name:
            case CommandName.REMEMBER:
                return await self._remember(command.argument, turn, language)
            case CommandName.FORGET:
                return await self._forget(command.argument, turn.owner, language)
            case _:
                return await self._list(turn.owner, language)

    async def _remember(self, content: str, turn: Turn, language: CommandLanguage) -> str:
        """It holds in this session, too: no prompt repeats the turn of a command."""
        if not content:
            return _say("what", language)
        if not (await self._memories.switch_of(turn.owner)).on:
            return _say("off", language)
        draft = MemoryDraft(content, type_of(content), (turn.turn_id,), said_us=turn.created_us)
        try:
            written = await self._memories.write(turn.owner, draft)
        except MemoryRefusedError as error:
            return _say(error.reason, language)
        if not written.is_new:
            return _say("known", language, written.memory.content)
        instead = "; ".join(memory.content for memory in written.ended)
        shown = written.memory.content
        return _say("remembered", language, shown) + (_say("instead", language, instead) if instead else "")

    async def _forget(self, words: str, owner: str, language: CommandLanguage) -> str:
        if not words:
            return _say("which", language)
        forgotten = await self._memories.forget(owner, words)
        if not forgotten:
            return _say("no_match", language, words)
        return f"{_say('forgotten', language, str(len(forgotten)))}\n{_lines(forgotten)}"

    async def _list(self, owner: str, language: CommandLanguage) -> str:
        memories, following = await self._memories.page(owner, MOST_SHOWN, current=True)
        if not memories:
            return _say("none", language)
        more = f"\n\n{_say('more', language)}" if following is not None else ""
        return f"{_say('list', language)}\n{_lines(memories)}{more}"


def _lines(memories: list[Memory]) -> str:
    return "\n".join(f"- {memory.content}" for memory in memories[:MOST_SHOWN])


def _say(key: str, language: CommandLanguage, value: str = "") -> str:
    """In both languages where the reader's is not known."""
    chinese, english = (text.format(value) for text in _TEXTS[key])
    match language:
        case "zh":
            return chinese
        case "en":
            return english
        case None:
            return f"{chinese}\n\n{english}"
