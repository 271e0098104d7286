"""Slash commands: a closed list of first words; everything else that begins with a slash is a question."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.text import Language, fold_width, is_mostly_chinese

CommandLanguage = Language | None
"""None: the language is unknown; the answer is in both."""


class CommandName(StrEnum):
    HELP = "help"
    CLEAR = "clear"
    PERSONA = "persona"


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


def command_language(command: Command, earlier: str = "") -> CommandLanguage:
    """The language to answer in: that of the persona's text, else of an earlier question of the session."""
    for text in (command.persona_text or "", earlier):
        if any(char.isalpha() for char in text):
            return "zh" if is_mostly_chinese(text) else "en"
    return None
