"""JSON and JSON Lines, read as a person would describe them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import UnreadableDocumentError
from core.knowledge import Section
from services.adapters.readers.documents import parse_document
from tests.support.machine import at_most

DOCUMENTS = Path("tests/fixtures/documents")


def read(content: object, name: str = "a.json") -> tuple[Section, ...]:
    raw = content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode()
    return parse_document(name, raw).sections


def text(content: object, name: str = "a.json") -> str:
    return "\n\n".join(section.text for section in read(content, name))


def code_of(content: bytes, name: str = "a.json") -> str:
    with pytest.raises(UnreadableDocumentError) as refused:
        read(content, name)
    return refused.value.code


def test_a_json_export_of_questions_and_chats_keeps_its_structure() -> None:
    parsed = parse_document("export-jq.json", (DOCUMENTS / "export-jq.json").read_bytes())
    by_heading = {section.heading: section.text for section in parsed.sections}
    assert by_heading["客服问答导出", "prices"].startswith(
        "| sku | name | price |\n| --- | --- | --- |\n| L-1 | 琥珀灯"
    )
    assert by_heading["客服问答导出", "conversations", "c-1", "messages"] == (
        "user: 竹椅能退吗？\n\nassistant: 未使用的竹椅七天内可以退。"
    )
    assert "| 退款需要几天？ | 七个工作日内原路退回。 |" in by_heading["客服问答导出", "faq"]
    assert parsed.date == "2024-03-05"


def test_fixtures_of_other_programs_are_read() -> None:
    assert "scripts.test: echo" in text((DOCUMENTS / "package-npm.json").read_bytes())
    assert "| L-1 | 琥珀灯 |" in text((DOCUMENTS / "export-jq.jsonl").read_bytes(), "a.jsonl").replace(
        "|  |  |", "|"
    )


def test_small_members_are_lines_and_big_ones_are_sections_under_their_keys() -> None:
    long = "A long answer about lanterns. " * 40
    results = read({"name": "wenmai", "size": {"w": 1, "h": 2}, "notes": {"first": long, "second": long}})
    assert results[0].heading == ("wenmai",)
    assert results[0].text == "name: wenmai\nsize.w: 1\nsize.h: 2"
    assert results[1].heading == ("wenmai", "notes")
    assert results[1].text.count(long.strip()) == 2


def test_a_few_values_in_one_field_are_a_cell_of_the_table() -> None:
    """Discriminates: only records without lists taken for a table's; lists as Python writes them."""
    trainers = [{"name": "Bo", "days": ["Mon", "Wed"], "gbp": 38}, {"name": "Safiya", "days": [], "gbp": 42}]
    results = read({"club": "Fit", "trainers": trainers, "rules": {"guest_pass": "12 GBP per day"}})
    assert results[0].text == "club: Fit\nrules.guest_pass: 12 GBP per day"
    assert results[1].heading == ("trainers",)
    assert results[1].text.endswith("| Bo | Mon, Wed | 38 |\n| Safiya |  | 42 |")
    assert "|" not in text([{"id": "a", "vector": ["0.12345"] * 40}, {"id": "b", "vector": ["0.54321"] * 40}])


def test_records_with_long_texts_keep_their_fields_together() -> None:
    results = read([{"question": f"Q{at}", "answer": "word " * 200} for at in range(3)])
    assert [section.heading for section in results] == [("Q0",), ("Q1",), ("Q2",)]
    assert results[1].text.startswith("question: Q1\nanswer:\nword word")


def test_numbers_stay_as_written_and_non_json_numbers_are_read() -> None:
    """Discriminates: int() and float() of the numbers; the last of two equal keys winning."""
    raw = b'{"a": 1.10, "b": NaN, "c": ' + b"9" * 5_000 + b', "a": 2, "d": -Infinity, "e": 1e999}'
    read = text(raw)
    assert "a: 1.10" in read
    assert "a (2): 2" in read
    assert "b: NaN" in read
    assert "9" * 5_000 in read
    assert "1e999" in read


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "gb18030"])
def test_json_is_read_in_every_common_encoding(encoding: str) -> None:
    assert text('{"产品": "琥珀灯", "价格": 128}'.encode(encoding)) == "产品: 琥珀灯\n价格: 128"


def test_broken_lines_stay_readable_unless_most_lines_are_broken() -> None:
    """Discriminates: dropping broken lines; accepting a file of prose as JSON Lines."""
    raw = b'{"a": 1, "b": "x"}\n{"a": 2, "b": \n\n{"a": 3, "b": "y"}\n'
    assert '{"a": 2, "b":' in text(raw, "a.jsonl")
    assert "a: 3\nb: y" in text(raw, "a.jsonl")
    assert code_of(b"some\nprose\n{}\n", "a.jsonl") == "unreadable_document"


def test_json_lines_with_the_extension_json_are_read() -> None:
    assert text(b'{"a": 1}\n{"a": 2}\n') == "| a |\n| --- |\n| 1 |\n| 2 |"


@pytest.mark.parametrize("raw", [b'{"a": ', b"[1, 2", b"{'a': 1}", b'{"a": 1} x'])
def test_broken_json_is_refused_with_the_position(raw: bytes) -> None:
    assert code_of(raw) == "unreadable_document"


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_a_hundred_thousand_levels_are_refused_at_once(raw: bytes) -> None:
    """Discriminates: recursion of our own; letting a RecursionError escape."""
    with at_most(1):
        assert code_of(raw) == "too_complex"


def test_hundreds_of_levels_are_read() -> None:
    assert text(b'{"a":' * 500 + b'"deep"' + b"}" * 500).endswith("deep")


def test_equal_keys_and_big_lists_take_linear_time() -> None:
    raw = b"{" + b'"a":1,' * 100_000 + b'"a":2}'
    with at_most(5):
        assert "a (100001): 2" in text(raw)
        text([[[[at]]] for at in range(30_000)])
