"""What the extractive answerer writes before its quotes."""

from __future__ import annotations

import re

import pytest

from api.messages import PromptLibrary
from core.prompt.layouts import ReadBack
from core.relevance.probability import SURE
from core.text import Language
from services.models.extractive import answer

TEXT = "The yearly fee is 90 dollars."
PASSAGE = f'<passage id="1" file="fees.md" heading="Fees" relevance="{{:.2f}}">\n{TEXT}\n</passage>'


@pytest.mark.parametrize(
    ("question", "sure", "closest", "sure_yet", "closest_yet"),
    [
        (
            "What is the yearly fee?", "From the documents:", "The closest passage I found:",
            "Documents are still being read. From the documents:",
            "Documents are still being read; ask again soon. The closest passage so far:",
        ),
        (
            "每年的费用 fee 是多少？", "资料中的相关内容：", "最接近的内容：",
            "文档还在读入。资料中的相关内容：", "文档还在读入，请稍后再问一次。目前最接近的内容：",
        ),
    ],
)  # fmt: skip
def test_an_unsure_answer_says_so(
    question: str, sure: str, closest: str, sure_yet: str, closest_yet: str
) -> None:
    """Discriminates: the same wording at .21 and .90; not mentioning documents that are being ingested."""
    for chance, still_reading, begins in (
        (SURE, False, sure),
        (SURE, True, sure_yet),
        (SURE - 0.01, False, closest),
        (SURE - 0.01, True, closest_yet),
    ):
        said = answer(ReadBack(PASSAGE.format(chance), question, ()), still_reading=still_reading)
        assert said.startswith(begins)
        assert "90 dollars" in said


def test_the_first_quote_of_a_passage_is_under_its_innermost_heading() -> None:
    """Discriminates: a quote that omits which version it is about, and a heading above each quote."""
    text = f"Leave in days: 15.\n\n{'Nothing else of it. ' * 40}\n\nLeave in hours: 120."
    passage = f'<passage id="1" file="a.md" heading="Rules > 2026" relevance="0.90">\n{text}\n</passage>'
    quotes = answer(ReadBack(passage, "How much leave is there?", ())).split("\n\n")[1:]
    assert quotes == ["> **2026**\n> Leave in days: 15. [1]", "> Leave in hours: 120. [1]"]


@pytest.mark.parametrize(("file", "titles"), [("a.md", 1), ("b.md", 2)])
def test_two_passages_of_a_section_share_one_heading(file: str, titles: int) -> None:
    """Discriminates: a heading above each passage; none above that of another file."""
    blocks = "\n\n".join(
        f'<passage id="{at}" file="{name}" heading="Travel" relevance="0.90">\n{text}\n</passage>'
        for at, name, text in ((1, "a.md", "Hotels cost 90 a night."), (2, file, "A hotel may cost 120."))
    )
    said = answer(ReadBack(blocks, "What may a hotel cost?", ()))
    assert said.count("**Travel**") == titles
    assert "[1]" in said
    assert "[2]" in said


def test_the_best_passage_is_quoted_whatever_its_words() -> None:
    """Discriminates: quotes by words alone, which miss the answer in other words."""
    best = "**Mould and smell.** If it smells musty, soak it overnight with enzyme cleaner."
    other = "Weekend opening hours: anything from 9 to 5, in rainy weather as well."
    passages = "\n\n".join(
        f'<passage id="{at}" file="care.md" heading="Care > {title}" relevance="0.4">\n{text}\n</passage>'
        for at, title, text in [(1, "Tents", best), (2, "Hours", other)]
    )
    quotes = answer(ReadBack(passages, "Does it stink after a rainy weekend?", ())).split("\n\n")[1:]
    assert quotes == [f"> **Tents**\n> {best} [1]", f"> **Hours**\n> {other} [2]"]


@pytest.mark.parametrize(("second", "order"), [(0.3, [1, 2]), (0.5, [2, 1])])
def test_a_clearly_best_passage_is_quoted_before_those_with_more_words(
    second: float, order: list[int]
) -> None:
    texts = {
        1: (0.6, "People use the grinder with a key each."),
        2: (second, "At once 16 people use the grinder."),
    }
    passages = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="" relevance="{chance}">\n{text}\n</passage>'
        for at, (chance, text) in texts.items()
    )
    quotes = answer(ReadBack(passages, "How many people use the grinder at once?", ())).split("\n\n")[1:]
    assert [int(quote[-2]) for quote in quotes] == order


@pytest.mark.parametrize(("chance", "is_shown"), [(0.27, True), (0.2, False)])
def test_a_passage_about_as_probable_as_the_best_is_quoted_too(chance: float, is_shown: bool) -> None:
    """Discriminates: quotes by words alone, of which the passage that answers has too few."""
    passages = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="" relevance="{relevance}">\n{text}\n</passage>'
        for at, relevance, text in [
            (1, 0.4, "Gateway warranty extension: 120 dollars. Gateway warranty repair: by quote."),
            (2, chance, "Units are covered for 60 months."),
        ]
    )
    text = answer(ReadBack(passages, "gateway warranty?", ()))
    assert text.endswith("> Units are covered for 60 months. [2]") is is_shown
    assert ("60 months" in text) is is_shown


@pytest.mark.parametrize(
    ("name", "says", "is_shown"),
    [
        ("price-list-2026.md", "Prices: see the price list.", True),
        ("清运收费表（2026年）.xlsx", "标准见《清运收费表》。", True),
        ("price-list.md", "The price list is long.", False),
        ("fees.md", "Prices: see the price list.", False),
    ],
)
def test_the_row_of_a_document_the_best_passage_refers_to_is_quoted(
    name: str, says: str, is_shown: bool
) -> None:
    """Discriminates: 'see the price list' without the price, as the list is far less probable."""
    passages = "\n\n".join(
        f'<passage id="{at}" file="{file}" heading="" relevance="{relevance}">\n{text}\n</passage>'
        for at, relevance, file, text in [
            (1, 0.6, "rules.md", f"Removal of rubble is paid at once, 清运费一次付清. {says}"),
            (2, 0.1, name, "| Item 项目 | Price 价格 |\n|---|---|\n| Removal of rubble 清运费 | 6 |"),
        ]
    )
    text = answer(ReadBack(passages, "Removal of rubble 清运费", ()))
    assert ("6 [2]" in text) is is_shown


def test_if_words_decide_little_the_best_passage_is_quoted_first() -> None:
    """Discriminates: a cat in a text on registration, before the text about home visits."""
    passages = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="" relevance="{relevance}">\n{text}\n</passage>'
        for at, relevance, text in [
            (1, 0.3, "We come and visit your house to say goodbye."),
            (2, 0.25, "Put every old cat on the list."),
        ]
    )
    quotes = answer(ReadBack(passages, "Can somebody come to our house to put our old cat to sleep?", ()))
    assert [part[-3:] for part in quotes.split("\n\n")[1:]] == ["[1]", "[2]"]


def test_a_quote_selected_by_two_parts_of_a_question_appears_once() -> None:
    """Discriminates: the row of the second thing quoted again below both."""
    table = "| Model | Price |\n|---|---|\n| X3 | 399 |\n| X3 Pro | 599 |\n| Z1 | 299 |"
    passage = f'<passage id="1" file="a.md" heading="" relevance="0.9">\n{table}\n</passage>'
    text = answer(ReadBack(passage, "What is the difference between the X3 and the X3 Pro?", ()))
    assert [text.count(row) for row in ("Model: X3; Price: 399", "Model: X3 Pro; Price: 599")] == [1, 1]


POOL = "AQ-118 repairs the pool heating. Reaction time: 8 hours."

NO_SHOW = "\n\nA booking that nobody collects counts as a no-show and is paid in full."


@pytest.mark.parametrize(
    ("question", "text", "is_said"),
    [
        ("Who repairs the pool heating and what is the name of your dentist?", POOL, True),
        ("Who repairs the pool heating and how quickly do they come?", POOL, True),
        ("Who repairs the pool heating and what does the parking cost?", "停车每小时五元。" + POOL, False),
        ("谁修泳池加热，另外开题没过怎么办", "AQ 修泳池加热。\n\n开题未通过的，再申请。", False),
        ("谁修泳池加热？要是寄到外省得花多少钱？", "AQ 修泳池加热。\n\n其他省市寄送 60 元。", True),
        ("Who repairs the pool heating? What happens if I don't show up?", POOL + NO_SHOW, False),
        ("病历在哪里复印，一页多少钱", "病历复印须本人办理。每页0.5元。", True),
        ("病历在哪里复印，一页多少钱", "病历在四楼复印。每页0.5元。", False),
        (
            "How hot is P3 and how long does it take?",
            "|  | Heat | Time |\n|---|---|---|\n| P3 | 80 °C | 28 min |",
            False,
        ),
    ],
)
def test_a_part_whose_words_occur_nowhere_is_reported_as_possibly_unanswered(
    question: str, text: str, is_said: bool
) -> None:
    """Discriminates: claiming that no passage mentions it, although other words may, or ignoring it silently;
    one that occurs in the other language; a place that is asked for and missing; one whose only word refers
    to the previous part."""
    passage = f'<passage id="1" file="a.md" heading="" relevance="0.9">\n{text}\n</passage>'
    said = answer(ReadBack(passage, question, ())).split("\n\n")
    says = ("The passages above may not answer this: ", "上面的内容可能没有回答这一问：")
    assert said[-1].startswith(says) is is_said


def test_a_mark_after_a_table_is_separate() -> None:
    """Discriminates: a mark in the last row, as an extra cell that no reader sees."""
    table = "| 房间 | 价格 |\n|---|---|\n| 101 | 90 |"
    passage = f'<passage id="1" file="a.md" heading="" relevance="0.2">\n{table}\n</passage>'
    assert answer(ReadBack(passage, "How much is it?", ())).endswith("> | 101 | 90 |\n\n[1]")


@pytest.mark.parametrize(
    ("question", "text", "count"),
    [
        ("How many boats are there?", "Boats:\n- Heron\n- Otter", "This passage lists 2 items. [1]"),
        ("停车证有几种？", "停车证：\n- 固定证\n- 临时证", "这段资料列出 2 项。[1]"),
    ],
)
def test_the_number_of_items_of_a_list_is_stated_below_it(question: str, text: str, count: str) -> None:
    assert quotes_of(question, (0.9, text))[-1] == count
    assert count not in quotes_of("Heron? 固定证？", (0.9, text))


def test_the_part_nearest_by_meaning_is_quoted_whatever_its_words() -> None:
    """Discriminates: quotes by words alone; quoting a part beside an answer on which words are clear."""
    rules = "- Lockers: 140 on level 0.\n- Group rooms are booked in the app." + "\n- Nothing else." * 50
    passage = f'<passage id="1" file="a.md" heading="" relevance="0.4">\n{rules}\n</passage>'
    parts = ["- Lockers: 140 on level 0."]
    text = answer(ReadBack(passage, "Where does my backpack stay when rooms are booked?", ()), "", (), parts)
    assert text.endswith("> - Lockers: 140 on level 0. [1]")
    clear = answer(ReadBack(passage, "Are group rooms booked in the app?", ()), "", (), parts)
    assert "Group rooms" in clear
    assert "Lockers" not in clear


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_models_prompt_states_the_same_limit(language: Language) -> None:
    assert str(SURE) in PromptLibrary().text("knowledge", language)


def test_a_follow_up_is_quoted_by_its_own_words() -> None:
    """Discriminates: words of the previous question, which select the quote again."""
    sections = [
        (
            "怎么用 Ollama 等本机模型",
            "用 Ollama 或 vLLM 在本机运行的模型，把 `OPENAI_BASE_URL` 设为它的地址。",
        ),
        (
            "怎么接入自己的模型（DeepSeek 等）",
            "接入 DeepSeek、通义千问等自己的大模型，设置 `OPENAI_BASE_URL` 和 `OPENAI_API_KEY`。",
        ),
        ("模型的窗口", "DeepSeek、通义千问的窗口按名字知道；带标签的 Ollama 名字按 8192 个 token 算。"),
    ]
    passages = "\n\n".join(
        f'<passage id="{at}" file="m.md" heading="{heading}" relevance="0.4{9 - at}">\n{text}\n</passage>'
        for at, (heading, text) in enumerate(sections, start=1)
    )
    first = answer(ReadBack(passages, "那本地的 Ollama 呢？", ("怎么接入 DeepSeek？",))).split("\n\n")[1]
    assert first.startswith("> **怎么用 Ollama 等本机模型**")


def quotes_of(question: str, *passages: tuple[float, str]) -> list[str]:
    """The lines below the first one, for passages of a file, (relevance, text) each, best first."""
    blocks = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="" relevance="{chance}">\n{text}\n</passage>'
        for at, (chance, text) in enumerate(passages, start=1)
    )
    return answer(ReadBack(blocks, question, ())).split("\n\n")[1:]


@pytest.mark.parametrize(("chance", "order"), [(0.1, [1]), (0.3, [2, 1])])
def test_a_weak_passage_is_not_shown_for_its_language(chance: float, order: list[int]) -> None:
    """Discriminates: an unrelated chat above the rules of the exam because it is in Chinese."""
    exam, chat = "A calculator is permitted in the final exam.", "请给孩子准备小书包、水壶。"
    quotes = quotes_of("期末可以带计算器吗", (0.58, exam), (chance, chat))
    assert [int(quote[-2]) for quote in quotes] == order


def test_all_equally_probable_passages_of_another_language_are_quoted() -> None:
    """Discriminates: only the best one of the other language, although the second one answers."""
    plan, hotel = "请带好旅游保险和护照。", "浅草酒店的订单号是 4471-889。"
    mail = "Can you book the hotel for four people?"
    question = "What is the number of our booking in Tokyo?"
    shown = "".join(quotes_of(question, (0.44, plan), (0.43, hotel), (0.4, mail)))
    assert "4471-889" in shown
    assert "4471-889" not in "".join(quotes_of(question, (0.44, plan), (0.43, mail), (0.4, hotel)))


def test_a_follow_up_about_something_that_no_passage_has_is_not_sure() -> None:
    """Discriminates: the price for cats, stated as sure, for "and dogs?"; a follow-up in other words."""
    table = "| Vaccine | Price |\n|---|---|\n| Cat, triple | 120 |"
    passage = f'<passage id="1" file="a.md" heading="" relevance="0.9">\n{table}\n</passage>'
    before = ("What does the triple vaccine for a cat cost?",)
    assert answer(ReadBack(passage, "And dogs?", before)).startswith("The closest")
    for question in ("And the triple one?", "And how much is it?"):
        assert answer(ReadBack(passage, question, before)).startswith("From the documents")


def test_of_two_similar_rows_the_one_with_the_code_is_quoted() -> None:
    table = "| Code | What to do |\n|---|---|\n| {} | Call us when it appears again |"
    first, second = (table.format(code) for code in ("F7", "E2"))
    assert quotes_of("What if E2 appears?", (0.3, first), (0.2, second)) == [
        "> - Code: E2; What to do: Call us when it appears again [2]"
    ]


def test_a_follow_up_quotes_all_rows_of_a_short_table_despite_the_previous_question() -> None:
    """Discriminates: four of five rows, without the one that has no word of either question."""
    table = """下表是预算。

| 项目 | 预算（万元） | 已花（万元） | 负责人 |
| --- | --- | --- | --- |
| 展会 | 80 | 62 | 王芳 |
| 线上广告 | 120 | 97 | 李强 |
| 赞助 | 40 | 10 | 赵敏 |
| 印刷品 | 15 | 9 | 陈刚 |
| 调研 | 25 | 0 | 孙丽 |
"""
    block = f'<passage id="1" file="a.md" heading="" relevance="0.6">\n{table}\n</passage>'
    shown = answer(ReadBack(block, "预算花了多少了", ("展会是谁负责的",)))
    assert shown.count("项目：") == 5


def test_only_the_named_chapter_is_quoted() -> None:
    """Discriminates: a passage of another chapter that is more probable and has the words."""
    texts = {"第二章 报销": "发票要在月底前交，补贴另算。", "第三章 补贴": "补贴每天五十元。"}
    block = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="{heading}" relevance="{0.6 / at}">\n{text}\n</passage>'
        for at, (heading, text) in enumerate(texts.items(), start=1)
    )
    shown = answer(ReadBack(block, "第3章说的补贴怎么算", ()))
    assert "五十元" in shown
    assert "发票" not in shown
    assert answer(ReadBack(block, "第7章说的补贴怎么算", ())).startswith("没有找到提到这一点的内容：第7章\n")


@pytest.mark.parametrize(
    ("question", "is_shown"), [("Will my order be here soon?", True), ("my order", False)]
)
def test_the_second_passage_is_shown_if_no_quote_has_most_of_the_words(question: str, is_shown: bool) -> None:
    """Discriminates: omitting a second passage above the threshold that no word selected; showing one beside
    an answer on which words are clear, or a far less probable one."""
    first, second = "We confirm my order of three books.", "It arrives on 6 November."
    assert ("November" in "".join(quotes_of(question, (0.4, first), (0.15, second)))) is is_shown
    assert "November" not in "".join(quotes_of(question, (0.4, first), (0.1, second)))


def test_the_nearest_part_of_the_second_passage_is_shown_if_known() -> None:
    """Discriminates: all of its articles, of which one is about the question."""
    rules = "\n".join(f"第{n}条 {'与此无关的规定。' * 20}" for n in "一二三四五")
    blocks = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="" relevance="{chance}">\n{text}\n</passage>'
        for at, chance, text in [
            (1, 0.4, "祖父母去世的，慰问金一千元。"),
            (2, 0.2, f"{rules}\n第六条 丧假三天。"),
        ]
    )
    text = answer(ReadBack(blocks, "爷爷过世了可以请几天", ()), "", (), ["", "第六条 丧假三天。"])
    assert text.endswith("> 第六条 丧假三天。 [2]")
    assert "第一条" not in text


def test_a_part_within_a_quote_is_not_shown_again_below_its_heading() -> None:
    """Discriminates: comparing heading and part, which are separate in the quote, as one text."""
    text = "**房租**\n\n房租每月一号交。\n\n房租晚交要付利息。"
    block = f'<passage id="1" file="a.md" heading="" relevance="0.4">\n{text}\n</passage>'
    shown = answer(ReadBack(block, "房租怎么交水电费谁付", ()), "", (), ["房租晚交要付利息。"])
    assert shown.count("利息") == 1


def quoted_of(question: str, *passages: tuple[str, float, str]) -> list[int]:
    """The numbers at the end of the quotes, of (file, relevance, text) each, best first."""
    blocks = "\n\n".join(
        f'<passage id="{at}" file="{file}" heading="" relevance="{chance}">\n{text}\n</passage>'
        for at, (file, chance, text) in enumerate(passages, start=1)
    )
    return [int(number) for number in re.findall(r"\[(\d)\]$", answer(ReadBack(blocks, question, ())), re.M)]


@pytest.mark.parametrize(
    ("file", "chance", "text", "is_shown"),
    [
        ("b.md", 0.2, "Paintings that travel in a crate are insured.", False),
        ("b.md", 0.4, "Paintings that travel in a crate are insured.", True),
        ("b.md", 0.2, "The ferry carries paintings by day.", True),
        ("b.md", 0.1, "The ferry carries paintings by day.", False),
        ("a.md", 0.2, "Paintings that travel in a crate are insured.", True),
        ("a.md", 0.2, "The crate is heavy.", False),
        ("a.md", 0.03, "The ferry carries paintings by day.", False),
    ],
    ids=[
        "same words",
        "as probable",
        "a new word",
        "far less probable",
        "same file",
        "fewer words",
        "too far",
    ],
)
def test_a_less_probable_passage_is_quoted_only_for_what_it_adds(
    file: str, chance: float, text: str, is_shown: bool
) -> None:
    first = ("a.md", 0.5, "Paintings travel in a crate. They are unpacked after a day.")
    assert (2 in quoted_of("paintings travel crate ferry?", first, (file, chance, text))) is is_shown


@pytest.mark.parametrize(("chance", "numbers"), [(0.3, [1, 2]), (0.03, [1])])
def test_the_nearest_part_of_a_far_less_probable_passage_is_not_quoted(
    chance: float, numbers: list[int]
) -> None:
    parts = ["", "- Lockers: 140 on level 0."]
    blocks = "\n\n".join(
        f'<passage id="{at}" file="a.md" heading="" relevance="{relevance}">\n{text}\n</passage>'
        for at, relevance, text in ((1, 0.5, "Group rooms are booked."), (2, chance, parts[1]))
    )
    text = answer(ReadBack(blocks, "Where does my backpack stay in group rooms?", ()), "", (), parts)
    assert [int(number) for number in re.findall(r"\[(\d)\]$", text, re.M)] == numbers


def test_quoted_rows_are_not_quoted_again() -> None:
    """Discriminates: the table of the row as the part nearest by meaning."""
    table = "| Part | Warranty |\n|---|---|\n| Battery of the drone | 5 years |\n| Frame | 20 years |" + (
        "\n| Other | none |" * 40
    )
    passage = f'<passage id="1" file="a.md" heading="" relevance="0.4">\n{table}\n</passage>'
    text = answer(ReadBack(passage, "battery swelling drone repair?", ()), "", (), [table])
    assert text.count("Battery of the drone") == 1


def test_the_best_passage_follows_a_quote_that_has_all_words() -> None:
    found = [("a.md", 0.4, "GHS分类：腐蚀。"), ("b.md", 0.2, "**GSD**（地面采样距离）：一个像素的长度。")]
    assert quoted_of("GSD是什么意思", *found) == [2, 1]


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("Release notes &gt; 4.2.0 &gt; Removed", "**4.2.0 > Removed**"),
        ("Release notes &gt; 4.2.0", "**4.2.0**"),
        ("Release notes", "**Release notes**"),
    ],
)
def test_a_quote_is_titled_with_the_headings_between_document_title_and_section(
    heading: str, title: str
) -> None:
    """Discriminates: "Removed" alone, if the question is which version it was."""
    block = f'<passage id="1" file="a.md" heading="{heading}" relevance="0.9">\n- Windows 8.1\n</passage>'
    text = answer(ReadBack(block, "Which version dropped Windows 8.1?", ()))
    assert text.split("\n")[2] == f"> {title}"
