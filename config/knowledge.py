"""How documents are cut, and which folders are followed."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, field_validator

from config.fields import Section

MAX_TAGS = 32
MAX_TAG_CHARS = 64


class SourceSettings(Section):
    """One `[sources.<name>]` table: a folder whose files are followed, added, changed and removed.

    `include` and `exclude` are patterns of paths below the folder, as in .gitignore; hidden files and links
    are left out. Without an `owner` its documents are everybody's.
    """

    folder: Path
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    owner: str | None = Field(None, min_length=1, max_length=200)

    @field_validator("folder", mode="before")
    @classmethod
    def _whole_path(cls, folder: object) -> object:
        """A relative one would mean another folder for a command that is started elsewhere."""
        whole = Path(folder).expanduser() if isinstance(folder, str) and folder else folder
        if not isinstance(whole, Path) or not whole.is_absolute():
            raise ValueError("folder must be a whole path, such as /srv/handbook or ~/handbook")
        return whole

    @field_validator("tags")
    @classmethod
    def _short_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if len(tags) > MAX_TAGS or any(len(tag.strip()) > MAX_TAG_CHARS for tag in tags):
            raise ValueError(f"at most {MAX_TAGS} tags, of at most {MAX_TAG_CHARS} characters each")
        return tags

    @field_validator("include")
    @classmethod
    def _includes_something(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        if not patterns:
            raise ValueError("include must name at least one pattern, such as *.md")
        return patterns


class KnowledgeSettings(Section):
    """Sizes are tokens of the embedding model."""

    load_sample: bool = True
    chunk_tokens: int = Field(192, ge=32, le=4_096)
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    sync_cron: str = "*/10 * * * *"

    @field_validator("sources")
    @classmethod
    def _named_plainly(cls, sources: dict[str, SourceSettings]) -> dict[str, SourceSettings]:
        for name in sources:
            if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 64:
                raise ValueError(f"source {name!r} must be named with letters, digits, - and _ only")
        folders = [os.path.realpath(source.folder) for source in sources.values()]
        if len(set(folders)) < len(folders):
            raise ValueError("two sources name the same folder")
        return sources


def overlap(one: Path, other: Path) -> bool:
    """Whether one folder is the other, or lies in it; links are followed."""
    first, second = Path(os.path.realpath(one)), Path(os.path.realpath(other))
    return first.is_relative_to(second) or second.is_relative_to(first)
