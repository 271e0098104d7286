"""What the extractive answerer quotes if the passages are in two languages."""

from __future__ import annotations

from core.prompt.layouts import ReadBack
from services.models.extractive import answer


def in_two_languages(chinese: float, english: float) -> str:
    """The answer to an English question for which there is a passage in each language."""
    passages = (
        f'<passage id="{at}" file="{name}" heading="" relevance="{chance:.2f}">\n{text}\n</passage>'
        for at, (name, chance, text) in enumerate(
            sorted(
                [("a.md", english, "Lockers cost 50 yuan."), ("b.md", chinese, "操作工推荐奖金为七百元。")],
                key=lambda each: -each[1],
            ),
            start=1,
        )
    )
    return answer(ReadBack("\n\n".join(passages), "How much is the bonus for referring a worker?", ()))


def test_another_languages_best_passage_is_quoted_if_the_readers_has_no_sure_one() -> None:
    """Discriminates: only the reader's language although it has nothing sure; words of the question alone,
    which a passage in another language cannot have; both languages although the reader's answers."""
    assert "七百元" in in_two_languages(chinese=0.4, english=0.2)
    assert "七百元" in in_two_languages(chinese=0.3, english=0.35)
    assert "七百元" not in in_two_languages(chinese=0.2, english=0.35)
    assert "七百元" not in in_two_languages(chinese=0.6, english=0.55)


def test_a_passage_in_another_language_comes_first_only_if_clearly_better() -> None:
    """Discriminates: a table that the reader cannot read, above the row that answers."""
    fees, bonus = "How much is the bonus for referring a worker? 50 yuan.", "操作工推荐奖金为七百元。"
    for english, chinese, first in ((0.4, 0.3, fees), (0.3, 0.4, bonus), (0.37, 0.4, fees)):
        passages = "\n\n".join(
            f'<passage id="{at}" file="a.md" heading="" relevance="{chance}">\n{text}\n</passage>'
            for at, (chance, text) in enumerate(sorted([(english, fees), (chinese, bonus)], reverse=True), 1)
        )
        quotes = answer(ReadBack(passages, "How much is the referring bonus?", ())).split("\n\n")[1:]
        assert [first in quote for quote in quotes] == [True, False]


def test_a_text_in_both_languages_is_quoted_to_readers_of_both() -> None:
    """Discriminates: a menu with dishes in two languages left out for an English text beside it."""
    texts = (
        "| 菜品 Dish | 价格 Price |\n| --- | --- |\n| 牛肉面 Beef noodles | 22 元 |\n| 豆浆 Soy milk | 4 |",
        "Copies cost 1 yuan.",
    )
    passages = "\n\n".join(
        f'<passage id="{at}" file="{at}.md" heading="" relevance="{chance}">\n{text}\n</passage>'
        for at, (chance, text) in enumerate(zip((0.6, 0.5), texts, strict=True), 1)
    )
    quotes = answer(ReadBack(passages, "How much are the beef noodles?", ()))
    assert "牛肉面 Beef noodles；价格 Price：22 元" in quotes.split("\n\n")[1]


def test_a_code_without_results_is_mentioned() -> None:
    assert answer(ReadBack("", "E02 多少钱", ())).startswith("资料中没有找到说明 E02 的内容。")
    said = answer(ReadBack("", "What is QP-4999?", ()))
    assert said.startswith("The documents contain nothing that explains QP-4999.")
    said = answer(ReadBack("", "Which printer shows E02?", ()))
    assert said.startswith("The documents contain nothing that answers this.")
