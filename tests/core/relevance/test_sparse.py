import random
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.relevance.sparse import (
    AVERAGE_WORDS,
    K1,
    MIN_WORD_WEIGHT,
    B,
    DocumentWords,
    SparseTerms,
    encode_document,
    encode_query,
    folded,
    holds,
    is_cjk,
    question_terms,
    terms,
    word_pieces,
    words_of,
)
from tests.support.machine import at_most


def score(question: str, document: str) -> float:
    weights = encode_document(document)
    results = dict(zip(weights.indices, weights.values, strict=True))
    query = encode_query(question)
    return sum(
        value * results.get(index, 0.0) for index, value in zip(query.indices, query.values, strict=True)
    )


def weight(question: str) -> float:
    return sum(term.weight for term in question_terms(question))


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("专业版的费用是多少？", "专业版每月的费用为九十九元。", "团队版支持多人协作与审计。"),
        (
            "天城文在何時成為標準書寫系統？",
            "天城文被定為梵語的標準書寫系統。",
            "梵語的學術研究由德國學者開創。",
        ),
        (
            "How are turns deleted?",
            "A turn can be deleted by its owner.",
            "Sessions are listed newest first.",
        ),
        ("What is MAX_RECENT_TURNS?", "MAX_RECENT_TURNS bounds the history.", "The history is bounded."),
        ("升级到 v1.2 以后", "版本 1.2 的升级说明", "版本 3.4 的升级说明"),
        ("错误 E1001", "遇到 e1001 时请重启", "遇到 e2001 时请重启"),
        ("C++ 怎么编译", "用 cmake 编译 C++ 程序", "用 tsc 编译 TypeScript"),
        ("ＰＤＦ 能上传吗", "支持上传 pdf 文件", "支持上传图片"),
        ("who asks for leave?", "LEAVE is asked for in the portal.", "Parking is asked for in the portal."),
        ("OPENING HOURS?", "The desk opens; one hour at noon it is closed.", "The desk opens at noon."),
        ("how do I set the recent turns", "set maxRecentTurns in the file", "set the colour in the file"),
    ],
)
def test_the_document_with_the_words_scores_higher(question: str, right: str, wrong: str) -> None:
    assert score(question, right) > score(question, wrong)


def test_stop_words_alone_make_no_vector() -> None:
    assert encode_query("这是什么？") == SparseTerms([], [])
    assert encode_query("who is it?") == SparseTerms([], [])
    assert encode_query("还有一件？另外某种呢") == encode_query("is there something?") == SparseTerms([], [])
    assert encode_query("") == SparseTerms([], [])


def test_an_acronym_that_looks_like_a_stop_word_is_indexed() -> None:
    assert [term.text for term in question_terms("IT 部门")] == ["it", "部门"]


def test_identifiers_are_indexed_whole_and_in_parts() -> None:
    assert terms("MAX_RECENT_TURNS") == ["max_recent_turns", "max", "recent", "turn"]
    assert terms("Python 3.11") == ["python", "3.11"]


def test_a_number_is_the_same_with_and_without_commas_between_thousands() -> None:
    assert terms("1,350 euros") == terms("1350 euros")
    assert set(terms("超过5,000元")) == set(terms("超过5000元"))
    assert {"101", "102"} <= set(terms("rooms 101,102"))  # may be two numbers
    assert "3" in terms("1,2,3")


def test_a_long_chinese_word_does_not_count_more_than_two_words() -> None:
    """Discriminates: giving every bigram of a word the full weight of 1."""
    assert weight("中国人民大学") < 2.1
    assert weight("费用") == 1.0


def test_a_frequent_word_saturates() -> None:
    once, often = score("费用", "费用"), score("费用", "费用" * 50)
    assert once < often < once * 2.3


def test_a_longer_document_with_the_same_word_scores_lower() -> None:
    assert score("费用", "费用" + "其他内容很多" * 100) < score("费用", "费用")


def test_the_weight_of_a_word_is_that_of_bm25() -> None:
    """Discriminates: ignoring the length, or counting it in characters."""
    [weight] = encode_document("fee fee fee").values
    assert weight == pytest.approx(3 * (K1 + 1) / (3 + K1 * (1 - B + B * 3 / AVERAGE_WORDS)))


def test_a_one_line_passage_beats_a_whole_chunk_with_the_word_twice() -> None:
    """Discriminates: b = 0.5, with which short passages lose."""
    assert score("费用", "费用是九十九元") > score("费用", "费用与费用" + "别的内容还有很多" * 35)


def test_a_document_added_in_pieces_has_the_vector_of_the_whole_text() -> None:
    pieces = ["专业版的费用。", "Running turns, ", "费用 MAX_UPLOAD_MB"]
    words = DocumentWords()
    for piece in pieces:
        words.add(piece)
    assert words.vector() == encode_document("".join(pieces))


def test_words_of_scripts_with_spaces_have_positions() -> None:
    assert words_of("费用 fee，C++和 v1.2.") == ([3, 7, 12], ["fee", "C++", "v1.2"])
    assert words_of("只有中文") == ([], [])


@given(st.text(alphabet="费用abzAB_1.2- +'’ЖЩé"))
def test_the_terms_of_a_text_are_the_pieces_of_its_words(text: str) -> None:
    """Discriminates: pieces of a word that are not lower-cased or stemmed as in the index."""
    results = {piece for word in words_of(folded(text))[1] for piece in word_pieces(word)}
    assert results == {term for term in terms(text) if not is_cjk(term)}


def test_hashes_are_the_same_in_another_process() -> None:
    code = "from core.relevance.sparse import encode_query; print(encode_query('费用 turns').indices)"
    reply = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": "."},
    )
    assert reply.stdout.strip() == str(encode_query("费用 turns").indices)


def test_importing_loads_no_dictionary() -> None:
    code = (
        "import sys; from core.relevance.sparse import encode_query; "
        "encode_query('turns'); print('rjieba' in sys.modules)"
    )
    reply = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "."}
    )
    assert reply.stdout.strip() == "False"


@given(st.text())
def test_indices_are_u32_ascending_and_unique_with_positive_weights(text: str) -> None:
    for vector in (encode_document(text), encode_query(text)):
        assert vector.indices == sorted(set(vector.indices))
        assert all(0 <= index < 2**32 for index in vector.indices)
        assert len(vector.values) == len(vector.indices)
        assert all(value > 0 for value in vector.values)


@given(st.text(alphabet="费用是多少的了问脉专业版abc_. 12"))
def test_a_question_matches_a_document_with_the_same_words(text: str) -> None:
    assert set(encode_query(text).indices) == set(encode_document(text).indices)


def test_threads_do_not_interfere() -> None:
    """Discriminates: one stemmer shared by all threads, which mixes up words in progress."""
    words = [
        f"{random.Random(at).choice(['running', 'conversations', 'relational'])}{'x' * (at % 7)}"
        for at in range(3000)
    ]
    expected = encode_document(" ".join(words))
    results: list[SparseTerms] = []
    threads = [
        threading.Thread(target=lambda: results.append(encode_document(" ".join(words)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


HOSTILE = {
    "one word": "a" * 1_000_000,
    "joiners": "a." * 500_000,
    "camels": "aB" * 500_000,
    "letters": "a b " * 250_000,
    "distinct words": " ".join(f"w{at:x}q" for at in range(150_000)),
    "one character": "啊" * 333_333,
    "sentence": "中国人民大学文学院前身是什么呢我们" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_hostile_text_takes_less_than_a_second(name: str) -> None:
    encode_query("预热 warm")
    with at_most(1.0):
        encode_document(HOSTILE[name])


def test_a_question_takes_less_than_a_millisecond() -> None:
    question = "问脉专业版每个月的费用是多少，MAX_RECENT_TURNS 的默认值是多少？"
    encode_query(question)
    with at_most(200 * 0.001):
        for _ in range(200):
            encode_query(question)


def test_no_bigram_spans_a_stop_word() -> None:
    """Discriminates: 猫和狗 matching 猫狗, a word that it does not contain."""
    assert terms("猫和狗") == ["猫", "狗"]


@pytest.mark.parametrize(
    ("question", "noun"),
    [
        ("How do I back it up?", "backup"), ("how to back up my data", "backup"),
        ("set everything up", "setup"), ("back the whole server up", "backup"),
        ("Where do I log in?", "login"), ("Roll it back.", "rollback"),
    ],
)  # fmt: skip
def test_a_verb_with_a_particle_is_also_searched_as_its_noun(question: str, noun: str) -> None:
    """Discriminates: separate words, neither of which occurs in a heading that says Backup."""
    (term,) = question_terms(noun)
    assert term in question_terms(question)


def test_other_verbs_with_a_particle_give_no_noun() -> None:
    words = {
        term.text for term in question_terms("Look at the log that came in, and set the table back down")
    }
    assert words == {"look", "log", "came", "set", "tabl", "back", "down"}


@pytest.mark.parametrize(
    ("typed", "written"),
    [("第37条", "第三十七条"), ("第 5 章", "第五章"), ("第12条", "第十二条"), ("第108条", "第一百零八条"),
     ("第120条", "第一百二十条"), ("第10条", "第十条"), ("第1079条", "第一千零七十九条")],
)  # fmt: skip
def test_an_article_typed_in_digits_is_searched_in_its_written_form(typed: str, written: str) -> None:
    """Discriminates: searching for 37 and 条, which no law or handbook contains."""
    asked = {term.text for term in question_terms(f"手册{typed}讲什么")}
    assert {term.text for term in question_terms(written)} <= asked


@pytest.mark.parametrize(
    ("traditional", "simplified"),
    [
        ("鐘樓的高度", "钟楼的高度"),
        ("產假有多少天", "产假有多少天"),
        ("歷史建築", "历史建筑"),
        ("退款說明", "退款说明"),
    ],
)
def test_both_chinese_scripts_give_the_same_words(traditional: str, simplified: str) -> None:
    """Discriminates: NFKC alone, which leaves 鐘樓 and 钟楼 two words."""
    assert terms(traditional) == terms(simplified)
    assert encode_query(traditional) == encode_query(simplified)
    assert encode_document(traditional) == encode_document(simplified)


@pytest.mark.parametrize("text", ["plain words", "简体字", "日本語のテキスト", "ＡＢＣ１２３", "𠮷野家"])
def test_folding_keeps_the_length_of_a_text(text: str) -> None:
    assert len(folded(text)) == len(text)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("遛狗的绳子多长", {"遛狗", "绳子"}), ("钥匙丢了咋整", {"钥匙"}), ("門診幾點下班", {"门诊", "下班"}),
        ("会员能不能停卡", {"会员", "停卡"}), ("明天停不停水", {"明天", "停水"}),
        ("礼拜几值班", {"值班"}), ("值班手机号是多少", {"值班", "手机"}),
    ],
)  # fmt: skip
def test_words_that_only_ask_say_little(question: str, words: set[str]) -> None:
    """Discriminates: 多长, 咋 and 不能 as words that a text with the answer lacks."""
    assert {term.text for term in question_terms(question) if term.weight >= MIN_WORD_WEIGHT} == words


@pytest.mark.parametrize(
    ("question", "text", "other"),
    [
        ("周末", "周六、周日 10:00", "周一至周五"), ("周末", "周五、六", "每周一次"),
        ("礼拜天", "星期日休息", "周六"), ("周三", "周一至周五", "周四至周日"),
        ("星期三", "星期二、三、四", "周四"), ("禮拜六", "双休日", "工作日"),
        ("周一", "周日至周四", "周五至周日"), ("工作日", "周一到周五", "周六"), ("平时", "周一~周五", "周末"),
    ],
)  # fmt: skip
def test_a_day_of_the_week_is_in_a_text_that_includes_it(question: str, text: str, other: str) -> None:
    """Discriminates: days as mere strings."""
    (term,) = question_terms(question)
    assert (holds(text, term.text), holds(other, term.text)) == (True, False)


def test_a_weekday_is_searched_as_texts_write_it() -> None:
    assert score("周末", "双休日休息") > 0.0
    assert score("礼拜天", "星期日休息") > 0.0
    assert score("周三", "工作日休息") > 0.0


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("狗呢", {"狗"}), ("游泳池呢 那貓呢？", {"游泳池", "猫"}), ("它呢", set()), ("多少钱", set()),
        ("洗个澡", {"洗", "澡"}), ("请了个假", {"请", "假"}), ("上个月", {"上个月"}),
    ],
)  # fmt: skip
def test_a_lone_character_or_a_parted_word_is_a_word(question: str, words: set[str]) -> None:
    """Discriminates: 狗 as a third of a word, and so 洗; a search for the characters of 洗澡 alone."""
    assert {term.text for term in question_terms(question) if term.weight >= MIN_WORD_WEIGHT} == words
    assert score("洗个澡", "洗澡") > score("澡", "洗澡") + score("洗", "洗澡")
