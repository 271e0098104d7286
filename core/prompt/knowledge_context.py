"""The knowledge context: its scope, numbered and fenced blocks that a document cannot close, and the way back
for models of ours that read a prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.knowledge import Candidate, KnowledgeFilter, scope_of
from core.text import Language

BLOCK_GAP = "\n\n"


@dataclass(frozen=True, slots=True)
class Passage:
    """A fenced block of the knowledge context, as the model sees it.

    `index` is its citation number, `relevance` the reranker's probability, to two digits.
    """

    index: int
    file_name: str
    heading: str
    text: str
    relevance: float = 0.0


# A document can neither open nor close a fence: in its text `<passage` and `</passage` get a backslash.
_FENCE_IN_TEXT = re.compile(r"<(\\*)(/?passage)", re.IGNORECASE)
_FENCE_ESCAPED = re.compile(r"<\\(\\*)(/?passage)", re.IGNORECASE)
_BLOCK_SOURCE = (
    r'<passage id="(\d+)" file="([^"\n]*)" heading="([^"\n]*)" relevance="([0-9.]+)">\n(.*?)\n</passage>$'
)
_BLOCK = re.compile("^" + _BLOCK_SOURCE, re.M | re.S)
_NEXT_BLOCK = re.compile(re.escape(BLOCK_GAP) + _BLOCK_SOURCE, re.M | re.S)
_SCOPE = {"zh": "检索范围：{}", "en": "Search scope: {}"}
_NOTHING_WITHIN = {
    "zh": "本次提问只检索了这个范围，其中没有相关资料。"
    "请在第一句说明：在所限定的范围内没有找到；范围之外没有检索。",
    "en": "Only this scope was searched, and nothing relevant is in it. Say in the first sentence that "
    "nothing was found within these limits, and that nothing beyond them was searched.",
}
_SCOPE_IN_PROMPT = re.compile(
    "|".join(
        re.escape(_SCOPE[language]).replace(r"\{\}", f"(?P<{language}>.+)")
        + "\n"
        + re.escape(_NOTHING_WITHIN[language])
        for language in ("zh", "en")
    )
)


def render_knowledge(candidates: Sequence[Candidate]) -> str:
    """Numbered, fenced blocks, best first; numbers count from 1 and are the citation numbers."""
    return BLOCK_GAP.join(render_block(index, candidate) for index, candidate in enumerate(candidates, 1))


def render_block(index: int, candidate: Candidate) -> str:
    chunk = candidate.chunk
    return (
        f'<passage id="{index}" file="{_attribute(chunk.file_name)}" '
        f'heading="{_attribute(chunk.heading)}" relevance="{candidate.probability:.2f}">\n'
        f"{escape_fences(chunk.text)}\n</passage>"
    )


def parse_knowledge(text: str) -> list[Passage]:
    """The blocks of `render_knowledge`, read back: for models of ours that work on the prompt's own text."""
    return [
        Passage(int(index), file_name, heading, _FENCE_ESCAPED.sub(r"<\1\2", body), float(relevance))
        for index, file_name, heading, relevance, body in _BLOCK.findall(text)
    ]


def find_blocks(text: str) -> tuple[int, int] | None:
    """Start and end of the first unbroken run of blocks in `text`; None without any.

    What follows the run may hold anything, blocks of somebody's making too: they are not of the run.
    """
    block = _BLOCK.search(text)
    if block is None:
        return None
    start = block.start()
    end = block.end()
    while block := _NEXT_BLOCK.match(text, end):
        end = block.end()
    return start, end


def escape_fences(text: str) -> str:
    """Text that can neither open nor close a block."""
    return _FENCE_IN_TEXT.sub(r"<\\\1\2", text)


def scope_line(limits: KnowledgeFilter, language: Language) -> str:
    """For the knowledge context; it can close no fence."""
    scope = scope_of(limits, language)
    return escape_fences(_SCOPE[language].format(scope)) if scope else ""


def nothing_within(limits: KnowledgeFilter, language: Language) -> str:
    """For a prompt without passages; "" when nothing is limited."""
    line = scope_line(limits, language)
    return f"{line}\n{_NOTHING_WITHIN[language]}" if line else ""


def scope_in_prompt(prompt: str) -> str:
    """The scope that `nothing_within` wrote into this prompt; "" when it is absent."""
    match = _SCOPE_IN_PROMPT.search(prompt)
    return next(filter(None, match.groups()), "") if match else ""


def _attribute(value: str) -> str:
    return " ".join(value.replace('"', "'").split())
