"""Cuts that a reader would not make: headings, lead-ins, lists, questions, quotations, the end of a text."""

from __future__ import annotations

import pytest

from core.knowledge import ParsedDocument, Section
from core.prompt.budget import estimate_tokens
from services.knowledge.chunking.splitter import StructureSplitter, cut

LIMIT = 48


def texts(text: str, chunk_tokens: int = LIMIT) -> list[str]:
    parsed = ParsedDocument("t", (Section(text),))
    return [piece.text for piece in cut(parsed, StructureSplitter(chunk_tokens=chunk_tokens))]


def chunk_with(words: str, chunks: list[str]) -> str:
    results = [chunk for chunk in chunks if words in chunk]
    assert len(results) == 1, chunks
    return results[0]


FILLER = "这是一句占位置的说明。" * 4


@pytest.mark.parametrize(
    ("lead", "rest"),
    [
        ("第二章 费用", "费用按照实际支出报销。需要发票。"),
        ("2.1 Travel expenses", "Trains are paid for. Taxis are not."),
        ("**报销范围**", "包括交通和住宿。"),
        ("请假的条件如下：", "- 病假：三天以内\n- 事假：一天"),
        ("The following are paid:", "1. trains\n2. hotels"),
        ("年假可以累计吗？", "可以，最多累计到第二年三月。"),
        ("问：年假有几天？", "答：十五天。"),
        ("三、交通管制", "施工期间清河路单向通行。"),
        ("三、交通管制", "（一）货车禁止驶入。\n\n（二）公交绕行。"),
        ("2. Travel", "Trains are paid for. Taxis are not."),
    ],
)
def test_a_lead_in_stays_with_the_text_it_introduces(lead: str, rest: str) -> None:
    """Discriminates: chunks filled up to the last atom that fits."""
    for filler in range(1, 5):
        text = f"{'占位置的话。' * filler}\n\n{FILLER}\n\n{lead}\n\n{rest}\n\n{FILLER}"
        assert rest.split("\n")[0][:4] in chunk_with(lead, texts(text))


def test_text_directly_above_a_list_stays_with_it() -> None:
    """Discriminates: separating a block of several lines unless it ends with a colon."""
    title = "---\n**Meeting 16**\nPresent: Lena, Rafiq"
    for filler in range(1, 5):
        text = f"{'占位置的话。' * filler}\n\n{FILLER}\n\n{title}\n1. Pile 7 is done.\n2. Lights.\n\n{FILLER}"
        assert "1. Pile 7" in chunk_with("Meeting 16", texts(text))


def test_a_heading_stays_with_the_items_below_it() -> None:
    """Discriminates: taking 三、 for one more item of the list."""
    for filler in range(1, 5):
        first = f"一、总则\n（一）{'占位置的话，' * filler}到此为止。\n{FILLER}"
        items = f"{first}\n三、交通管制\n（一）货车禁止驶入。\n{FILLER}"
        assert "（一）货车" in chunk_with("三、交通管制", texts(items))


@pytest.mark.parametrize("mark", ["- ", "{at}. ", "（{at}）"])
def test_items_separated_by_blank_lines_are_not_headings(mark: str) -> None:
    """Discriminates: an item without a full stop that leads to the next one."""
    items = [f"{mark.format(at=at)}第{at}条说明文字，不止一两个字" for at in range(1, 9)]
    chunks = texts("\n\n".join(items))
    assert [estimate_tokens(chunk) > LIMIT // 2 for chunk in chunks[:-1]] == [True] * (len(chunks) - 1)


def test_a_lead_in_stays_with_the_first_items_of_a_list_that_just_fits_alone() -> None:
    """Discriminates: keeping a list that fits whole whatever precedes it."""
    items = "\n".join(f"- 第{at}条说明文字" for at in range(8))
    assert LIMIT - 8 < estimate_tokens(items) <= LIMIT + 24
    assert "第0条" in chunk_with("条件如下：", texts(f"{FILLER}\n\n条件如下：\n\n{items}"))


def test_an_item_stays_with_its_sub_items_if_they_fit() -> None:
    """Discriminates: splitting lists like running text, at every line."""
    items = [f"- 第{at}条\n  - 需要证明\n  - 需要提前申请" for at in range(12)]
    chunks = texts("\n".join(items))
    assert len(chunks) > 3
    assert all(chunk.startswith("- 第") for chunk in chunks)
    assert "\n".join(chunks) == "\n".join(items)


def test_an_item_too_long_for_a_chunk_keeps_its_own_line_with_its_first_sub_item() -> None:
    item = "- 报销需要的材料\n" + "\n".join(f"  - 第{at}种材料要写明用途和日期" for at in range(12))
    assert "第0种" in chunk_with("报销需要的材料", texts(f"- 甲\n{item}\n- 乙"))


def test_a_line_that_fits_is_not_split() -> None:
    """Discriminates: chunks filled with sentences, which end within an article."""
    article = "第{}条 旷工两天的，给予记过。代人打卡的，双方同罚。酒后上岗的，停职一天。公示三天。"
    articles = [article.format(at) for at in range(10, 30)]
    chunks = texts("\n".join(articles), 70)
    assert len(chunks) > 3
    assert "\n".join(chunks) == "\n".join(articles)


def test_a_quotation_or_a_parenthesis_is_not_split() -> None:
    """Discriminates: a cut after every full stop."""
    chunks = texts("他说：“今天很好。明天呢？”然后走了（见第三节。谢谢）。" * 8)
    assert len(chunks) > 3
    for chunk in chunks:
        assert chunk.count("“") == chunk.count("”")
        assert chunk.count("（") == chunk.count("）")


def test_an_english_abbreviation_does_not_end_a_chunk() -> None:
    for chunk in texts("We met Dr. Smith at approx. noon, i.e. before lunch at No. 5 of St. James. " * 12):
        assert chunk.endswith("James.")


def test_a_short_remainder_is_balanced_with_the_previous_chunk() -> None:
    """Discriminates: greedy filling, which leaves the last sentence alone."""
    sentences = [f"第{at}句话说明一件事情。" for at in range(30)]
    for count in range(8, 30):
        sizes = [estimate_tokens(chunk) for chunk in texts("".join(sentences[:count]))]
        assert sizes[-1] >= LIMIT // 4


def test_a_row_longer_than_a_chunk_is_split_and_every_part_has_the_header() -> None:
    """Discriminates: dropping the header as soon as one row is too long."""
    header = "| 名称 | 说明 |\n| --- | --- |\n"
    rows = [f"| 产品{at} | {'很长的说明，' * (40 if at == 1 else 1)} |" for at in range(4)]
    chunks = texts(header + "\n".join(rows), 64)
    assert len(chunks) > 3
    assert all(chunk.startswith(header) for chunk in chunks)
    assert all(estimate_tokens(chunk) <= 64 for chunk in chunks)


def test_the_line_before_a_split_table_stays_with_its_first_rows() -> None:
    """Discriminates: first rows that fill the whole chunk."""
    table = "| 名称 | 价格 |\n| --- | --- |\n" + "\n".join(f"| 产品{at} | {at} 元 |" for at in range(20))
    assert "价格如下：" in chunk_with("| 产品0 |", texts(f"{FILLER}\n\n价格如下：\n\n{table}", 64))


@pytest.mark.parametrize(
    "lead", ["**改进项**", "价格表（单位：万元）", "表2 价格\n\n单位：万元", "表2\n单位：万元"]
)
def test_every_part_of_a_table_has_the_lines_that_introduce_it(lead: str) -> None:
    """Discriminates: repeating only the table's header."""
    table = "| 名称 | 价格 |\n| --- | --- |\n" + "\n".join(f"| 产品{at} | {at} 元 |" for at in range(20))
    chunks = texts(f"{FILLER}\n\n{lead}\n\n{table}", 64)
    assert len(chunks) > 2
    assert all(chunk.startswith(f"{lead}\n\n| 名称 | 价格 |") for chunk in chunks[1:])
    assert all(estimate_tokens(chunk) <= 64 for chunk in chunks)


def test_text_after_a_table_fills_up_its_last_chunk() -> None:
    table = "| 名称 | 价格 |\n| --- | --- |\n" + "\n".join(f"| 产品{at} | {at} 元 |" for at in range(9))
    chunks = texts(f"{table}\n\n以上不含税。", 64)
    assert len(chunks) == 2
    assert chunks[1].startswith("| 名称 | 价格 |")
    assert chunks[1].endswith("以上不含税。")


WHATSAPP = [
    f"[12/04/2025, 09:{at}:02] Kofi: Potato blight on plot {at}. Burn the tops" for at in range(10, 22)
]
WECHAT = [f"2025-10-13 08:{at} 张老师\n明天请给孩子带上水壶和雨衣。不要带玩具" for at in range(10, 22)]
WHO_FIRST = [f"张老师 2025-10-13 08:{at}\n明天请给孩子带上水壶和雨衣。不要带玩具" for at in range(10, 22)]
RECORDS = [f"rate of day {at}: 12 GBP, Tue, Thu, Sat" for at in range(20)]


@pytest.mark.parametrize("messages", [WHATSAPP, WECHAT, WHO_FIRST, RECORDS])
def test_a_chat_is_split_between_messages_and_a_record_between_lines(messages: list[str]) -> None:
    """Discriminates: splitting as running text, so that a message and its speaker are in different chunks."""
    chunks = texts("\n".join(["Exported by the app", *messages]))
    assert len(chunks) > 3
    assert all(chunk.startswith(messages[0][:1]) for chunk in chunks[1:])
    assert "\n".join(chunks) == "\n".join(["Exported by the app", *messages])
    assert all(any(message in chunk for chunk in chunks) for message in messages)


def test_a_question_in_a_chat_stays_with_its_answer() -> None:
    talk = [
        line for at in range(8) for line in (f"Ann: which day is number {at}, please?", f"Bo: day {at} it is")
    ]
    for chunk in texts("\n".join(talk)):
        assert chunk.startswith("Ann")
        assert chunk.rpartition("\n")[2].startswith("Bo")


def test_hard_wrapped_prose_is_split_between_sentences_however_lines_start() -> None:
    """Discriminates: recognising a chat by too few lines."""
    lines = [
        "In the year",
        "2019 it rained and we closed at",
        "10:30 or later. One rule holds",
        "for us. Stay away.",
    ]
    wrapped = "\n".join(lines * 6)
    assert all(chunk.endswith(".") for chunk in texts(wrapped))
