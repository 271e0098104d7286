"""Traditional and simplified characters are found by each other.

Discriminates: NFKC alone, which leaves 鐘樓 and 钟楼 two words.
"""

from __future__ import annotations

import pytest

from core.relevance.sparse import encode_document, encode_query, folded, terms


@pytest.mark.parametrize(
    ("traditional", "simplified"),
    [
        ("鐘樓的高度", "钟楼的高度"),
        ("產假有多少天", "产假有多少天"),
        ("歷史建築", "历史建筑"),
        ("退款說明", "退款说明"),
    ],
)
def test_either_script_is_the_same_words(traditional: str, simplified: str) -> None:
    assert terms(traditional) == terms(simplified)
    assert encode_query(traditional) == encode_query(simplified)
    assert encode_document(traditional) == encode_document(simplified)


@pytest.mark.parametrize("text", ["plain words", "简体字", "日本語のテキスト", "ＡＢＣ１２３", "𠮷野家"])
def test_nothing_grows_or_shrinks_but_by_width(text: str) -> None:
    assert len(folded(text)) == len(text)
