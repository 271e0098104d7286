"""The fixed texts sent to models: Markdown files in config/prompts, Chinese and English."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Language = Literal["zh", "en"]
FOLDER = Path(__file__).parent / "prompts"


class PromptLibrary:
    """Every prompt file, read once. A prompt is plain text: no template engine ever touches it."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._texts = {path.stem: path.read_text(encoding="utf-8").strip() for path in folder.glob("*.md")}

    def text(self, name: str, language: Language | None = None) -> str:
        """Raises KeyError when there is no such file."""
        return self._texts[f"{name}.{language}" if language else name]

    def system(self, language: Language, *, has_knowledge: bool, thinking: bool) -> str:
        """The role prompt by has-knowledge and thinking."""
        role = self.text("knowledge" if has_knowledge else "general", language)
        return f"{role}\n\n{self.text('thinking', language)}" if thinking else role
