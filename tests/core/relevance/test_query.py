import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.relevance.names import carried, people_in, short_codes, with_subject
from core.relevance.query import asked_in, meant, parts_of, reciprocal_rank_fusion
from tests.support.machine import at_most

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4)


def test_an_id_in_two_lists_ranks_above_one_that_leads_a_single_list() -> None:
    fused = reciprocal_rank_fusion([["a", "b"], ["c", "b"]])
    assert [chunk_id for chunk_id, _ in fused] == ["b", "a", "c"]
    assert fused[0][1] == pytest.approx(2 / 62)


def test_weights_scale_a_list_and_weight_zero_omits_it() -> None:
    fused = reciprocal_rank_fusion([["a"], ["b"], ["c"]], [1.0, 2.0, 0.0], k=10)
    assert [chunk_id for chunk_id, _ in fused] == ["b", "a"]
    assert [score for _, score in fused] == pytest.approx([2 / 11, 1 / 11])


def test_no_rankings_give_nothing() -> None:
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[]]) == []


def test_a_duplicate_id_in_a_list_counts_at_its_first_rank() -> None:
    assert reciprocal_rank_fusion([["a", "b", "a"]]) == reciprocal_rank_fusion([["a", "b"]])


@pytest.mark.parametrize(
    ("weights", "k"), [([1.0], 60), ([1.0, -1.0], 60), ([1.0, float("nan")], 60), (None, 0)]
)
def test_bad_arguments_are_refused(weights: list[float] | None, k: int) -> None:
    with pytest.raises(ValueError, match=r"k must be|each ranking"):
        reciprocal_rank_fusion([["a"], ["b"]], weights, k)


@given(RANKINGS)
def test_every_id_is_returned_once_with_decreasing_scores(rankings: list[list[str]]) -> None:
    fused = reciprocal_rank_fusion(rankings)
    scores = [score for _, score in fused]
    assert sorted(chunk_id for chunk_id, _ in fused) == sorted(
        {item for ranking in rankings for item in ranking}
    )
    assert scores == sorted(scores, reverse=True)


@given(RANKINGS)
def test_repeating_a_list_changes_no_order(rankings: list[list[str]]) -> None:
    once = [chunk_id for chunk_id, _ in reciprocal_rank_fusion(rankings)]
    twice = [chunk_id for chunk_id, _ in reciprocal_rank_fusion([*rankings, *rankings])]
    assert once == twice


@pytest.mark.parametrize(
    "text",
    [
        "样，" * 4_000,
        "difference between " * 400,
        "differ " * 1_000 + " and " * 200,
        "how do " + "a and " * 1_000,
    ],
)
def test_a_hostile_question_takes_little_time(text: str) -> None:
    """Discriminates: patterns that look ahead from every mark of 8,000 characters: 600 ms on the loop."""
    with at_most(0.05):
        parts_of(text[:8_000])
        parts_of(text[:300])


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("年假有几天？", ["年假有几天？"]),
        ("体检报告能代拿吗？寄到外省多少钱？", ["体检报告能代拿吗？", "寄到外省多少钱？"]),
        ("How long is a token valid and how many requests may I send?",
         ["How long is a token valid", "how many requests may I send?"]),
        ("打车回家能报吗，最多多少", ["打车回家能报吗，最多多少"]),
        ("M2 和 M3 的退货期限有什么区别？", ["M2 的退货期限有什么区别？", "M3 的退货期限有什么区别？"]),
        ("What is the difference between the DP-310 and the DP-315?", ["DP-310", "the DP-315"]),
        ("How do read-only and read-write access differ in how long they last?",
         ["read-only differ in how long they last?", "read-write access differ in how long they last?"]),
        ("GW-820 or GW-822, which is newer?", ["GW-820 , which is newer?", "GW-822 , which is newer?"]),
        ("Which trainer helps after an injury and how much does she or he cost?",
         ["Which trainer helps after an injury", "how much does she or he cost?"]),
        ("How much is a chip, and from what age must a kitten have one?",
         ["How much is a chip", "from what age must a kitten have one?"]),
        ("Compare yearly prices of Starter and Growth",
         ["yearly prices of Starter", "yearly prices of Growth"]),
        ("salt and pepper", ["salt and pepper"]),
        ("Is the EV6 dearer than the MG4?", ["the EV6", "the MG4"]),
        ("Does a day ticket cost more than a city pass?", ["a day ticket cost", "a city pass"]),
        ("Which is heavier, TH-215 or TH-216?", ["TH-215", "TH-216"]),
        ("Which has the longer range, X or Y2?", ["X has the longer range", "Y2 has the longer range"]),
        ("加班费比工资高吗？", ["加班费", "工资"]),
        ("Do I get more than two days off?", ["Do I get more than two days off?"]),
        ("Is there more than one lift?", ["Is there more than one lift?"]),
        ("今年比赛时间多长", ["今年比赛时间多长"]),
        ("请假超过三天，要扣工资吗", ["请假超过三天，要扣工资吗"]),
        ("Who pays the postage? we're in Ohio", ["Who pays the postage? we're in Ohio"]),
        ("年假有几天？我在上海分公司", ["年假有几天？我在上海分公司"]),
        ("年假有几天？还有病假期间的工资", ["年假有几天？", "还有病假期间的工资"]),
        ("年假几天，还有病假几天？", ["年假几天", "病假几天？"]),
        ("保护密码怎么找回，还有办法解开工作表吗", ["保护密码怎么找回，还有办法解开工作表吗"]),
    ],
)  # fmt: skip
def test_multi_part_and_comparing_questions_are_split(question: str, parts: list[str]) -> None:
    assert parts_of(question) == parts


def test_consecutive_questions_need_not_repeat_their_subject() -> None:
    """Discriminates: taking an adverbial for a separate question, or a lone 还有 for one."""
    assert asked_in("我在上海，病历在哪里复印，一页多少钱") == ["我在上海 病历在哪里复印", "一页多少钱"]
    assert asked_in("年假有几天？还有，怎么请？") == ["年假有几天？", "还有，怎么请？"]
    assert asked_in("密码怎么也想不起来，能解开吗") == ["密码怎么也想不起来 能解开吗"]


ROOMS = "有：MR-302 容纳 28 人；最大的是多功能厅 MR-501，容纳 150 人。"


@pytest.mark.parametrize(
    ("question", "last", "answer", "expected"),
    [
        ("最后那个要找谁批？", "还有更大的吗", ROOMS, "MR-501"),
        ("第一个呢？", "还有更大的吗", ROOMS, "MR-302"),
        ("第三个呢？", "还有更大的吗", ROOMS, ""),
        ("第一个用到哪天为止？", "有哪些优惠码？", "有 TRAIL26 和 HIKE26。", "TRAIL26"),
        ("What does the second one cost?", "Which vaccines?", "VX-106 and VX-106P.", "VX-106P"),
        ("and the latter?", "Which vaccines?", "VX-106 and VX-106P.", "VX-106P"),
        ("How much storage does it have?", "Which gateways have two supplies?", "The GW-820 has.", "GW-820"),
        ("What does it weigh?", "How is the GW-820 powered?", "By two supplies, PS-24 each.", ""),
        ("What does it weigh?", "Which supply fits the GW-820?", "The GW-820 takes the PS-24.", "PS-24"),
        ("and the typhoid one?", "How many doses is hepatitis B?", "VX-103 takes 3 doses.", ""),
        ("What does it cost?", "Which ones?", "A-101, A-102, A-103 and A-104.", ""),
        ("How long are gateways warranted?", "Which gateways have two supplies?", "The GW-820 has.", ""),
        ("What does it cost?", "Which ones?", "None.", ""),
        ("How long does its battery last?", "Do they work outdoors?", "Only the TH-212-W.", "TH-212-W"),
        ("它多重？", "有防水的吗？", "有，TH-212-W 防水。", "TH-212-W"),
        ("How much is it?", "Is there a walk-in?", "Yes, for VX-101 and VX-110.", ""),
    ],
)
def test_a_follow_up_uses_the_names_of_the_last_answer_it_points_at(
    question: str, last: str, answer: str, expected: str
) -> None:
    """Discriminates: names of the last question; all of a descriptive answer; an ordinal beyond the names."""
    assert carried(question, last, answer) == expected


def test_letters_followed_by_digits_may_be_codes() -> None:
    """Discriminates: an hour, an ordinal, a number or an amount."""
    assert short_codes("E2 或 a4, X3 Pro at 2pm on the 3rd, 15 kg, 5kg, 2026, QP-4033") == {
        *("e2", "a4", "x3", "qp-4033")
    }


ANNUAL, HOW = "年假怎么请？", "How do I apply for annual leave?"


@pytest.mark.parametrize(
    ("correction", "before", "expected"),
    [
        ("不是年假，是事假", ANNUAL, "事假怎么请？"),
        ("不对，不是年假，我问的是事假", ANNUAL, "事假怎么请？"),
        ("不是年假而是事假。", ANNUAL, "事假怎么请？"),
        ("我说的是事假，不是年假", ANNUAL, "事假怎么请？"),
        ("事假，不是年假", ANNUAL, "事假怎么请？"),
        ("唔係年假，係事假", "年假有幾多日", "事假有多少日"),
        ("not annual leave, sick leave", HOW, "How do I apply for sick leave?"),
        ("No, not the annual leave but the sick leave.", HOW, "How do I apply for sick leave?"),
        ("I meant sick leave, not annual leave", HOW, "How do I apply for sick leave?"),
        ("I don't mean annual leave, I mean sick leave", HOW, "How do I apply for sick leave?"),
        ("It's sick leave, not annual leave", HOW, "How do I apply for sick leave?"),
        ("我是实习生，不是正式员工", "正式员工怎么请假？", "实习生怎么请假？"),
    ],
)
def test_a_correction_asks_the_previous_question_about_the_intended_subject(
    correction: str, before: str, expected: str
) -> None:
    """Discriminates: searching for what was rejected, or repeating the previous question unchanged."""
    assert meant(correction, ["食堂在哪", before]) == (expected, ["食堂在哪"])
    assert meant("要盖章吗", [before, correction]) == ("要盖章吗", [expected])


def test_a_correction_of_the_answer_alone_searches_for_the_intended_subject() -> None:
    assert meant("不是年假，是事假", ["怎么请假"], "> 年假每年十五天") == ("事假", ["怎么请假"])
    assert meant("不是年假，是事假几天", [ANNUAL]) == ("事假几天", [ANNUAL])
    assert meant("not annual leave, sick leave", ["time off?"], "Annual leave is …") == (
        "sick leave",
        ["time off?"],
    )


@pytest.mark.parametrize(
    "text",
    [
        "不是年假，是事假吗？", "不是正式员工是不是不能请年假", "年假是工作日，不是自然日吗", "是不是年假",
        "不是年假吗", "why is it not annual leave", "is it annual leave, not sick leave?", "我问的是事假",
        "我不是年假", "如果不是年假呢", "那不是年假", "为什么不是年假", "这个不是年假", "嗯，不是年假",
        "不是年假是怎么请", "不是说年假是十五天", "那我呢，不是年假", "not annual, what else is there?",
        "Not annual leave, but can I apply later?",
    ],
)  # fmt: skip
def test_text_that_only_looks_like_a_correction_is_searched_unchanged(text: str) -> None:
    """Discriminates: looking for a negation anywhere in a question."""
    for before in ([ANNUAL, HOW], [HOW, ANNUAL]):
        assert meant(text, before, "> 年假每年十五天") == (text, before)
    assert meant("不是年假，是事假", []) == ("不是年假，是事假", [])


ROOF = "roof replacement bids"


@pytest.mark.parametrize(
    ("question", "before", "expected"),
    [
        ("and when does it start", [ROOF, "why?", "how is it paid"], [f"{ROOF} why? how is it paid"]),
        ("哪天", ["新手套箱的采购", "什么时候"], ["新手套箱的采购 什么时候"]),
        ("几点开门", [ANNUAL, "食堂在哪"], [ANNUAL, "食堂在哪"]),
        ("and the typhoid vaccine?", [ROOF, "and the price?"], [ROOF, "and the price?"]),
        ("why?", ["when?"], ["when?"]),
        ("How many days of sick leave are there?", [ROOF, "when?"], [ROOF, "when?"]),
    ],
)  # fmt: skip
def test_a_follow_up_of_a_follow_up_keeps_the_subject(
    question: str, before: list[str], expected: list[str]
) -> None:
    """Discriminates: joining it with the last question alone, which names no subject; joining a short new
    subject (食堂在哪, typhoid) with the old one."""
    assert with_subject(question, before, "") == expected


def test_a_short_question_that_the_last_answer_ties_to_the_subject_keeps_it() -> None:
    """谁负责 has a word of its own, as 打印机 has, but its answer is still about the lift. Discriminates:
    keeping the subject by words alone, or whatever was answered."""
    lift, answer = "电梯什么时候换", "> 电梯 6 月更换，由孙浩负责。"
    assert with_subject("要多久", [lift, "谁负责"], answer) == [f"{lift} 谁负责"]
    assert with_subject("那 50 个人呢", [lift, "谁负责"], answer) == [f"{lift} 谁负责"]
    assert with_subject("怎么修", [lift, "打印机"], "> 打印机在二楼。") == [lift, "打印机"]


def test_a_long_text_takes_little_time() -> None:
    with at_most(0.5):
        for text in ("不是" * 4_000, "not " * 2_000, "點" * 8_000, "不是年假，" * 60):
            meant(text, [ANNUAL])


DOCTORS = (
    "> 姓名：林彤\n> 职务：猫科\n> 电话：8201\n>\n> 姓名：何志强\n> 职务：外科，负责骨科\n> 电话：8203 [1]"
)
BAR = "> | Role | Name |\n> | --- | --- |\n> | Box office | Nadia Sheikh |\n> | Bar | Anil Mehta | [1]"


@pytest.mark.parametrize(
    ("question", "before", "answer", "expected"),
    [
        ("他电话多少", ["8号楼谁修"], "> 7号楼由王师傅负责，8、9号楼由老蔡负责。", ["老蔡"]),
        ("她什么时候上班", ["换房谁批"], "> 第 3 周受理，由李敏审批，须双方签字。", ["李敏"]),
        ("他哪天坐诊", ["骨科谁看"], DOCTORS, ["何志强"]),
        ("他哪天坐诊", ["骨科谁看", "他电话多少"], DOCTORS, ["骨科谁看", "何志强"]),
        ("分机呢", ["换房谁批"], "> 由李敏审批。", ["换房谁批 李敏"]),
        ("周六在吗", ["换房谁批", "她在哪个办公室"], "> 由李敏审批。", ["换房谁批", "她在哪个办公室 李敏"]),
        ("多少钱", ["换房谁批"], "> 由李敏审批。", ["换房谁批"]),
        ("他电话多少", ["王师傅几点下班"], "> 王师傅 17:00 下班，老蔡 18:00。", ["王师傅几点下班"]),
        ("它多重", ["泵谁修"], "> 由老蔡负责。", ["泵谁修"]),
        ("what's her phone number?", ["who runs the bar"], BAR, ["Anil Mehta"]),
        ("what's his number?", ["who runs it"], "> Role: Bar; Name: Anil Mehta; Fax: 2 [1]", ["Anil Mehta"]),
        ("what's its phone number?", ["who runs the bar"], BAR, ["who runs the bar"]),
    ],
)
def test_a_follow_up_about_a_person_searches_for_whom_the_answer_names(
    question: str, before: list[str], answer: str, expected: list[str]
) -> None:
    """Discriminates: the first name of the answer; a price after 谁; somebody the question names."""
    assert with_subject(question, before, answer) == expected


def test_chinese_names_are_those_beside_what_announces_a_person() -> None:
    text = "安全员贺阳，前台小周，找仓库杨姐。欧阳娜娜老师：联系人：玛丽，由韦小婷和王师傅处理"
    assert people_in(text) == ["贺阳", "小周", "杨姐", "欧阳娜娜", "玛丽", "韦小婷", "王师傅"]
    assert people_in("周一、周三，高温时，由财务部门负责，单价：金属、金额。周末找值班经理") == []


def test_english_names_are_two_capitalised_words_where_a_name_stands() -> None:
    assert people_in("The bar is led by Anil Mehta, ask Dr Helga Brandt.") == ["Anil Mehta", "Helga Brandt"]
    assert people_in('"Money": Inga Solberg-Lim, inga@example.') == ["Inga Solberg-Lim"]
    assert people_in("Contact Ana Ruiz-Gil (ext. 12). Jean-Luc Roy deals with it.") == ["Ana Ruiz-Gil"]
    assert people_in("Who directs Glass Cousins? The Main Stage, the Box office.") == []
