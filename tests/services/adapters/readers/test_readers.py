from __future__ import annotations

import logging
import os

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import OxmlElement
from docx.oxml.ns import qn

from core.errors import BadRequestError, EmptyFileError, UnreadableDocumentError, UnsupportedMediaError
from core.knowledge import Section
from services.adapters.readers.documents import parse_document
from tests.support.stores.make_files import archive, docx_bytes, encrypted_pdf, pdf

POLICY = "我们的退款政策：购买后七天之内可以退款。\nRefunds take 3 days."


def sections(file_name: str, content: bytes) -> tuple[Section, ...]:
    return parse_document(file_name, content).sections


def outline(file_name: str, content: str | bytes) -> list[tuple[str, str]]:
    raw = content.encode() if isinstance(content, str) else content
    return [(" > ".join(section.heading), section.text) for section in sections(file_name, raw)]


def code_of(file_name: str, content: bytes) -> str:
    with pytest.raises(UnreadableDocumentError) as refused:
        parse_document(file_name, content)
    return refused.value.code


# ---- Markdown ----


def test_markdown_sections_carry_the_path_of_their_headings() -> None:
    text = "intro\n\n# 手册\ntext\n\n## 退款 **政策** [链接](x)\nbody\n\nOther\n=====\nend\n"
    assert outline("a.md", text) == [
        ("", "intro"), ("手册", "text"), ("手册 > 退款 政策 链接", "body"), ("Other", "end"),
    ]  # fmt: skip


def test_a_hash_in_fenced_code_a_quote_or_a_list_is_not_a_heading() -> None:
    text = "# A\n```sh\n# comment\n```\n> # quoted\n\n- # item\n\n    # indented code\n"
    assert [heading for heading, _ in outline("a.md", text)] == ["A"]


def test_a_heading_with_nothing_under_it_is_kept_as_text() -> None:
    assert outline("a.md", "# A\n## B\n## C\nc\n") == [("A > B", "B"), ("A > C", "c")]
    assert outline("a.md", "# Only") == [("Only", "Only")]


def test_front_matter_is_not_text_but_a_leading_rule_is() -> None:
    assert outline("a.md", "---\nlayout: x\ntoc: true\n---\nbody") == [("", "body")]
    assert "kept" in outline("a.md", "---\n\nkept\n\n---\nbody")[0][1]


def test_offsets_are_those_of_the_sections_joined_by_an_empty_line() -> None:
    results = sections("a.md", b"# A\r\none\r\n\r\n# B\r\n\r\ntwo\r\n")
    whole = "\n\n".join(section.text for section in results)
    assert [whole[s.char_start : s.char_start + len(s.text)] for s in results] == ["one", "two"]


# ---- plain text and encodings ----


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "gb18030", "gbk", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_chinese_text_is_read_in_every_common_encoding(encoding: str) -> None:
    assert sections("a.txt", POLICY.encode(encoding))[0].text == POLICY


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("big5", "臺灣的氣候屬於熱帶和亞熱帶季風氣候，夏季炎熱。"),
        ("cp1252", "Café “naïve” déjà vu, the résumé was good."),
        ("shift_jis", "これは日本語の文章です。東京は日本の首都です。"),
    ],
)
def test_other_encodings_are_recognised(encoding: str, text: str) -> None:
    assert sections("a.txt", text.encode(encoding))[0].text == text


def test_binary_content_is_refused_with_the_code_encoding() -> None:
    assert code_of("a.txt", bytes(range(256)) * 20) == "encoding"
    assert code_of("a.md", POLICY.encode() + b"\xff\x00\x01" + POLICY.encode("gb18030")) == "encoding"


def test_stray_control_and_replacement_characters_do_not_make_utf8_unreadable() -> None:
    assert sections("a.txt", "log \x1b[0m \x01 \ufffd end".encode())[0].text == "log \x1b[0m \x01 \ufffd end"


def test_formulas_in_a_csv_are_only_text() -> None:
    assert "=cmd()" in sections("a.csv", b"name,=cmd()\n")[0].text


def test_a_file_without_an_extension_is_recognised_by_its_content() -> None:
    assert sections("README", POLICY.encode())[0].text == POLICY
    assert sections("scan", pdf([["Hello there"]]))[0].page == 1


# ---- HTML ----

PAGE = """<!doctype html><html><head><title>站点</title><style>x{}</style></head><body>
<nav>menu</nav><script>alert(1)</script><!-- hidden -->
<p>Hello <b>bold</b>
 words<br>next</p>tail
<h2>价格</h2><ul><li>one</li><li>two</li></ul>
<table><tr><th>k</th><th>v</th></tr><tr><td>a|b</td><td><p>2</p></td></tr></table>
<pre>
# code
  x
</pre></body></html>"""


def test_html_is_read_as_a_person_reads_the_page() -> None:
    assert outline("a.html", PAGE) == [
        ("站点", "Hello bold words\nnext\n\ntail"),
        (
            "站点 > 价格",
            "- one\n\n- two\n\n| k | v |\n| --- | --- |\n| a\\|b | 2 |\n\n```\n# code\n  x\n```",
        ),
    ]


def test_html_in_a_declared_encoding_is_decoded_with_it() -> None:
    page = '<html><head><meta charset="gb2312"></head><body><p>朱镕基 喆</p></body></html>'
    assert outline("a.htm", page.encode("gb18030")) == [("", "朱镕基 喆")]


def test_a_table_that_lays_out_a_page_is_read_as_a_page() -> None:
    inner = "<table><tr><td>x</td><td>y</td></tr></table>"
    page = f"<table><tr><td><h1>Title</h1><p>body</p></td><td>{inner}</td></tr></table>"
    assert outline("a.html", page) == [("Title", "body\n\n| x | y |\n| --- | --- |")]


def test_deeply_nested_html_does_not_overflow_the_stack() -> None:
    assert outline("a.html", "<div>" * 20_000 + "deep") == [("", "deep")]


def test_broken_markup_is_read_as_a_browser_reads_it() -> None:
    assert outline("a.html", b"<![- hidden -->\n<p>text</p>") == [("", "text")]


# ---- PDF ----


def test_pdf_pages_are_sections_with_page_numbers() -> None:
    results = sections("a.pdf", pdf([["First page."], [], ["Third (page)."]]))
    assert [(section.page, section.text) for section in results] == [(1, "First page."), (3, "Third (page).")]


def test_pdf_lines_are_joined_into_paragraphs() -> None:
    lines = [
        "The refund policy allows a cus-",
        "tomer to return goods within thirty",
        "days.",
        "Next paragraph.",
    ]
    assert sections("a.pdf", pdf([lines]))[0].text == (
        "The refund policy allows a customer to return goods within thirty days.\nNext paragraph."
    )


@pytest.mark.parametrize(
    "lines",
    [
        ["一级保养 300元 450元 360元 520元", "一级保养每500小时进行一次，二级保养每2000小时进行一次。"],
        ["发票号码：25317000000918273645 开票日期：2025年08月26日", "购买方名称：云杉科技有限公司",
         "*印刷品*宣传画册 A4 24页 本 500 12.80 6400.00 13%", "*纸制品*信封 7号 个 2000 0.35 700.00 13%",
         "合计 7100.00 923.00", "价税合计（大写） 捌仟零贰拾叁圆整 （小写）¥8023.00",
         "备注：合同编号 YS-PR-0826 开票人：崔萍"],
        ["Service Unit Rotterdam Antwerp Hamburg", "Container lift each 42.00 44.50 47.20",
         "Storage after free period 9.80 8.90 11.25 3.10", "Free period: five days"],
    ],
)  # fmt: skip
def test_rows_of_a_pdfs_table_or_form_stay_lines(lines: list[str]) -> None:
    """Discriminates: widths in characters; rows of figures, or of labels, taken for wrapped sentences."""
    assert sections("a.pdf", pdf([lines]))[0].text == "\n".join(lines)


@pytest.mark.parametrize(
    ("lines", "joint"),
    [
        (["本机采用80伏锂电池组，容量为400安时，充满", "电约需2小时，满电可连续作业8小时"], ""),
        (["注意：每班作业前应完成点检并签字然后交给设备", "主管保存，保存期：两年"], ""),
        (["The form is due, for each of the years, on", "31 December 2025 at 12."], " "),
        (["We open on working days at 10:30 and we", "close at 14:00 except on holidays"], " "),
        (["In 2019 and 2020 we sold 30 of the lamps and", "in the year after it another 12"], " "),
    ],
)  # fmt: skip
def test_wrapped_sentences_of_a_pdf_are_joined_despite_figures(lines: list[str], joint: str) -> None:
    assert sections("a.pdf", pdf([lines]))[0].text == joint.join(lines)


TITLE = [
    "Do Nest Box Colour and Height Matter? Occupancy by Common Swifts in Three Central European Cities.",
    "Abstract. Swift numbers fall as buildings are renovated. We monitored 642 nest boxes in three cities.",
    "Keywords: swift, nest box, acoustic lure, renovation, old town, heat",
]
COLUMN = [
    "1 Introduction",
    "The common swift spends most of its life on the wing",
    "and nests almost exclusively in buildings. Thermal",
    "insulation of facades closes the cavities on which it",
    "depends; in Brno, 38% of known colonies were lost",
    "between 2005 and 2017. In the heat wave of July",
    "2019 eleven broods left dark boxes prematurely.",
    "2 Results",
    "Table 1. Occupancy and breeding by city.",
    "Ghent 240 97 40.4 2.0",
    "Brno 180 43 23.9 1.7",
    "Playback raised the odds strongly, and each metre of",
    "height up to 8 m raised them by 21%.",
]
JOINED = [
    "1 Introduction",
    "The common swift spends most of its life on the wing and nests almost exclusively in buildings. Thermal "
    "insulation of facades closes the cavities on which it depends; in Brno, 38% of known colonies were lost "
    "between 2005 and 2017. In the heat wave of July 2019 eleven broods left dark boxes prematurely.",
    *COLUMN[7:11],
    "Playback raised the odds strongly, and each metre of height up to 8 m raised them by 21%.",
]
WIDE_LINE = "关于居民小区电动自行车停放充电场所建设与日常管理工作的实施意见（征求意见稿）及其编制说明。"
CHINESE_COLUMN = [
    "本社区居民凭居住证明办理邻里卡，工本费十元，非本社",
    "区居民可由持卡人陪同入场，每卡限带两人，每人每天最",
    "多使用两小时。",
    "开场前十二小时以上取消的全额退款，十二小时以内取消",
    "的退还一半费用，开场以后取消的不予退款，一个月内爽",
    "约两次的停止预约三十天。",
]


def test_columns_under_a_common_title_are_joined_into_paragraphs() -> None:
    """Discriminates: measuring a line by the page's widest; continuing with the keywords, which are wider
    than the column."""
    two = sections("a.pdf", pdf([[*TITLE, *COLUMN, *COLUMN]]))[0].text
    assert two == "\n".join([*TITLE, *JOINED, *JOINED])
    assert sections("a.pdf", pdf([COLUMN]))[0].text == "\n".join(JOINED)
    chinese = sections("a.pdf", pdf([[WIDE_LINE, *CHINESE_COLUMN]]))[0].text
    assert chinese == "\n".join([WIDE_LINE, "".join(CHINESE_COLUMN[:3]), "".join(CHINESE_COLUMN[3:])])


@pytest.mark.parametrize(
    "lines",
    [
        ["The Tyger was printed by its author in 1794 as one of the Songs of Experience, with a picture.",
         "Tyger Tyger, burning bright,", "In the forests of the night;", "What immortal hand or eye,",
         "Could frame thy fearful symmetry?", "In what distant deeps or skies,",
         "Burnt the fire of thine eyes?"],
        ["这首五言绝句是唐代诗人的名作，千百年来一直为人们所传诵，这里按照通行的版本全文抄录如下。",
         "黄河之水天上来奔流到海不复回，", "高堂明镜悲白发朝如青丝暮成雪。", "人生得意须尽欢莫使金樽空对月，",
         "天生我材必有用千金散尽还复来。", "烹羊宰牛且为乐会须一饮三百杯，", "岑夫子丹丘生将进酒杯莫停。"],
        ["Bring these along on the first morning, and leave everything else at home, since rooms are small.",
         "Two pairs of walking shoes", "Sun cream and a broad hat", "Passport and the two forms",
         "a towel", "A torch with spare batteries", "Some cash for the buses"],
    ],
)  # fmt: skip
def test_a_verse_or_a_list_below_a_wide_line_keeps_its_lines(lines: list[str]) -> None:
    """Discriminates: taking every run of narrow lines for a column."""
    assert sections("a.pdf", pdf([lines]))[0].text == "\n".join(lines)


def test_a_radical_or_ligature_in_a_pdf_becomes_the_typed_character() -> None:
    """Discriminates: keeping the font's radicals, of the Kangxi block or its supplement; full NFKC."""
    assert sections("a.pdf", pdf([["The o\ufb03ce keeps \ufb01les"]]))[0].text == "The office keeps files"
    text = "\u2f00\u2f08\u5ba2\u2ecb\u7b2c\u2eda\u2f47\u2ea0\u2ed3\uff1a\u2460"
    assert sections("a.pdf", pdf([[text]]))[0].text == "一人客车第页日民长\uff1a\u2460"


def test_a_hyphen_that_a_pdf_draws_is_one_whatever_its_code() -> None:
    """Discriminates: a soft hyphen removed from a word, and one at a line's end that stays in it."""
    for hyphen in ("\u00ad", "\u2010", "-"):
        lines = [
            f"The well{hyphen}known rules about the coop{hyphen}",
            "eration of all who live in this house.",
        ]
        whole = "The well-known rules about the cooperation of all who live in this house."
        assert [section.text for section in sections("a.pdf", pdf([lines]))] == [whole]


def test_a_pdf_that_needs_a_password_is_refused_as_encrypted() -> None:
    assert code_of("a.pdf", encrypted_pdf("secret")) == "encrypted"


def test_a_pdf_locked_with_an_empty_password_is_read() -> None:
    assert sections("a.pdf", encrypted_pdf(""))[0].text == "secret"


def test_a_scanned_pdf_has_no_text() -> None:
    assert code_of("a.pdf", pdf([[], []])) == "no_text"


@pytest.mark.parametrize("cut", [20, 60, 200, 400])
def test_a_damaged_pdf_is_refused_with_a_code(cut: int) -> None:
    assert code_of("a.pdf", pdf([["Hello"]])[:cut]) in ("unreadable_document", "no_text")


def test_faults_of_a_pdf_are_not_logged_with_its_bytes(caplog: pytest.LogCaptureFixture) -> None:
    """Discriminates: pypdf's warnings left on."""
    logging.getLogger("pypdf").setLevel(logging.NOTSET)
    parse_document("a.pdf", pdf([["Hello"]]).replace(b"/F1 12 Tf", b"/F1 1-2 Tf"))
    assert not caplog.records


# ---- DOCX ----


def word_file() -> bytes:
    document = docx.Document()
    document.add_paragraph("员工手册", style="Title")
    document.add_paragraph("前言。")
    document.add_paragraph("退款", style="Heading 1")
    document.add_paragraph("七天。")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip([c for row in table.rows for c in row.cells], "甲乙丙丁", strict=True):
        cell.text = text
    document.add_paragraph("第一项", style="List Bullet")
    document.styles.add_style("标题 2", WD_STYLE_TYPE.PARAGRAPH)
    document.add_paragraph("细则", style="标题 2")
    document.add_paragraph("after")
    return docx_bytes(document)


def test_docx_headings_tables_and_lists_come_in_document_order() -> None:
    assert outline("a.docx", word_file()) == [
        ("员工手册", "前言。"),
        ("员工手册 > 退款", "七天。\n\n| 甲 | 乙 |\n| --- | --- |\n| 丙 | 丁 |\n\n- 第一项"),
        ("员工手册 > 退款 > 细则", "after"),
    ]


def test_a_docx_paragraph_with_an_outline_level_is_a_heading() -> None:
    document = docx.Document()
    level = OxmlElement("w:outlineLvl")
    level.set(qn("w:val"), "0")
    document.add_paragraph("第一章")._p.get_or_add_pPr().append(level)
    document.add_paragraph("正文")
    assert outline("a.docx", docx_bytes(document)) == [("第一章", "正文")]


def test_merged_cells_are_read_once() -> None:
    document = docx.Document()
    table = document.add_table(rows=2, cols=2)
    table.rows[0].cells[0].merge(table.rows[0].cells[1]).text = "wide"
    table.rows[1].cells[1].text = "b"
    assert outline("a.docx", docx_bytes(document)) == [("", "| wide |  |\n| --- | --- |\n|  | b |")]


# ---- refusals independent of the format ----


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(EmptyFileError):
        parse_document("a.md", b"")


@pytest.mark.parametrize("file_name", ["a.md", "a.txt", "a.html"])
def test_a_file_with_white_space_only_has_no_text(file_name: str) -> None:
    assert code_of(file_name, b" \n\t ") == "no_text"


@pytest.mark.parametrize(
    ("file_name", "content"),
    [
        ("a.pdf", b"MZ\x90\0" + b"\0" * 100),
        ("a.pdf", b"%PD-1.4 wrong magic"),
        ("a.docx", b"MZ\x90\0"),
        ("a.docx", archive({"other.txt": b"x"})),
        ("a.txt", b"MZ\x90\0\3\0\0\0" + b"\0" * 100),
        ("a.md", b"%PDF-1.4"),
        ("a.html", b"\x89PNG\r\n"),
    ],
)
def test_content_that_does_not_match_its_name_is_unsupported(file_name: str, content: bytes) -> None:
    with pytest.raises(UnsupportedMediaError):
        parse_document(file_name, content)


@pytest.mark.parametrize(
    ("file_name", "content", "better"),
    [
        ("a.txt", b"{\\rtf1\\ansi Hello}", "DOCX"),
        (
            "a.xml",
            b'<?xml version="1.0"?>\n<?mso-application progid="Word.Document"?><w:wordDocument/>',
            "DOCX",
        ),
        ("a.xml", b'<?xml version="1.0"?>\r\n<?mso-application progid="Excel.Sheet"?><Workbook/>', "XLSX"),
    ],
)
def test_text_that_only_office_programs_understand_is_refused(
    file_name: str, content: bytes, better: str
) -> None:
    """Discriminates: thousands of passages of markup."""
    with pytest.raises(UnsupportedMediaError, match=f"save it as {better}"):
        parse_document(file_name, content)


def test_an_unknown_extension_is_refused_with_the_supported_kinds() -> None:
    """Discriminates: a list of all fifty extensions."""
    with pytest.raises(UnsupportedMediaError, match=r"\.exe.*Markdown.*PDF.*DOCX.*source code") as refused:
        parse_document("setup.exe", b"x")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("file_name", ["a.txt", "a.md", "a.html", "a.pdf", "a.docx"])
def test_random_bytes_are_refused_with_a_code(file_name: str) -> None:
    for _ in range(5):
        with pytest.raises(BadRequestError):
            parse_document(file_name, os.urandom(3_000))
