"""A transcript shows every turn of the tree once, and no text can break out of its block."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from core.conversation.sessions import Persona, TurnNode, walk_branch
from core.conversation.transcript import MarkdownTranscript, Stretch, contained, readable_parents, stretches
from core.conversation.turns import Turn, TurnStatus
from core.images import Image
from core.knowledge import Citation

HOSTILE = [
    "</blockquote><h1>out</h1>", "<!-- swallow", "<script>alert(1)</script>", "```\nout\n```", "~~~", "````",
    "# heading", "## Answer", "> deeper\n\nout", "---", "[1]: http://evil.test", "[^1]: note", "1. one",
    "- x", "![p](http://evil.test/p.png)", "***", "===", "a\n===", "| a |\n|---|", "    code", "\tcode",
    "\r# out", "\u2028# out", "**Answer**", "&lt;b&gt;", "\\", "`", "a\n\n\nb", " ", "\n", "*", "_x_",
    "<http://evil.test>", "](x)", "#", "x #",
]  # fmt: skip
texts = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=8), max_size=6).map("\n".join) | st.lists(
    st.sampled_from(HOSTILE), max_size=4
).map("".join)


def citation(file_name: str, heading: str, index: int = 1) -> Citation:
    return Citation(index, "d", file_name, "c", 0.5, 3, heading, 0, 1, "key", "text")


def turn(question: str = "q", answer: str = "a", **fields: Any) -> Turn:
    plain = Turn("t", "s", "o", question, 1_750_000_000_000_000, TurnStatus.COMPLETED)
    return replace(plain, answer=answer, **fields)


def outline(markdown: str) -> list[str]:
    """The top level of the document; a quote and a fence count as the same."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    assert not any(token.type.startswith("html") for token in tokens)
    inline = [child.type for token in tokens for child in token.children or []]
    assert not {"html_inline", "image"} & set(inline)
    top = [token.type for token in tokens if token.level == 0 and token.type != "blockquote_close"]
    return ["held" if kind in ("blockquote_open", "fence") else kind for kind in top]


@given(question=texts, answer=texts, thinking=texts, file_name=texts, heading=texts)
def test_no_text_changes_the_outline_of_the_document(
    question: str, answer: str, thinking: str, file_name: str, heading: str
) -> None:
    """Discriminates: a fixed fence of three ticks, a quote for text with HTML, an unescaped file name."""
    hostile = turn(
        question or "q",
        answer or "a",
        thinking=thinking or "t",
        sources=(citation(file_name, heading),),
    )
    transcript = MarkdownTranscript("en").turn(1, hostile)
    plain = turn("q", "a", thinking="t", sources=(citation("f", "h"),))
    assert outline(transcript) == outline(MarkdownTranscript("en").turn(1, plain))


@given(title=texts, name=texts, text=texts)
def test_neither_a_title_nor_a_persona_changes_the_outline(title: str, name: str, text: str) -> None:
    """Discriminates: an unescaped title."""
    transcript = MarkdownTranscript("en").head("s", title, 0, 1, Persona("p", name, text, 0))
    plain = MarkdownTranscript("en").head("s", "x", 0, 1, Persona("p", "x", "x", 0))
    assert outline(transcript) == outline(plain)


def test_ordinary_text_is_quoted_and_keeps_its_markup() -> None:
    assert contained("**bold**\n\n- item") == "> **bold**\n>\n> - item"


def test_text_that_could_break_out_gets_a_longer_fence_than_its_own() -> None:
    assert contained("<b>\n````\nx") == "`````text\n<b>\n````\nx\n`````"


def test_a_source_whose_document_was_erased_is_shown_as_deleted() -> None:
    cited = turn("Why?", "Because [1].", sources=(citation("", ""),))
    assert "1. document deleted" in MarkdownTranscript("en").turn(1, cited)
    assert "1. 文档已删除" in MarkdownTranscript("zh").turn(1, cited)


def test_a_turn_shows_its_time_its_status_and_its_sources() -> None:
    transcript = MarkdownTranscript("en").turn(
        4, turn("Why?", "Half an", status=TurnStatus.CANCELLED, sources=(citation("a_b.md", "Intro", 2),))
    )
    assert transcript == (
        "### 4 · 2025-06-15 15:06:40 UTC · cancelled\n\n**Question**\n\n> Why?\n\n**Answer**\n\n> Half an\n\n"
        "**Sources**\n\n2. “a\\_b.md”, Intro, page 3\n\n"
    )


def test_of_the_passages_only_the_cited_ones_are_listed_as_sources() -> None:
    """Discriminates: a list of all that was found, as if the answer rested on it."""
    sources = (citation("a.md", "A", 1), replace(citation("b.md", "B", 2), cited=True))
    transcript = MarkdownTranscript("en").turn(1, turn(answer="Yes [2].", sources=sources))
    assert transcript.endswith("**Sources**\n\n2. “b.md”, B, page 3\n\n")


def test_a_question_with_an_image_tells_the_reader_where_the_image_is() -> None:
    """Discriminates: the note for models, which mentions sending it again."""
    asked = turn(images=(Image("image/png", 1, 1, 1, "h"),))
    assert "*1 image, not in this file (an export as JSON has it)*" in MarkdownTranscript("en").turn(1, asked)
    assert "*1 张图片，不在这份文件里（JSON 导出里有）*" in MarkdownTranscript("zh").turn(1, asked)
    head = MarkdownTranscript("en").head("s", "T", 1_750_000_000_000_000, 1, None)
    assert head.endswith("UTC · 1 turn\n\n")


def nodes_of(parents: Mapping[str, str | None]) -> dict[str, TurnNode]:
    """Return the nodes in the order of the mapping."""
    return {
        turn_id: TurnNode(turn_id, parent, at, at, TurnStatus.COMPLETED)
        for at, (turn_id, parent) in enumerate(parents.items())
    }


def test_the_newest_branch_comes_first_and_others_follow_where_they_fork() -> None:
    nodes = nodes_of({"a": None, "b": "a", "x": "b", "y": "a", "c": "b", "r": None, "d": "c"})
    assert stretches(nodes, readable_parents(nodes)) == [
        Stretch(("a", "b", "c", "d"), 1, None),
        Stretch(("x",), 5, 2),
        Stretch(("y",), 6, 1),
        Stretch(("r",), 7, None),
    ]
    headings = [MarkdownTranscript("en").heading(each) for each in stretches(nodes, readable_parents(nodes))]
    assert [text.strip() for text in headings] == [
        "## Conversation", "## Branch from turn 2", "## Branch from turn 1", "## Another beginning",
    ]  # fmt: skip


def test_commands_appear_where_they_were_sent_and_make_no_branch() -> None:
    """Discriminates: a beginning for each command without a follow-up; questions that continue from
    /clear."""
    plain = nodes_of({
        "/help": None, "/persona": None, "a": None, "/memories": "a", "b": "a", "c": "a", "/clear": "c",
        "d": "c",
    })  # fmt: skip
    nodes = {name: replace(each, command=name[1:] if name[0] == "/" else "") for name, each in plain.items()}
    assert stretches(nodes, readable_parents(nodes)) == [
        Stretch(("/help", "/persona", "a", "c", "d"), 1, None),
        Stretch(("/memories", "b"), 6, 3),
        Stretch(("/clear",), 8, 4),
    ]


def test_an_unreadable_turn_is_walked_past_and_a_missing_parent_makes_a_root() -> None:
    nodes = nodes_of({"a": None, "c": "gap2", "d": "gone"})
    assert readable_parents(nodes, {"gap": "a", "gap2": "gap"}) == {"a": None, "c": "a", "d": None}


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.randoms())
def test_any_graph_gives_a_forest_that_has_every_turn_once(
    targets: list[int], shuffle: random.Random
) -> None:
    """Discriminates: not cutting a cycle; starting only from turns without children."""
    names = [str(at) for at in range(len(targets))]
    order = names[:]
    shuffle.shuffle(order)
    parents_by_id = {name: str(targets[int(name)]) for name in order}
    nodes = nodes_of({name: parent if parent != "12" else None for name, parent in parents_by_id.items()})
    parents = readable_parents(nodes)
    for name in names:
        walk = walk_branch(nodes_of(parents), name)
        assert parents[walk[0].turn_id] is None
    parts = stretches(nodes, parents)
    assert sorted(turn_id for each in parts for turn_id in each.turn_ids) == sorted(names)
    numbers = {turn_id: each.first + at for each in parts for at, turn_id in enumerate(each.turn_ids)}
    assert sorted(numbers.values()) == list(range(1, len(names) + 1))
    for each in parts:
        above = parents[each.turn_ids[0]]
        assert each.after == (numbers[above] if above else None)


def test_a_chain_of_ten_thousand_turns_is_laid_out_without_recursion() -> None:
    nodes = nodes_of({str(at): str(at - 1) if at else None for at in range(10_000)})
    (only,) = stretches(nodes, readable_parents(nodes))
    assert len(only.turn_ids) == 10_000
