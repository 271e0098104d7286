from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.text import (
    TextScrubber,
    close_gaps,
    holds_words,
    is_for_reader,
    is_mostly_chinese,
    is_spaced_out,
    language_in,
    language_of,
    preprocess_question,
    scrub,
    standard,
)

BREAKS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
ANY = st.text(st.characters(codec=None) | st.sampled_from(BREAKS + "\0\n\ud83d\ude00"), max_size=30)


def test_every_unicode_line_break_becomes_lf() -> None:
    assert scrub("a\r\nb" + "".join(f"{char}x" for char in BREAKS)) == "a\nb" + "\nx" * len(BREAKS)


def test_nul_is_removed_and_a_lone_surrogate_replaced() -> None:
    assert scrub("a\0b\ud800c") == "ab\ufffdc"


def test_a_question_is_trimmed_and_its_empty_lines_are_limited() -> None:
    assert preprocess_question("  a\n\n\n\nb \n") == "a\n\nb"


def test_invisible_characters_alone_are_not_a_question() -> None:
    assert preprocess_question("\u200b\ufeff \n\u2060") == ""


@given(ANY, st.lists(st.integers(0, 30), max_size=5))
@example("one\rtwo", [4])
def test_scrubbing_pieces_gives_the_same_result_as_scrubbing_the_whole(text: str, cuts: list[int]) -> None:
    """Discriminates: passing on a piece that needs no scrubbing before the text held back."""
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    scrubber = TextScrubber()
    words = "".join(scrubber.feed(text[a:b]) for a, b in itertools.pairwise(edges))
    whole = TextScrubber()
    assert words + scrubber.flush() == whole.feed(text) + whole.flush()
    assert not any(char in words for char in BREAKS + "\0")
    words.encode()


def test_language_is_detected_by_the_script() -> None:
    assert is_mostly_chinese("RERANK_SCORE_THRESHOLD 是什么意思?")
    assert not is_mostly_chinese("What does 父子链 mean?")
    assert is_mostly_chinese("父子链是什么?")
    assert is_mostly_chinese("E26-2 呢")
    assert not is_mostly_chinese("What about the 表 E26-2?")
    assert not is_mostly_chinese("What is a branch?")
    assert not is_mostly_chinese("123")


RECOGNISED = """公 司 年 假 规 定
第 3 条 员 工 入 职 满 1 年 的 ， 享 受 年 假 5 天 。 使 用 VPN 时 ， 须 登 记 。
姓 名   部 门\t天 数
Annual leave is a right ."""


MENU = "| 菜品 Dish | 价格 Price |\n| --- | --- |\n| 牛肉面 Beef noodles | 22 元 |\n| 豆浆 Soy milk | 4 元 |"


def test_a_text_in_both_languages_is_for_readers_of_both() -> None:
    """Discriminates: one language per text; commands and names of a Chinese text taken for English."""
    assert is_for_reader(MENU, chinese=True)
    assert is_for_reader(MENU, chinese=False)
    only_chinese = (
        "发布前执行下列命令：\n```\nkubectl rollout status deploy notify hub\n```",
        "在 Grafana 里查看告警规则。",
    )
    assert not any(is_for_reader(text, chinese=False) for text in only_chinese)
    assert not is_for_reader("The beef noodles (牛肉面) cost 22 yuan and are served at noon.", chinese=True)


def test_ocr_text_is_read_without_the_blanks_between_its_characters() -> None:
    """Discriminates: removing none; also removing those of English, of a number or between columns."""
    closed = """公司年假规定
第3条员工入职满1年的，享受年假5天。使用 VPN 时，须登记。
姓名   部门\t天数
Annual leave is a right ."""
    assert is_spaced_out(RECOGNISED)
    assert close_gaps(RECOGNISED, spaced_out=True) == closed
    typed = "本制度由人力资源部解释，自公布之日起施行，原有规定同时废止。\n" * 3
    run = "本 页 是 扫 描 件 ， 经 文 字 识 别 后 得 到 以 下 内 容 。"
    assert close_gaps(typed + run, spaced_out=is_spaced_out(typed + run)) == typed + run.replace(" ", "")


@pytest.mark.parametrize(
    "text",
    [
        "日 一 二 三 四 五 六\n" * 6,
        "月 份 一 二 三 四 五 六 七 八 九 十\n" * 3,
        "是 否 是 是 否 否 是 否 是 是 否 否 是 否 是 是 否 否\n" * 9,
        "公司 年假 规定 员工 入职 满 一 年 的 享受 年假 五 天\n" * 5,
        "姓名 部门 天数\n张三 财务部 五\n李四 人事部 六",
        "a b c d e f g h i j k l m n o p q r s t",
    ],
    ids=["calendar", "months", "answers", "words", "table", "letters"],
)
def test_blanks_that_may_separate_columns_or_words_stay(text: str) -> None:
    """Discriminates: removing any blank between two characters."""
    assert close_gaps(text, spaced_out=is_spaced_out(text)) == text


def test_a_question_may_have_no_language() -> None:
    """Discriminates: English for everything that is not Chinese; counting every Latin word beside ideographs
    as English."""
    for text in (
        "？",
        "1",
        "ok",
        "OK.",
        "ok thanks",
        "VPN",
        "vpn?",
        "IT?",
        "MacBook Pro",
        "①",
        "Ⅲ",
        "ＶＰＮ",
        "report.pdf",
        "k8s",
    ):
        assert language_of(text) is None, text
    for text in ("wfh呢", "SSL VPN呢", "Office 365 的 license 怎么申请", "google drive呢", "T恤", "那 HR 呢"):
        assert language_of(text) == "zh", text
    for text in (
        "what about parental leave?",
        "Parental leave?",
        "why?",
        "really?",
        "any update",
        "thank you",
    ):
        assert language_of(text) == "en", text
    for text in ("What does 父子链 mean?", "What about the 表 E26-2?", "где это?", "かな"):
        assert language_of(text) == "en", text


def test_without_words_the_language_is_that_of_the_latest_question_with_words() -> None:
    """Discriminates: the language of the first question, of the last one alone, or of most of them."""
    chinese, english = "年假有几天？", "How many days of leave?"
    assert language_in("VPN", [english, chinese, "1", "ok"]) == "zh"
    assert language_in("VPN", [chinese, english]) == "en"
    assert language_in("what about parental leave?", [chinese, chinese]) == "en"
    assert language_in("那产假呢", [english]) == "zh"
    assert (language_in("VPN"), language_in("VPN", ["1"], "zh")) == ("en", "zh")


@pytest.mark.parametrize(
    ("spoken", "expected"),
    [
        ("年假有幾多日", "年假有多少日"),
        ("點解要蓋章", "为什么要蓋章"),
        ("VPN點樣連", "VPN怎么連"),
        ("食堂喺邊度", "食堂在哪里"),
        ("邊個部門批", "哪个部門批"),
        ("幾時發糧", "什么时候發糧"),
        ("有冇年假", "有没有年假"),
        ("係咪要蓋章", "是不是要蓋章"),
        ("報銷要咩單據", "報銷要什么單據"),
        ("真係咩？", "真的吗？"),
        ("甚麼時候發薪", "什么時候發薪"),
        ("几多钱", "多少钱"),
    ],
)
def test_question_words_of_cantonese_and_of_taiwan_are_the_standard_ones(spoken: str, expected: str) -> None:
    assert standard(spoken) == expected


@pytest.mark.parametrize(
    "text",
    [
        "一點解決方案", "周邊度假村", "關係咪", "好幾多年", "這幾時間", "三點樣板", "旁邊個人", "点解释",
        "手边个人电脑", "路边个体户", "窗边位置", "湖边度周末", "站点样式", "痛点解法", "晚上9点解锁",
        "系统是不是", "真系统", "什么时候", "How many?",
    ],
)  # fmt: skip
def test_characters_within_other_words_are_not_question_words(text: str) -> None:
    """Discriminates: replacing the characters everywhere."""
    assert standard(text) == text


def test_words_are_found_whatever_punctuation_is_between_them() -> None:
    assert holds_words("| Paris | 3,5 days |", "Paris: 3.5 days")
    assert not holds_words("Paris", "Paris 3")
