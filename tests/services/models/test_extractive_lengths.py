"""How much of a passage the extractive answerer shows, and how it refers to the rest."""

from __future__ import annotations

import pytest

from core.prompt.layouts import ReadBack
from services.models.extractive import answer


@pytest.mark.parametrize(("relevance", "chars", "shown"), [(0.5, 900, 3), (0.3, 480, 3), (0.15, 480, 3)])
def test_a_merely_close_passage_is_shortened_to_what_is_needed_to_judge_it(
    relevance: float, chars: int, shown: int
) -> None:
    """Discriminates: whole sections below "the closest passage", the less probable as long as the best."""
    rules = "\n".join(f"- Rule {at}: boats sail over the bay, and nobody stays at home." for at in range(14))
    text = "\n\n".join(
        f'<passage id="{at}" file="{at}.md" heading="" relevance="{relevance}">\n{rules}\n</passage>'
        for at in (1, 2, 3)
    )
    said = answer(ReadBack(text, "Who designed this?", ())).split("\n\n")[1:]
    assert (len(said), len(said[-1]) <= chars) == (shown, True)
    assert len(answer(ReadBack(text, "这是谁设计的？", ())).split("\n\n")[-1]) > 800


@pytest.mark.parametrize(
    ("chances", "shown"),
    [
        ((0.3, 0.28, 0.27, 0.26), [1, 2, 3]),
        ((0.15, 0.03), [1]),
        ((0.3, 0.06), [1, 2]),
        ((0.6, 0.55, 0.5, 0.45), [1, 2, 3, 4]),
    ],
)
def test_few_passages_are_shown_as_merely_close(chances: tuple[float, ...], shown: list[int]) -> None:
    """Discriminates: four passages about other things; one far behind a best that is improbable itself."""
    rooms = ("sailing boats", "boats and oars", "oars for hire", "hire of boats")
    passages = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="" relevance="{chance}">\nThe {room} of {at}.\n</passage>'
        for at, (chance, room) in enumerate(zip(chances, rooms, strict=False), 1)
    )
    text = answer(ReadBack(passages, "Which sailing boats have oars for hire?", ()))
    assert [at for at in range(1, 5) if f"[{at}]" in text] == shown


@pytest.mark.parametrize(("best", "shown"), [(0.15, [1, 2, 3]), (0.3, [1, 2])])
def test_the_order_of_improbable_passages_says_little(best: float, shown: list[int]) -> None:
    """Discriminates: hiding the third although the first is hardly more probable than it."""
    passages = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="" relevance="{best * share}">\nPier {at}.\n</passage>'
        for at, share in ((1, 1), (2, 0.7), (3, 0.4), (4, 0.4))
    )
    text = answer(ReadBack(passages, "Who designed this?", ()))
    assert [at for at in range(1, 5) if f"[{at}]" in text] == shown


def test_a_table_that_continues_in_another_passage_says_where() -> None:
    """Discriminates: a part of a table that looks complete; taking a table of two sections for one."""
    table = "| Prize | Sum |\n|---|---|\n| {} | {} |"
    passage = '<passage id="{}" file="a.md" heading="{}" relevance="{}">\n{}\n</passage>'
    first = passage.format(
        1, "Prizes", 0.9, table.format("First prize of the town", "30 | \n| Second prize | 20")
    )
    for heading, ends in (("Prizes", "The table has more rows: [2]."), ("Fines", "[1]")):
        other = passage.format(2, heading, 0.06, table.format("Consolation", "5"))
        said = answer(ReadBack(f"{first}\n\n{other}", "奖金 award for winners?", ()), language="en")
        assert said.endswith(ends)


def test_more_rows_with_the_same_words_than_are_quoted_are_referred_to() -> None:
    """Discriminates: four of six discontinued goods, as if there were no more; a row that is not one."""
    table = "| Code | Article | Remark |\n|---|---|---|\n| KX-{} | Kettle {} | {} |\n| KX-9{} | Jug | |"
    remarks = ("discontinued",) * 6 + ("on order",)
    text = "\n\n".join(
        f'<passage id="{at}" file="a.xlsx" heading="Prices" relevance="0.6">\n'
        f"{table.format(at, at, remark, at)}\n</passage>"
        for at, remark in enumerate(remarks, 1)
    )
    said = answer(ReadBack(text, "Which articles are discontinued?", ()))
    assert said.count("Remark: discontinued") == 4
    assert said.endswith("The table has more rows: [5][6].")
    assert "more rows" not in answer(ReadBack(text, "What is KX-3?", ()))


def test_an_additionally_requested_price_is_quoted_from_a_far_less_probable_passage() -> None:
    """Discriminates: half of an answer; quoting another table if the best passage has a price."""
    passage = '<passage id="{}" file="{}" heading="" relevance="{}">\n{}\n</passage>'
    table = passage.format(2, "b.csv", 0.12, "| 项目 | 价格 |\n|---|---|\n| 门禁卡 | 20 |\n| 押金 | 90 |")
    for said, shown in (("当场可取", True), ("每张 15 元", False)):
        first = passage.format(1, "a.md", 0.6, f"问：门禁卡丢了怎么补？\n答：带身份证补办，{said}。")
        text = answer(ReadBack(f"{first}\n\n{table}", "门禁卡丢了怎么办，补一张多少钱", ()))
        assert (said in text, "门禁卡；价格：20" in text) == (True, shown)


def test_a_code_without_results_is_reported_first_with_the_existing_codes_of_its_kind() -> None:
    """Discriminates: several rows of other codes before it; a sure tone; the text beside another code, which
    is only about that code."""

    def asked(question: str, text: str) -> list[str]:
        passage = f'<passage id="1" file="a.md" heading="" relevance="0.9">\n{text}\n</passage>'
        return answer(ReadBack(passage, question, ())).split("\n\n")

    table = "| Code | What to do |\n|---|---|\n| {} | Call us |\n| {} | Wait |"
    missing = "Found nothing that mentions this: E9"
    assert asked("What if E9 appears?", table.format("F7", "F2"))[:2] == [
        missing,
        "The closest passage I found:",
    ]
    assert asked("What does E9 mean?", table.format("E7", "E2")) == [
        missing, "Of that kind there are: E2, E7 [1]"
    ]  # fmt: skip
    assert len(asked("Do we wait after E9 at night?", table.format("E7", "E2"))) > 2
    assert asked("HX-200 多少钱", "HX-160 每台 900 元。") == [
        "没有找到提到这一点的内容：HX-200", "同类的有：HX-160 [1]"
    ]  # fmt: skip


def test_a_row_is_not_quoted_beside_its_table() -> None:
    """Discriminates: quoting one of the compared things in its short table, and again as a row."""
    rows = (
        "Package | A–C | G–H | Theft",
        "---|---|---|---",
        "Basic | 1,200 | 2,500 | yes",
        "Complete | 0 | 750 | yes",
    )
    table = "\n".join(f"| {row} |" for row in rows)
    text = f"Every rental includes third-party cover and Basic protection.\n\n{table}"
    passage = f'<passage id="1" file="a.md" heading="Packages" relevance="0.3">\n{text}\n</passage>'
    said = answer(ReadBack(passage, "difference between Basic and Complete for group G", ()))
    assert said.count("750") == 1


def test_the_nearest_question_of_an_about_as_probable_list_is_shown() -> None:
    """Discriminates: the first questions of the list, none of which has a word of the question."""
    pairs = ["问：近视能学车吗？\n答：矫正到 4.9 就行。", "问：听力不好能考吗？\n答：可以戴助听器。"]
    texts = ["外国人凭护照报名。", "\n".join(pairs)]
    passages = "\n\n".join(
        f'<passage id="{at}" file="f.txt" heading="" relevance="0.2">\n{text}\n</passage>'
        for at, text in enumerate(texts, 1)
    )
    said = answer(ReadBack(passages, "聋子和外国人行吗？", ()), nearest_parts=["", pairs[1]])
    assert "助听器" in said
    assert "近视" not in said
