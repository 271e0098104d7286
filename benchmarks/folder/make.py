"""Write the folder: `python -m benchmarks.folder.make FOLDER --files 1000`. The same seed gives the same
files."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.folder import good
from benchmarks.folder.bad import BAD
from benchmarks.folder.prose import Story, story

BAD_SHARE = 0.05
FOLDERS = ("", "合同", "手册/2025", "reports/q1", "mail", "项目 资料/归档")
_PREFERRED: tuple[tuple[int, str, good.Make], ...] = (
    (20, ".md", good.markdown),
    (8, ".txt", good.text("utf-8")),
    (6, ".txt", good.text("gb18030")),
    (3, ".txt", good.text("utf-16")),
    (10, ".html", good.html),
    (9, ".pdf", good.latin_pdf),
    (13, ".docx", good.word),
    (6, ".pptx", good.slides),
    (7, ".xlsx", good.sheet),
    (6, ".csv", good.table),
    (4, ".json", good.records),
    (2, ".jsonl", good.json_lines),
    (2, ".epub", good.book),
    (4, ".eml", good.mail),
    (6, ".py", good.code),
)


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A generated file; `path` is relative to the folder, `trouble` says what is wrong with a bad one."""

    path: str
    story: Story
    trouble: str = ""


def make_folder(folder: Path, files: int, seed: int = 1, bad: int | None = None) -> list[MadeFile]:
    """Fill an empty folder with `files` files, `bad` of them bad (default: one in twenty)."""
    made = []
    for file, content in _files(files, seed, max(1, round(files * BAD_SHARE)) if bad is None else bad):
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        made.append(file)
    return made


def _files(files: int, seed: int, bad: int) -> Iterator[tuple[MadeFile, bytes]]:
    for number in range(files):
        chance = random.Random(f"{seed} {number}")
        subject = story(number, chance)
        place = chance.choice(FOLDERS)
        if number < bad:
            trouble = BAD[number % len(BAD)]
            name = f"{trouble.name}-{number}{trouble.ending}"
            yield MadeFile(_path(place, name), subject, trouble.name), trouble.make(subject, chance)
        else:
            ending, make = _kind(subject, chance)
            yield MadeFile(_path(place, f"{subject.title}{ending}"), subject), make(subject)


def rewritten(file: MadeFile, seed: int) -> tuple[MadeFile, bytes]:
    """Return another story in a file of the same name and kind."""
    number = 50_000 + seed
    chance = random.Random(f"again {number}")
    subject = story(number, chance)
    while subject.chinese != file.story.chinese:
        number += 1_000
        subject = story(number, chance)
    ending = Path(file.path).suffix
    make = next(make for _, each, make in _PREFERRED if each == ending)
    return MadeFile(file.path, subject), make(subject)


def _kind(subject: Story, chance: random.Random) -> tuple[str, good.Make]:
    kinds = [kind for kind in _PREFERRED if not (subject.chinese and kind[1] == ".pdf")]
    _, ending, make = chance.choices(kinds, [weight for weight, _, _ in kinds])[0]
    return ending, make


def _path(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a folder of mixed files to try the ingestion on.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    made = make_folder(asked.folder, asked.files, asked.seed)
    bad = sum(bool(file.trouble) for file in made)
    print(f"{len(made)} files, {bad} of them bad, in {asked.folder}")


if __name__ == "__main__":
    main()
