"""The fixed texts sent to models: Markdown files in config/prompts, Chinese and English."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Language = Literal["zh", "en"]
PromptRole = Literal["knowledge", "general", "unsearched"]
FOLDER = Path(__file__).parent / "prompts"


class PromptLibrary:
    """Every prompt file, read once. A prompt is plain text: no template engine ever touches it."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._texts = {path.stem: path.read_text(encoding="utf-8").strip() for path in folder.glob("*.md")}

    def text(self, name: str, language: Language | None = None) -> str:
        """Raises KeyError when there is no such file."""
        return self._texts[f"{name}.{language}" if language else name]

    def system(self, language: Language, role: PromptRole, *, thinking: bool) -> str:
        """The role prompt: with passages, where the search found none, and where there was none."""
        role_text = self.text(role, language)
        return f"{role_text}\n\n{self.text('thinking', language)}" if thinking else role_text
