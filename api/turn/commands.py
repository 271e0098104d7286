"""Answers the server gives without a model: slash commands, and small talk that needs no documents (thanks,
what day it is, "say that again"). Memory commands may also be plain sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import assert_never

from api.memories import MemoriesHandler
from api.turn.prompt import Gathered
from core.citing.citations import without_marks
from core.conversation.sessions import (
    Command,
    CommandLanguage,
    CommandName,
    Persona,
    PersonaDraft,
    PersonaRules,
    Session,
)
from core.conversation.turns import Turn
from core.errors import MemoryRefusedError
from core.memory.gate import Refusal
from core.memory.record import MAX_CONTENT_CHARS, Memory, MemoryDraft
from core.memory.statements import Extent, everything, type_of
from core.prompt.messages import answer_in_history, with_times
from core.relevance.talk import Talk, talk_of
from core.text import Language, language_of
from services.conversation.sessions import SessionStore

MAX_SHOWN = 20
_TEXTS: dict[str, tuple[str, str]] = {
    "help": (
        "可用的命令：\n"
        "- `/help`：显示这份说明\n"
        "- `/clear`：从这里重新开始，之后的提问不再带上文；已有的轮次都保留\n"
        "- `/persona`：显示本会话的人设\n"
        "- `/persona 文字`：设置或替换本会话的人设，从下一轮起生效\n"
        "- `/persona clear`：清除本会话的人设\n"
        "- `/remember 文字`：记住关于你的一件事，在所有会话里都有效\n"
        "- `/forget 词`：忘掉含有这些词的记忆\n"
        "- `/memories`：列出记住的事\n"
        "- `/模块`：在网页里从模块中选人设或一段文字",
        "Commands:\n"
        "- `/help`: shows this list\n"
        "- `/clear`: starts over here: later questions ignore the history, no turn is deleted\n"
        "- `/persona`: shows this session's persona\n"
        "- `/persona TEXT`: sets or replaces this session's persona, from the next turn on\n"
        "- `/persona clear`: clears this session's persona\n"
        "- `/remember TEXT`: remembers something about you, in all sessions\n"
        "- `/forget WORDS`: deletes the memories that contain these words\n"
        "- `/memories`: lists what is remembered\n"
        "- `/library`: on the page, opens the library of personas and texts",
    ),
    "clear": (
        "已重新开始：之后的提问不带上文。之前的轮次都还在。",
        "Started over: later questions ignore the history. The earlier turns are kept.",
    ),
    "persona_set": (
        "人设已设置，从下一轮起生效。",
        "The persona is set and takes effect from the next turn.",
    ),
    "persona_cleared": ("人设已清除。", "The persona is cleared."),
    "persona_none": (
        "本会话没有人设。用 `/persona 文字` 设置。",
        "This session has no persona. Set one with `/persona TEXT`.",
    ),
    "persona_now": ("本会话的人设", "This session's persona"),
    "remembered": ("已记住：{}", "I will remember: {}"),
    "known": ("这件事已经记住了：{}", "I remember that already: {}"),
    "instead": ("（取代了：{}）", " (instead of: {})"),
    "forgotten": ("已忘掉 {} 条：", "Forgotten ({}):"),
    "no_match": (
        "没有与“{}”相符的记忆。`/memories` 列出记住的一切。",
        "I remember nothing that matches “{}”. `/memories` lists everything.",
    ),
    "unclear": (
        "还没有忘掉什么。`/forget 关于我的一切` 删除关于你的全部记忆；`/clear` 只是不再带本会话的上文。",
        "Nothing is forgotten yet. `/forget everything about me` deletes all memories about you; `/clear` "
        "only leaves out the history of this conversation.",
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
_BETWEEN = "\n\n"


def _say(key: str, language: CommandLanguage, value: str = "", between: str = _BETWEEN) -> str:
    """Say it in both languages if the reader's is unknown."""
    chinese, english = (text.format(value) for text in _TEXTS[key])
    match language:
        case "zh":
            return chinese
        case "en":
            return english
        case None:
            return f"{chinese}{between}{english}"


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
        """Applies to this session too: no prompt repeats a command's turn."""
        if not content:
            return _say("what", language)
        if not (await self._memories.records.switch_of(turn.owner)).on:
            return _say("off", language)
        draft = MemoryDraft(content, type_of(content), (turn.turn_id,), said_us=turn.created_us)
        try:
            written = await self._memories.writer.write(turn.owner, draft)
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
        if everything(words) is Extent.UNCLEAR:
            return _say("unclear", language)
        forgotten = await self._memories.forget(owner, words)
        if not forgotten:
            return _say("none" if everything(words) else "no_match", language, words)
        return f"{_say('forgotten', language, str(len(forgotten)))}\n{_memory_lines(forgotten)}"

    async def _list(self, owner: str, language: CommandLanguage) -> str:
        memories, following = await self._memories.page(owner, MAX_SHOWN, current=True)
        if not memories:
            return _say("none", language)
        lines = _memory_lines(memories)
        language = language or language_of(lines)  # better than both around a list in one
        more = f"\n\n{_say('more', language)}" if following is not None else ""
        return f"{_say('list', language)}\n{lines}{more}"


def _memory_lines(memories: list[Memory]) -> str:
    return "\n".join(f"- {memory.content}" for memory in memories[:MAX_SHOWN])


class CommandRunner:
    def __init__(self, sessions: SessionStore, memories: MemoryCommands, personas: PersonaRules) -> None:
        self._sessions = sessions
        self._memories = memories
        self._personas = personas

    def check(self, command: Command) -> None:
        """Check what can be refused before the turn begins. Raises BadRequestError naming `question`."""
        if command.persona_text is not None:
            self._personas.checked(command.persona_text, "question")

    async def run(self, command: Command, session: Session, turn: Turn, language: CommandLanguage) -> str:
        """Execute the command and return the answer's text; the session must be stored already.

        The branch takes care of the next turn's parent after `/clear`. Raises BadRequestError and
        UnknownSessionError.
        """
        match command.name:
            case CommandName.HELP:
                return _say("help", language)
            case CommandName.CLEAR:
                return _say("clear", language)
            case CommandName.PERSONA:
                return await self._persona(command, session.session_id, turn.owner, language)
            case CommandName.REMEMBER | CommandName.FORGET | CommandName.MEMORIES:
                return await self._memories.run(command, turn, language)
            case _:
                assert_never(command.name)

    async def _persona(self, command: Command, session_id: str, owner: str, language: CommandLanguage) -> str:
        if command.clears_persona:
            await self._sessions.clear_persona(session_id, owner)
            return _say("persona_cleared", language)
        if command.persona_text is not None:
            text = self._personas.checked(command.persona_text, "question")
            await self._sessions.set_persona(session_id, owner, PersonaDraft(text))
            return _say("persona_set", language)
        persona = (await self._sessions.get(session_id, owner)).persona
        return _shown(persona, language) if persona else _say("persona_none", language)


def _shown(persona: Persona, language: CommandLanguage) -> str:
    heading = _say("persona_now", language, between=" / ")
    name, colon = (f"（{persona.name}）", "：") if language == "zh" else (f" ({persona.name})", ":")
    return f"{heading}{name if persona.name else ''}{colon}{_BETWEEN}{persona.text}"


_QUOTE = re.compile(r"^> .*(?:\n> ?.*)*", re.M)
MAX_SOURCES = 10
MAX_PASSAGES = 3


def talk_reply(gathered: Gathered, say: Callable[[str], str], language: Language, now: datetime) -> str:
    """Reply in one or two honest sentences, give the date, or do what needs no model with the last answer:
    repeat it, give its first quote alone, or list its sources with their quotes, also when it is doubted."""
    last = _last_answer(gathered.recent)
    match gathered.talk:
        case None:
            return say("talk_never")
        case Talk.TODAY:
            return with_times(say("talk_today"), language, now, now)
        case Talk.QUESTIONS:
            return _questions(gathered, say)
        case Talk.REPEAT | Talk.SHORTER | Talk.SOURCES | Talk.CERTAIN if last is None:
            return say("talk_nothing_said")
        case Talk.REPEAT if last:
            kinds = ((turn, talk_of(turn.question)) for turn in reversed(gathered.recent))
            return answer_in_history(next(turn for turn, kind in kinds if not (kind and kind.is_polite)))
        case Talk.SHORTER if last:
            return _shorter(last, say)
        case Talk.SOURCES | Talk.CERTAIN as kind if last:
            return "\n\n".join([say(f"talk_{kind}" if last.sources else "talk_no_sources"), *_sources(last)])
        case kind:
            return say(f"talk_{kind}")


def _last_answer(recent: Sequence[Turn]) -> Turn | None:
    """Return the last turn that is not small talk: a request after "shorter" still refers to that one."""
    return next((turn for turn in reversed(recent) if talk_of(turn.question) is None), None)


def _questions(gathered: Gathered, say: Callable[[str], str]) -> str:
    turns = {turn.turn_id: turn for turn in (*gathered.relevant, *gathered.recent)}
    if not turns:
        return say("talk_nothing_said")
    first, *later = [f"- {turn.question}" for turn in sorted(turns.values(), key=lambda turn: turn.seq)]
    between = gathered.asked_before - len(turns)
    more = [f"- {say('talk_more_questions').format(between)}"] if between > 0 else []
    return "\n".join([say("talk_questions"), first, *more, *later])


def _shorter(last: Turn, say: Callable[[str], str]) -> str:
    quote = _QUOTE.search(last.answer)
    if quote is None:
        return say("talk_shorter")
    cited = next((source for source in last.sources if source.cited), None)
    return without_marks(quote[0], len(last.sources)) + (f"\n\n{cited.file_name}" if cited else "")


def _sources(last: Turn) -> Iterator[str]:
    """List sources with their quoted passages; beyond the first few, names only."""
    cited = [source for source in last.sources if source.cited] or list(last.sources)
    for at, source in enumerate(cited[:MAX_SOURCES]):
        named = f"- {source.file_name}" + (f" · {source.heading}" if source.heading else "")
        passage = source.key_passage if at < MAX_PASSAGES else ""
        yield "\n".join([named, *(f"  > {line}".rstrip() for line in passage.splitlines())])
