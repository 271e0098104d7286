"""HTML and Markdown from the real world: merged cells, hidden parts, front matter, machine-readable dates."""

from __future__ import annotations

from email.encoders import encode_base64
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from email.mime.text import MIMEText
from pathlib import Path

import pytest

from services.adapters.readers.documents import parse_document
from tests.support.machine import at_most

DOCUMENTS = Path("tests/fixtures/documents")


def sections(name: str, content: str) -> list[tuple[str, str]]:
    return [(" > ".join(s.heading), s.text) for s in parse_document(name, content.encode()).sections]


def test_a_page_from_pandoc_is_read_like_its_source() -> None:
    page = parse_document("a.html", (DOCUMENTS / "guide-pandoc.html").read_bytes())
    source = parse_document("a.md", (DOCUMENTS / "guide.md").read_bytes())
    assert page.date == source.date == "2024-03-05"
    assert [s.heading for s in page.sections][1:] == [s.heading[1:] for s in source.sections][1:]
    assert page.sections[0].heading == source.sections[0].heading
    assert "| 图书 | 7 天 | 未拆封 |" in page.sections[2].text


@pytest.mark.parametrize(
    "hidden",
    [
        '<div style="color:red;display : none">x-order</div>',
        "<p hidden>x-order</p>",
        '<span aria-hidden="true">x-order</span>',
        '<div style="visibility:hidden"><p>x-order</p></div>',
        '<p style="font-size:0px">x-order</p>',
        '<p style="opacity:0.0">x-order</p>',
        "<template>x-order</template>",
        "<noscript><p>x-order</p></noscript>",
        "<table><tr><td hidden>x-order</td><td>cell</td></tr></table>",
        "<h2>Title <span hidden>x-order</span></h2>",
        "<script>document.write('x-order')</script>",
        '<p style="position:absolute; left:-9999px">x-order</p>',
        '<p style="position: fixed;top:-999.5px !important">x-order</p>',
        '<p style="text-indent:-999px">x-order</p>',
        '<div style="height:0;overflow:hidden">x-order</div>',
        '<div style="overflow: hidden; width:0px"><p>x-order</p></div>',
        '<p style="font-size:1px">x-order</p>',
        '<p style="font-size:.5px">x-order</p>',
        '<style>p{} .ad{display:none}</style><p class="big ad">x-order</p>',
        '<style>@import "x";/* } */ #ad { color:red; visibility : hidden }</style><p id=ad>x-order</p>',
        "<style>h1, .ad{display:none!important}</style><h1 class=ad>x-order</h1>",
    ],
)
def test_hidden_parts_of_a_page_are_not_read(hidden: str) -> None:
    """Discriminates: ignoring any of the ways to hide; hiding in a table or a heading."""
    text = str(sections("a.html", f"<p>seen</p>{hidden}<p>seen, too</p>"))
    assert "x-order" not in text
    assert "seen, too" in text
    assert "x-order" not in str(sections("a.md", f"# A\n\n{hidden}\n\nseen\n"))


@pytest.mark.parametrize(
    "shown",
    [
        '<p style="opacity:0.5">words</p>',
        '<p style="font-size:0.8em">words</p>',
        '<p hidden="until-found">words</p>',
        "<details><summary>More</summary>words</details>",
        '<body style="display:none">words</body>',
        '<p style="position:absolute;left:-20px">words</p>',
        '<p style="left:-9999px">words</p>',
        '<p style="backface-visibility:hidden">words</p>',
        '<div style="height:0;padding-bottom:56%;overflow:hidden">words</div>',
        '<p style="font-size:1.5px;height:0">words</p>',
        "<style>@media print{.a{display:none}}</style><p class=a>words</p>",
        '<style media="print">.a{display:none}</style><p class=a>words</p>',
        "<style>.a .b{display:none} .a{x:y}</style><p class='a b'>words</p>",
        "<style>.tab{display:none} .tab.on{display:block}</style><p class='tab on'>words</p>",
        "<style>.a{display:none}</style><p class=a style='display:block'>words</p>",
    ],
)
def test_visible_parts_are_kept(shown: str) -> None:
    assert "words" in str(sections("a.html", shown))


def test_spanning_cells_repeat_their_text_where_needed() -> None:
    table = """<table><caption>Sales</caption>
    <tr><th rowspan=2>City</th><th colspan=2>2024</th></tr><tr><th>Q1</th><th>Q2</th></tr>
    <tr><td rowspan=2>北京</td><td>1</td><td>2</td></tr><tr><td colspan=2>none</td></tr></table>"""
    assert sections("a.html", table) == [
        (
            "",
            "Sales\n\n| City | 2024 / Q1 | 2024 / Q2 |\n| --- | --- | --- |\n"
            "| 北京 | 1 | 2 |\n| 北京 | none |  |",
        )
    ]


@pytest.mark.parametrize("kind", ["td", "th"])
def test_a_title_across_all_columns_is_put_above_its_table(kind: str) -> None:
    title = f"<tr><{kind} colspan=3>Shift plan</{kind}></tr>"
    head = "".join(f"<{kind}>{name}</{kind}>" for name in ("Day", "Early", "Late"))
    row = "<tr><td>Monday</td><td>Ana</td><td>Bert</td></tr>"
    text = "Shift plan\n\n| Day | Early | Late |\n| --- | --- | --- |\n| Monday | Ana | Bert |"
    for begin, middle in (("", ""), ("<thead>", "</thead>"), ("<caption>Week 23</caption>", "")):
        page = f"<table>{begin}{title}<tr>{head}</tr>{middle}{row}</table>"
        above = "Week 23\n" if "caption" in begin else ""
        assert sections("a.html", page) == [("", above + text)]


LONG = "The gateway asks for the staff number. " * 6


@pytest.mark.parametrize(
    "clutter",
    [
        "<header>x-menu</header>",
        "<header role=banner><h1>x-menu</h1></header>",
        "<div><footer><p>x-menu</p></footer></div>",
        "<aside>x-menu</aside>",
        "<button>x-menu</button>",
        "<p>seen <button>x-menu</button></p>",
        '<div role="dialog">x-menu</div>',
        '<div role=" Navigation ">x-menu</div>',
        "<form role=search>x-menu</form>",
        f"<main>{LONG}</main><div class=sidebar><h3>x-menu</h3></div>",
        f"<div><div>x-menu</div><div role=main>{LONG}</div></div><p>x-menu</p>",
        f"<article>{LONG}</article><h2>x-menu</h2>",
    ],
)
def test_navigation_around_the_text_of_a_saved_page_is_not_read(clutter: str) -> None:
    text = str(sections("a.html", f"<main hidden>x</main><h1>VPN</h1>{clutter}"))
    assert "x-menu" not in text
    assert "VPN" in text


@pytest.mark.parametrize(
    "page",
    [
        "<header>x-text</header>",
        "<div role=dialog>x-text</div><footer>x-text</footer>",
        "<header><h1>x-text</h1></header><p>seen</p>",
        "<header><h1>Title</h1><p>x-text, author</p></header><h1>One</h1><p>seen</p>",
        "<article><header>x-text</header>seen</article>",
        "<section><footer>x-text</footer>seen</section>",
        "<blockquote>seen<footer>x-text</footer></blockquote>",
        "<p>seen</p><aside role=doc-endnotes>x-text</aside>",
        f"<main><aside>x-text</aside>{LONG}</main>",
        "<h2><button>x-text</button></h2><p>seen</p>",
        "<button aria-expanded=true>x-text</button><p>seen</p>",
        "<main>seen</main><p>x-text</p>",
        f"<article>{LONG}</article><article>x-text</article>",
        f"<div><h1>x-text</h1></div><main>{LONG}</main>",
    ],
)
def test_the_text_of_a_page_is_kept(page: str) -> None:
    """Discriminates: omitting everything with one of these names, or everything."""
    assert "x-text" in str(sections("a.html", page))


PROSE = "<p>" + "Feed the scanner face down. " * 10 + "</p>"
CONTENTS = '<li><a href="#a">Feeder</a></li><li><a href="#b">Glass</a></li><li><a href="#c">Lamp</a></li>'


@pytest.mark.parametrize(
    "links",
    [
        '<div class="navheader"><table><tr><th colspan="3">2. Jams</th></tr><tr><td><a href="a">Prev</a></td>'
        '<th>Part I. Feeder</th><td><a href="c">Next</a></td></tr></table></div>',
        '<ul class="docnav top"><li><a href="a">Feeder</a></li><li><a href="c">Next</a></li></ul>',
        '<div class="toc"><p>Contents</p><dl><dt><a href="b.html#x">2.1. Feeder</a></dt></dl></div>',
        '<div id="toc"><h2>Feeder</h2><ul><li><a href="#x">1 Jams</a></li></ul></div>',
        '<p>Next: <a rel="next" href="c">Glass</a>, Up: <a rel="up" href="b">Feeder manual</a></p>',
        f"<h2>Contents</h2><ol>{CONTENTS}</ol>",
        '<div id="nav"><a href="/">Home</a> | <a href="/f">Feeder</a></div>',
        '<div class="col sidebar"><ul><li><a href="f">Feeder</a></li><li><a href="c">Lid</a></ul></div>',
        f"<ul>{CONTENTS}</ul>",
        "<p>Country <select><option>Feeder<option>Glass</select></p>",
        '<h2>Jams <a class="headerlink" href="#jams">Feeder</a></h2>',
    ],
)
def test_links_to_neighbours_and_a_pages_own_contents_are_not_read(links: str) -> None:
    """As manuals have them on each page: they hold the words of all pages. Discriminates: any of the ways."""
    text = str(sections("a.html", f"<h1>Manual</h1>{links}{PROSE}<p>Glass is fragile.</p>"))
    assert "Feeder" not in text
    assert "Glass is fragile." in text


@pytest.mark.parametrize(
    "links",
    [
        '<ul><li><a href="a">Feeder</a></li><li><a href="b">Glass</a></li><li><a href="c">Lamp</a></li></ul>',
        f'<div class="toc">{PROSE} Feeder</div>',
        '<div class="menu"><p>Feeder soup 4.50</p><p>Toner salad 6.00 <a href="x">order</a></p></div>',
        '<div id="footer">Feeder Ltd, 8 Mill Road, telephone 8101, <a href="x">imprint</a></div>',
        '<ol><li id="1">See the Feeder Handbook, 2024 <a href="#r1">↩</a></li></ol>',
        '<p>The <a rel="next" href="c">next page</a> explains how the Feeder is cleaned after a jam.</p>',
        f'<ul><li><a href="#a">Open the lid</a> of the Feeder and pull the sheet</li>{CONTENTS}</ul>',
    ],
)
def test_links_that_say_something_are_kept(links: str) -> None:
    assert "Feeder" in str(sections("a.html", f"<h1>Manual</h1>{links}{PROSE}"))


def test_a_page_that_is_a_table_of_contents_is_read() -> None:
    """A short page with a few links is none."""
    links = f'<ul class="toc">{CONTENTS}</ul>'
    assert "Lamp" in str(sections("a.html", f"<h1>Manual</h1>{links}"))
    assert "Lamp" not in str(sections("a.html", f"<h1>卡纸</h1>{links}<p>先打开盖子，再取出卡住的纸张。</p>"))


@pytest.mark.parametrize("title", ["Untitled Document", "无标题文档", "New Page 1", "无标题-1", "untitled"])
def test_a_title_that_a_program_gave_is_none(title: str) -> None:
    assert sections("a.html", f"<title>{title}</title>{PROSE}")[0][0] == ""
    assert sections("a.html", f"<title>{title} Verses</title>{PROSE}")[0][0] == f"{title} Verses"


def test_the_title_is_not_repeated_as_the_first_heading() -> None:
    page = (
        f"<title>2. Jams</title><h2>2. Jams</h2>{PROSE}<h3>2.1. Feeder</h3><p>Pull.</p><h2>Notes</h2><p>x</p>"
    )
    assert [path for path, _ in sections("a.html", page)] == [
        "2. Jams",
        "2. Jams > 2.1. Feeder",
        "2. Jams > Notes",
    ]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            '<td rowspan="2"><img src="i.png"></td><th>Note</th></tr><tr><td>Wait.<p>Then open.',
            "Note\n\nWait.\n\nThen open.",
        ),
        ("<td>Wait.<ul><li>one<li>two</ul>", "Wait.\n\n- one\n\n- two"),
        ("<td></td><td></td><td>", ""),
        ("<th>Part<td></td><th>Price</th></tr><tr><td>Lamp<td></td><td>9",
         "| Part | Price |\n| --- | --- |\n| Lamp | 9 |"),
        ("<th>Part</th></tr><tr><td>Lamp", "| Part |\n| --- |\n| Lamp |"),
    ],
)  # fmt: skip
def test_a_table_around_a_text_is_no_table_and_empty_columns_are_left_out(rows: str, text: str) -> None:
    page = f"<p>before</p><table><tr>{rows}</td></tr></table><p>after</p>"
    assert sections("a.html", page) == [("", "\n\n".join(filter(None, ("before", text, "after"))))]


def test_words_are_read_without_the_places_where_they_may_break() -> None:
    """A search would find none of the parts. The joiner within a Persian word stays."""
    page = "<h2>Hand&shy;buch</h2><p>Garan&shy;tie&shy;zeit, get&#8203;User&#8288;Name, می&zwnj;خواهم</p>"
    assert sections("a.html", page) == [("Handbuch", "Garantiezeit, getUserName, می\u200cخواهم")]


@pytest.mark.parametrize(("name", "charset"), [("a.mhtml", "utf-8"), ("a.MHT", "gb2312"), ("a.htm", "utf-8")])
def test_a_page_saved_as_a_single_file_is_read(name: str, charset: str) -> None:
    """As browsers and Word save it. Discriminates: reading it as HTML, or its style sheet as text."""
    style = MIMEText("p { color: red }", "css")
    saved = MIMEMultipart("related", type="text/html")
    saved["From"], saved["Subject"] = "<Saved by Blink>", "Jams"
    page = "<h1>卡纸</h1><ul class=toc><li><a href=x>目录</a></ul><p>" + "打开盖子，取出纸张。" * 30 + "</p>"
    body = MIMENonMultipart("text", "html", charset=charset)
    body.set_payload(page.encode(charset))
    encode_base64(body)
    for part in (body, style):
        saved.attach(part)
    results = parse_document(name, saved.as_bytes()).sections
    assert [(each.heading, each.text) for each in results] == [(("卡纸",), "打开盖子，取出纸张。" * 30)]


def test_a_charset_with_a_nul_is_none() -> None:
    """Discriminates: the error that Python's parser of mails raises."""
    page = "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\n"
    page += "Content-Type: text/html; charset*=x\0y''utf-8\n\n<h1>Jams</h1><p>Open the lid.</p>\n--b--\n"
    assert sections("a.mhtml", page) == [("Jams", "Open the lid.")]


def test_html_in_a_mail_keeps_its_header_and_footer() -> None:
    mail = "Subject: a\nContent-Type: text/html\n\n<header>head</header><p>text</p><footer>foot</footer>"
    assert [text for _, text in sections("a.eml", mail)] == ["head\n\ntext\n\nfoot"]


def test_a_page_of_nested_headers_takes_linear_time() -> None:
    with at_most(8):
        for tag in ("header", "article", "div role=x", "main", "button aria-controls=x"):
            parse_document("a.html", (f"<{tag}>" * 8_000 + "<h1>x</h1>").encode())


@pytest.mark.parametrize(
    ("inner", "lines"),
    [
        ("<dt>Owner<dd>Ana<dt>Hours:<dd>7–19", ["Owner: Ana", "Hours: 7–19"]),
        ("<div><dt>Owner</dt><dd>Ana</dd></div><div><dt>热线：</dt><dd>4477</dd></div>",
         ["Owner: Ana", "热线：4477"]),
        ("<dt>Owner</dt><dd>Ana</dd><dd><p>Bert</p></dd>", ["Owner: Ana; Bert"]),
        ("<dt>A</dt><dt>B</dt><dd>both</dd><dt>C</dt>", ["A, B: both", "C"]),
        ("<dt>Is it free?</dt><dd>Yes.</dd>", ["Is it free?\nYes."]),
        ("<dt>A</dt><dd><p>one</p><p>two</p></dd><dt>B</dt><dd>x</dd>", ["A: one", "two", "B: x"]),
        ("<dt>A</dt><dd>one<ul><li>two</ul></dd><dt>B</dt><dd><dl><dt>C<dd>x</dl>y</dd>",
         ["A: one", "- two", "B", "C: x", "y"]),
        ("<dt><h2>A</h2></dt><dd><pre>x</pre></dd>", ["```\nx\n```"]),
    ],
)  # fmt: skip
def test_a_term_and_its_definition_are_one_line(inner: str, lines: list[str]) -> None:
    """Discriminates: terms and definitions as paragraphs, which chunking separates."""
    texts = sections("a.html", f"<p>before</p><dl>{inner}</dl><p>after</p>")
    assert "\n\n".join(text for _, text in texts) == "\n\n".join(["before", *lines, "after"])


def test_a_definition_outside_of_a_list_keeps_its_position() -> None:
    assert sections("a.html", "<ul><li><dl><dt>A<dd>x</dl></ul><dd>one</dd><p>two</p>") == [
        ("", "- A: x\n\none\n\ntwo")
    ]


def test_spans_cannot_make_a_small_page_huge() -> None:
    """Discriminates: trusting colspan and rowspan."""
    bomb = (
        f"<table><tr><td rowspan=65534 colspan=1000>{'x' * 5_000}</td></tr>" + "<tr><td>y</td></tr>" * 5_000
    )
    assert sum(len(text) for _, text in sections("a.html", bomb)) < 3_000_000


def test_code_in_a_page_cannot_close_its_fence() -> None:
    assert sections("a.html", "<pre>a\n```\nb</pre>") == [("", "````\na\n```\nb\n````")]


@pytest.mark.parametrize(
    ("note", "date"),
    [
        (
            '{"@type":"Article","datePublished":"2021-03-05T10:00:00Z","dateModified":"2022-01-01"}',
            "2021-03-05",
        ),
        ('{"@graph":[{"@type":"WebPage","dateModified":"2022-01-01"}]}', "2022-01-01"),
        ('[{"datePublished":"2021-03-05"},{"datePublished":"2019-01-01"}]', ""),
        ('{"itemListElement":[{"datePublished":"2021-03-05"}]}', ""),
        ("[" * 50_000, ""),
        ("{broken", ""),
        ('{"datePublished": 7, "@graph": 3}', ""),
    ],
)
def test_machine_readable_metadata_of_a_page_gives_its_date(note: str, date: str) -> None:
    page = f'<script type="application/ld+json">{note}</script><p>text</p>'
    assert parse_document("a.html", page.encode()).date == date


def test_front_matter_gives_title_summary_tags_and_date() -> None:
    yaml = "---\ntitle: Guide: the lamp\ndescription: About lamps\ntags:\n  - a\n  - b\n"
    yaml += "date: 2021-03-05\n---\n# Use\nx"
    assert sections("a.md", yaml) == [
        ("Guide: the lamp", "About lamps\n\ntags: a, b"),
        ("Guide: the lamp > Use", "x"),
    ]
    toml = '+++\ntitle = "Lamp"\ndate = 2021-03-05T10:00:00Z\n[taxonomies]\ntags = ["a"]\n+++\n# Lamp\nbody'
    assert sections("a.md", toml) == [("Lamp", "tags: a\n\nbody")]
    assert parse_document("a.md", toml.encode()).date == "2021-03-05"
    assert parse_document("a.md", yaml.encode()).date == "2021-03-05"


def test_front_matter_keeps_what_answers_questions_as_lines() -> None:
    """Discriminates: fields dropped; fields of site generators kept; `valid_until` taken for the date."""
    yaml = (
        "---\ntitle: Backups\nowner: Viktor Sand  # since May\nreviewed-by: 'Kai # Lund'\n"
        "valid_until: 2027-01-31\napprovers:\n  - Greta Holt\n  - Wei\n负责人: 王珊\nlayout: post\n"
        "weight: 3\ndraft: false\ncontact: ~\nauthor:\n  name: x\nnotes: |\n  y\nmap: {a: b}\nempty:\n"
        "date: 2025-02-02\ntags: [ops]\n---\n# Backups\nNightly.\n"
    )
    lines = "owner: Viktor Sand\nreviewed_by: Kai # Lund\nvalid_until: 2027-01-31\n"
    lines += "approvers: Greta Holt, Wei\n负责人: 王珊\ntags: ops"
    assert sections("a.md", yaml) == [("Backups", f"{lines}\n\nNightly.")]
    assert parse_document("a.md", yaml.encode()).date == "2025-02-02"
    for field in ("valid_until", "有效期"):
        assert parse_document("a.md", f"---\n{field}: 2024-01-31\n---\nx".encode()).date == ""
    toml = '+++\nowner = "Wei"\npublic = true\nreviewers = ["a", "b"]\nempty = ""\nmenus = [{ x = 1 }]\n'
    assert sections("a.md", toml + "[extra]\ny = 2\n+++\nbody") == [
        ("", "owner: Wei\npublic: true\nreviewers: a, b\n\nbody")
    ]


def test_broken_toml_front_matter_is_only_omitted() -> None:
    assert sections("a.md", "+++\ntitle = \n+++\nbody") == [("", "body")]


def test_html_in_markdown_is_read_as_a_browser_shows_it() -> None:
    text = "# A\n\n<!-- hidden\n\norder -->\n\n<table><tr><th>k</th></tr><tr><td>v</td></tr></table>\n\nend\n"
    assert sections("a.md", text) == [("A", "| k |\n| --- |\n| v |\n\nend")]


def test_a_markdown_file_of_many_megabytes_keeps_its_headings() -> None:
    """Discriminates: the full grammar at any size; taking a `#` in code for a heading."""
    part = "# Part\n\n" + "word " * 2_000 + "\n\n```sh\n# comment\n```\n\n"
    results = sections("a.md", part * 500 + "# Last\n\nend\n")
    assert {heading for heading, _ in results} == {"Part", "Last"}


@pytest.mark.parametrize(
    "css", ["/*", "{", "}", ".a{", "@media{", ".a{display:none}", "." * 9 + ",", "display :  "]
)
def test_a_style_sheet_takes_linear_time(css: str) -> None:
    """Discriminates: a pattern for comments that searches to the end from every unclosed one."""
    with at_most(10):
        page = "<style>" + css * (2_000_000 // len(css)) + "</style>" + "<p class=b>words</p>" * 1_000
        assert "words" in str(sections("a.html", page))
