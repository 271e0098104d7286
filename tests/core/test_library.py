"""Items of the library, as people write them in Markdown, CSV and JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.conversation.sessions import MAX_PERSONA_CHARS
from core.errors import BadRequestError
from core.library import MAX_ITEMS, READERS, Batch, Library, LibraryItem, checked_name, read_items

MARKDOWN = """# 客服人设

这几行只给人看。

## 售前顾问
你是{产品}的售前顾问。

### 语气
友好。

```
## 这不是标题
```

## 售后顾问
你是售后顾问。
"""


def items(ending: str, text: str) -> list[tuple[str, str]]:
    return [(item.title, item.content) for item in read_items(ending, text)]


def refusal(ending: str, text: str) -> str:
    with pytest.raises(BadRequestError) as refused:
        read_items(ending, text)
    return str(refused.value)


def test_a_heading_begins_an_item_and_a_lone_one_above_titles_the_file() -> None:
    """Discriminates: a heading inside a code block, or below an item's, that begins another."""
    first, second = items(".md", MARKDOWN)
    assert first[0] == "售前顾问"
    assert first[1].startswith("你是{产品}的售前顾问。")
    assert first[1].endswith("## 这不是标题\n```")
    assert second == ("售后顾问", "你是售后顾问。")


def test_headings_of_one_level_are_items_each() -> None:
    assert items(".md", "# a\nx\n# b\ny\n## c\nz") == [("a", "x"), ("b", "y\n## c\nz")]
    assert items(".md", "甲\n===\n\nx") == [("甲", "x")]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_row_is_an_item_and_columns_are_known_in_either_language(separator: str) -> None:
    text = (
        separator.join(["编号", "标题", "内容"])
        + "\r\n"
        + separator.join(["1", "甲", '"两\n行"'])
        + "\r\n,,\r\n"
    )
    text = text.replace(",,", separator * 2)
    assert items(".csv", text) == [("甲", "两\n行")]
    assert items(".csv", separator.join(["Title", "Content"]) + "\na" + separator + "b") == [("a", "b")]
    other = "," if separator == ";" else ";"
    assert items(".csv", separator.join(["title", "content"]) + f"\na{separator}b{other * 9}") == [
        ("a", f"b{other * 9}")
    ], "the first row decides, not what an entry contains"


def test_json_is_a_list_of_objects_one_of_them_or_titles_to_contents() -> None:
    one = {"title": "甲", "content": "x"}
    assert items(".json", json.dumps([one, {"标题": "乙", "内容": "y"}])) == [("甲", "x"), ("乙", "y")]
    assert items(".json", json.dumps(one)) == [("甲", "x")]
    assert items(".json", json.dumps({"甲": "x", "乙": "y"})) == [("甲", "x"), ("乙", "y")]


@pytest.mark.parametrize(
    ("ending", "text", "place"),
    [
        (".md", "no heading", "no heading"),
        (".md", "# a\n# b\nx", "item 1 (a) has no content"),
        (".csv", "a,b\n1,2", "line 1 must name the columns"),
        (".csv", 'title,content\na,"b', "line 2"),
        (".csv", "title,content\n,b", "item 1 has no title"),
        (".json", "[1]", "item 1 is not an object"),
        (".json", '[\n{"title": }]', "line 2: invalid JSON"),
        (".json", "[" * 100_000, "cannot be read"),
        (".json", "9" * 5_000, "cannot be read"),
        (".json", '[{"title": "a", "content": 1}]', "item 1 (a) has no content"),
        (".json", "[]", "no item"),
        (".json", json.dumps({"a": "x" * (MAX_PERSONA_CHARS + 1)}), "more than 16000 characters"),
        (".json", json.dumps({"a" * 201: "x"}), "title of more than 200"),
        (".json", json.dumps({str(n): "x" for n in range(MAX_ITEMS + 1)}), "more than 2000 items"),
    ],
)
def test_an_invalid_file_is_refused_with_the_position(ending: str, text: str, place: str) -> None:
    assert place in refusal(ending, text)


@given(
    st.sampled_from(sorted(READERS)),
    st.text(st.sampled_from('#a{}[]":,;\n\t`>-1标') | st.characters(), max_size=60),
)
def test_any_text_is_read_or_refused(ending: str, text: str) -> None:
    try:
        read = read_items(ending, text)
    except BadRequestError:
        return
    assert all(item.title and item.content and "\0" not in item.content for item in read)


def test_variables_are_names_in_braces_and_json_has_none() -> None:
    """Discriminates: braces of a snippet of code taken for variables."""
    item = LibraryItem("t", 'Say {name} to {客户名} and {name}: {"a": 1} {} {1} {a,b} {two words}')
    assert item.variables == ("name", "客户名", "two words")


def test_templates_are_searched_by_title_with_prefix_matches_first() -> None:
    titles = ("每周 周报{x}", "周报", "WEEKLY report", "无变量")
    stored = tuple(LibraryItem(title, "text" if title == "无变量" else "{x}") for title in titles)
    library = Library({"m": {"b": Batch("m", "b", "m/b.md", stored)}})
    assert [item.title for _, item in library.templates("周报", 9)] == ["周报", "每周 周报{x}"]
    assert [item.title for _, item in library.templates("ｗeekly", 9)] == ["WEEKLY report"]
    assert len(library.templates("", 9)) == 3
    assert len(library.templates("", 2)) == 2


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "../a", "a/b", "a\\b", ".hidden", "a\nb", "a\0", "\udcff", "长" * 101]
)
def test_an_unsafe_file_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequestError):
        checked_name(name, "batch")
