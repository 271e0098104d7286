"""Slash commands carried out: answered by the server itself, without a model."""

from __future__ import annotations

from typing import assert_never

from api.turn.memory_commands import MemoryCommands
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
from services.conversation.sessions import SessionStore

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
        "- `/memories`：列出记住的事",
        "Commands:\n"
        "- `/help`: shows this list\n"
        "- `/clear`: starts over here: later questions ignore the history, no turn is deleted\n"
        "- `/persona`: shows this session's persona\n"
        "- `/persona TEXT`: sets or replaces this session's persona, from the next turn on\n"
        "- `/persona clear`: clears this session's persona\n"
        "- `/remember TEXT`: keeps something about you, for all sessions\n"
        "- `/forget WORDS`: deletes the memories that have these words\n"
        "- `/memories`: lists what is remembered",
    ),
    "clear": (
        "已重新开始：之后的提问不带上文。之前的轮次都还在。",
        "Started over: later questions ignore the history. The earlier turns are kept.",
    ),
    "persona_set": ("人设已设置，从下一轮起生效。", "The persona is set, from the next turn on."),
    "persona_cleared": ("人设已清除。", "The persona is cleared."),
    "persona_none": (
        "本会话没有人设。用 `/persona 文字` 设置。",
        "This session has no persona. Set one with `/persona TEXT`.",
    ),
    "persona_now": ("本会话的人设", "This session's persona"),
}
_BETWEEN = "\n\n"


class CommandRunner:
    def __init__(
        self, sessions: SessionStore, memories: MemoryCommands, personas: PersonaRules | None = None
    ) -> None:
        self._sessions = sessions
        self._memories = memories
        self._personas = personas or PersonaRules()

    def check(self, command: Command) -> None:
        """What can be refused before the turn begins. Raises BadRequestError, which names `question`."""
        if command.persona_text is not None:
            self._personas.checked(command.persona_text, "question")

    async def run(self, command: Command, session: Session, turn: Turn, language: CommandLanguage) -> str:
        """Carry the command out and give the answer's text; the session must be stored already.

        The parent of the next turn after `/clear` is the branch's matter. Raises BadRequestError and
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
    heading = _say("persona_now", language, " / ")
    name, colon = (f"（{persona.name}）", "：") if language == "zh" else (f" ({persona.name})", ":")
    return f"{heading}{name if persona.name else ''}{colon}{_BETWEEN}{persona.text}"


def _say(key: str, language: CommandLanguage, between: str = _BETWEEN) -> str:
    chinese, english = _TEXTS[key]
    match language:
        case "zh":
            return chinese
        case "en":
            return english
        case None:
            return f"{chinese}{between}{english}"
