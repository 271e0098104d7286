"""What makes a candidate sure, or prevents any from being sure, whatever the models say."""

from dataclasses import replace

import pytest

from core.knowledge import Candidate
from core.relevance.probability import FEW_NAMED, LEADING, MIN_NAMED, SURE, Coefficients, Together, judge
from tests.core.relevance.test_probability import E5, ask, candidate, plain

# A model that finds nothing probable.
UNSURE = Coefficients("x", plain("dense", 1.0), plain("overlap", 0.0), Together(-5.0, 1.0, 0.0, 0.0))
FILLER = "Two working days within Germany, five elsewhere. " * 6
KEYS = "Spare keys for the parcel lockers are kept at the porter's desk until nine."


def test_of_texts_that_differ_in_a_number_the_one_with_the_questions_number_ranks_first() -> None:
    """Discriminates: ranking by meaning alone, to which all part numbers are equal."""
    question = ask("Which number has the stamp of project curlew 10028?")
    other = candidate("The stamp of project curlew 10098 has the number curlew-30294.", 1, 0.87)
    meant = candidate("Finance. The stamp of project curlew 10028 has the number curlew-30084.", 4, 0.84)
    before, after = judge(question, [other, meant], E5)
    assert after.probability > before.probability
    alone = judge(question, [other], E5)[0]
    assert alone.probability > before.probability  # it is lowered only if another has the number


def test_the_clause_whose_number_is_named_ranks_first() -> None:
    """Discriminates: preferring by meaning a table with a column of clauses, or the clause that happens to be
    nearest."""
    table = candidate("| Item | Clause |\n| --- | --- |\n| Damages | 7.1, 7.5 |", 1, 0.84)
    meant = candidate("7.6 You must not promise payment.", 5, 0.8)
    plain = judge(ask("What does the clause say?"), [table, meant], E5)
    named = judge(ask("What does clause 7.6 say?"), [table, meant], E5)
    assert plain[0].probability > plain[1].probability
    assert named[0].probability < named[1].probability


def test_a_named_article_ranks_first_and_none_is_sure_if_it_is_missing() -> None:
    """Discriminates: the article with the words of the question; one that mentions the named one."""
    other = candidate("第三十八条 赔偿按损失计算，依照第三十七条处理。", 1, 0.88)
    meant = candidate("第三十六条 通知要书面。\n第三十七条 应当保存记录。", 5, 0.8)
    question = ask("第37条规定的赔偿怎么计算？")
    before, after = judge(question, [other, meant], E5)
    assert before.probability < after.probability >= MIN_NAMED
    plain = judge(ask("赔偿怎么计算？"), [other, meant], E5)
    assert plain[0].probability > SURE
    assert judge(ask("第601条规定的赔偿怎么计算？"), [other, meant], E5)[0].probability < SURE


def test_the_only_article_with_its_number_is_sure_if_nothing_else_is_asked() -> None:
    """Discriminates: the ninth article of one set of rules beside another's; a question about something it
    does not say."""
    dogs = candidate("第九条 每户限养一只犬。", 6)
    others = [candidate(FILLER[:50], at) for at in range(1, 6)]

    def chance(question: str, *more: Candidate) -> float:
        return max(each.probability for each in judge(ask(question), [*others, dogs, *more], UNSURE))

    assert chance("第九条说的什么") == SURE
    assert chance("第九条说的什么", candidate("第九条 逾期加收违约金。", 7)) < SURE
    assert chance("第九条规定的罚款是多少") < SURE


@pytest.mark.parametrize(
    ("question", "is_sure"),
    [
        ("Is there a minimum order?", True),
        ("what is the minimum order", True),
        ("Is there a minimum order for dealers?", False),
        ("Is there an order?", False),
        ("有最低起订量吗", True),
        ("最低起订量是多少", False),
        ("When is there a minimum order?", False),
        ("最低起订量以下的订单收多少手续费", False),
    ],
)
def test_a_text_that_asks_the_question_itself_is_sure(question: str, is_sure: bool) -> None:
    """Discriminates: a question with one word more or less, or with another question word."""
    far = candidate("Ships leave on Mondays.", 1, 0.8)
    texts = ("**Q: Is there a minimum order?**\nA: No.", "问：有没有最低起订量？\n答：没有。")
    for text in texts:
        asks = candidate(text, 9, 0.6)
        chance = judge(ask(question), [far, asks], E5)[1].probability
        assert (chance == SURE) is (is_sure and ("最低" in text) == ("最低" in question))
    contents = (
        "- **Is there a minimum order?**\n- **When do you ship?**",
        "- [有没有最低起订量？](#order)\n- [何时发货？](#ship)",
    )
    for text in contents:  # questions without answers
        assert judge(ask(question), [far, candidate(text, 9, 0.6)], E5)[1].probability != SURE


@pytest.mark.parametrize(
    ("question", "passages", "least"),
    [
        ("What does E02 mean?", 1, SURE),
        ("The display shows E02. What should I do with the grinder?", 3, SURE),
        ("E02 怎么办", 1, SURE),
        ("代码 E02 是干什么用的", 1, SURE),
        ("What does a part E02 cost?", 1, MIN_NAMED),
        ("E02 多少钱", 1, MIN_NAMED),
        ("What does E02 mean?", FEW_NAMED + 1, None),
    ],
)
def test_a_question_about_a_code_gets_one_of_the_few_passages_that_have_it(
    question: str, passages: int, least: float | None
) -> None:
    """Discriminates: 'what does E02 mean?' has no other word to match, and was refused at .08; then it was
    the closest passage, as sure as for a question about a price that the passage does not have."""
    named = [
        candidate("- E02: the grinder is blocked. Turn the burr by hand.", 6 + at) for at in range(passages)
    ]
    others = [candidate("Two working days within Germany, five elsewhere.", at) for at in range(1, 6)]
    best, *less = sorted(each.probability for each in judge(ask(question), [*others, *named], UNSURE))[::-1]
    assert best == pytest.approx(least) if least else best < MIN_NAMED
    assert max(less) < 0.1


@pytest.mark.parametrize(
    ("question", "text", "shown"),
    [
        ("E02 多少钱", "清运费每平方米 8 元。", False),
        ("What is E02?", "Wash it at 40 degrees.", False),
        ("What is E02?", "E05 means that the door is open.", True),  # it may be a typing error
        ("清运费 E02 多少钱", "清运费每平方米 8 元。", True),
        ("iPhone15 多少钱", "iPhone 15 每台 5,999 元。", True),
        ("What was changed in v3.61?", "Version 3.5: the clock.", True),
    ],
)
def test_a_lone_code_that_no_passage_has_is_not_answered(question: str, text: str, shown: bool) -> None:
    """Discriminates: showing a passage with the other words, which mean nothing, as the closest."""
    (judged,) = judge(ask(question), [candidate(text, 1)], replace(UNSURE, together=Together(0, 1, 0, 0)))
    assert (judged.probability > 0) is shown


@pytest.mark.parametrize(
    ("leading", "is_sure"),
    [
        ([(KEYS, 0.81)], True),
        ([(KEYS, 0.80), (KEYS.replace("desk", "gate"), 0.81)], False),  # none leads
        (
            [(f"Spare keys. {FILLER} Parcel lockers. {FILLER} Kept.", 0.81)],
            False,
        ),  # its words are far apart
        ([("The keys of the cellar are kept at the porter's desk.", 0.85)], False),  # two of five
    ],
)
def test_a_leading_passage_with_the_questions_words_in_one_place_is_sure(
    leading: list[tuple[str, float]], is_sure: bool
) -> None:
    """Discriminates: half of an office's right answers beginning with 'the closest passage'; a lead alone, or
    words alone, making a passage without the answer sure."""
    first = [candidate(text, at, dense) for at, (text, dense) in enumerate(leading, start=1)]
    others = [candidate(FILLER[:50], at, 0.8 - 0.005 * at) for at in range(3, 9)]
    judged = judge(ask("Where are spare keys for the parcel lockers kept?"), [*first, *others], E5)
    best = max(each.probability for each in judged)
    assert best >= LEADING
    assert (best >= SURE) == is_sure


@pytest.mark.parametrize(
    ("question", "is_sure"),
    [
        ("What is the mobile of the field engineer?", True),
        ("What is the salary of the field engineer?", False),
        ("what's the field engineer's salary", False),
        ("what's the field engineer's mobile?", True),
        ("What is the field engineer's phone number?", True),
        ("What is the cost of the field engineer?", True),
        ("field engineer 的车牌是哪个", True),
    ],
)
def test_a_passage_without_the_requested_attribute_of_a_person_is_not_sure(
    question: str, is_sure: bool
) -> None:
    """Discriminates: a person's telephone number being sure when the salary is asked for; an amount, which is
    recognised by its form; a passage in another language, which has other words for it."""
    passage = candidate("The field engineer is Zhou Ming, mobile 138 0571 2209.", 1)
    (judged,) = judge(ask(question), [passage], replace(UNSURE, together=Together(3.0, 1.0, 0.0, 0.0)))
    assert (judged.probability >= SURE) is is_sure


def test_passages_that_lose_sure_keep_their_order() -> None:
    """Discriminates: all of them getting the same probability, so that the search's first one passes the
    best."""
    passages = [
        candidate("The field engineer is Zhou Ming, mobile 138 0571 2209.", at, dense)
        for at, dense in ((1, 0.5), (2, 0.9))
    ]
    query = ask("What is the salary of the field engineer?")
    judged = judge(query, passages, replace(UNSURE, together=Together(3.0, 1.0, 0.0, 0.0)))
    before, best = (each.probability for each in judged)
    assert before < best < SURE


STAFF = "前台小周，工作日在岗，微信 anzhou。夜班护士老唐，分机 8020。"


@pytest.mark.parametrize(
    ("question", "before", "chance"),
    [
        ("他分机多少", "老唐", SURE), ("他分机多少", "小周", MIN_NAMED), ("分机呢", "谁值班 老唐", SURE),
        ("他多大", "老唐", MIN_NAMED), ("他分机多少", "老蔡", 0.0), ("急诊分机多少", "老唐", 0.0),
    ],
)  # fmt: skip
def test_a_follow_up_about_a_person_is_sure_of_what_stands_beside_the_name(
    question: str, before: str, chance: float
) -> None:
    """Discriminates: the extension of somebody else in the same passage; what the passage does not say."""
    others = [candidate(FILLER[:50], at) for at in range(1, 6)]
    *_, judged = judge(ask(question, before), [*others, candidate(STAFF, 6)], UNSURE)
    assert judged.probability == pytest.approx(chance, abs=0.05)


SPACE = "A parking space in the yard costs £6 per night; the deposit is paid back within one month."
PEOPLE = (
    "| Role | Contact |\n| --- | --- |\n| Coach | coach@arden.example |\n| Harbour master | 01632 960 120 |"
)


@pytest.mark.parametrize(
    ("question", "text", "is_sure"),
    [
        ("What does a parking space in the yard cost per month?", SPACE, False),
        ("What does a parking space in the yard cost per night?", SPACE, True),
        ("What does a parking space in the yard cost for three days?", SPACE, True),
        ("What does a parking space in the yard cost?", SPACE, True),
        ("What does a parking space in the yard cost for half an hour?", SPACE, True),
        ("parking space in the yard, paid back within a month?", "A space in the yard is paid back.", True),
        ("会议室一个月多少钱", "会议室每小时 50 元。", False),
        ("会议室每小时多少钱", "会议室每小时 50 元。", True),
        ("2025 年度的会议室补贴差多少钱", "会议室每小时补贴 50 元。", True),
        ("Is entry free for students?", "Entry is free for children.", False),
        ("Is entry free for students?", "Entry is free for everyone.", True),
        ("Is entry free for pensioners?", "Entry is reduced for people over 65.", True),
        ("my child lost the entry card", "Lost entry cards cost £5.", True),
        ("儿童入场收费吗", "入场收费：老年人半价。", False),
        ("What is the phone number of the coach?", PEOPLE, False),
        ("What is the phone number of the harbour master?", PEOPLE, True),
        ("What is the phone number of the pizzeria?", "The pizzeria is 300 metres along the shore.", False),
        ("What is the phone number of the pizzeria?", "The pizzeria: 01632 960 144.", True),
        ("What is the phone number of the reception?", "Reception: dial 144.", True),
        ("email address of the harbour master", PEOPLE, False),
        ("How old is the harbour master?", f"{PEOPLE}\nAnyone may ask.", False),
        ("How much is the sauna per visit?", "Times: the sauna costs €9 a month.", False),
    ],
)
def test_a_passage_about_other_periods_people_or_forms_than_the_questions_is_not_sure(
    question: str, text: str, is_sure: bool
) -> None:
    """Discriminates: a price per night for one per month, a child's entry for a student's, an address for a
    telephone number; what is due within a month being a price per month, the asker's child being asked
    about, the number of another row."""
    certain = replace(UNSURE, together=Together(3.0, 1.0, 0.0, 0.0))
    (judged,) = judge(ask(question), [candidate(text, 1)], certain)
    assert (judged.probability >= SURE) is is_sure
    assert judged.probability > MIN_NAMED  # never refused for it


STAFF_TABLE = "| Role | Name | Fee |\n| --- | --- | --- |\n| Coach | Ida Wells | £20 per hour |"
PIANO = "The piano may be used free of charge. Tuning the piano is £70 and takes two hours."
DRILLS = "Fire drills are held twice a year."
MEETING = "Minutes of the meeting of members, 9 November 2025."
TICKETS = "Come in the evening if you have a ticket for it.\n\n| Kind | € |\n| --- | --- |\n| Family | 29 |"
CARTS = "独轮车共 6 辆，先到先用。\n\n公共厨房每小时 30 元。"


@pytest.mark.parametrize(
    ("question", "text", "is_sure"),
    [
        ("who tunes the piano", PIANO, False),
        ("who tunes the piano", f"{PIANO} It is done by Ida Wells.", True),
        ("who tunes the piano", f"{PIANO} Order it from the caretaker.", True),
        ("May people who play well use the piano?", PIANO, True),
        ("Who can use the piano?", PIANO, True),
        ("堆肥讲座是谁讲的", "堆肥讲座每季度一次，免费。", False),
        ("堆肥讲座是谁讲的", "堆肥讲座每季度一次，由鲁师傅主讲。", True),
        ("when is the next fire drill", DRILLS, False),
        ("when is the next fire drill", f"{DRILLS} The next one is on 3 May.", True),
        ("When is the next meeting of members?", MEETING, False),
        ("When is the next meeting of members?", MEETING.replace("2025", "2027"), True),
        ("When was the meeting of members?", MEETING, True),
        ("When is there a fire drill?", "Fire drills: leave by the side door.", False),
        ("how many fire drills are there", "Fire drills take 20 minutes and cost £30.", False),
        ("how many fire drills are there", "There are three fire drills.", True),
        ("how many fire drills are there", "There are at most eighteen fire drills.", True),
        ("How many days do fire drills take?", "Fire drills take a day.", True),
        ("露营地能搭多少顶帐篷", "露营：帐篷每顶每晚 80 元。", False),
        ("露营地能搭多少顶帐篷", "露营：可搭 20 顶帐篷，每顶每晚 80 元。", True),
        ("独轮车多少钱一辆", CARTS, False),
        ("公共厨房多少钱", CARTS, True),
        ("how much is a family ticket for the evening", TICKETS, True),
        ("What fine do I get for smoking?", "Smoking is not allowed in the hall. Leave by 9.", False),
        ("What fine do I get for smoking?", "Smoking is not allowed in the hall: it costs £40.", True),
        ("how much does the piano cost per week", f"{PIANO} The yard is £5 per week.", True),
        ("How much does the coach cost per week?", f"{STAFF_TABLE}\n\nBook a week ahead.", False),
        ("How much does the coach cost per hour?", f"{STAFF_TABLE}\n\nBook a week ahead.", True),
        ("how much is a gold crown", "| Crown | £480 |\n| --- | --- |\n| Steel crown | £120 |", False),
        ("how much is a steel crown", "| Crown | £480 |\n| --- | --- |\n| Steel crown | £120 |", True),
        ("教练工资多少", "教练：课时费每小时 80 元。", False),
        ("教练工资多少", "教练工资每月 8000 元。", True),
        ("Who is the stage manager for Hamlet?", "Hamlet, main stage, director Ida Wells.", False),
        ("Who is the director of Hamlet?", "Hamlet, main stage, director Ida Wells.", True),
    ],
)
def test_a_passage_without_the_kind_of_thing_asked_for_beside_its_subject_is_not_sure(
    question: str, text: str, is_sure: bool
) -> None:
    """Discriminates: the fee of a piano tuner for his name, the last meeting for the next, a price for a
    number; the hourly price of one row with a week in another sentence; who as a relative pronoun."""
    query = replace(ask(question), asked="2026-11-30")
    (judged,) = judge(query, [candidate(text, 1)], replace(UNSURE, together=Together(3.0, 1.0, 0.0, 0.0)))
    assert (judged.probability >= SURE) is is_sure
    assert judged.probability > MIN_NAMED  # never refused for it


def test_a_sure_passage_with_the_period_ranks_before_one_without() -> None:
    """Discriminates: lowering all, so that the price per night still comes first."""
    passages = [candidate(SPACE, 1, 0.9), candidate("A parking space costs £80 per month.", 2, 0.85)]
    query = ask("What does a parking space cost per month?")
    nightly, monthly = judge(query, passages, replace(UNSURE, together=Together(3.0, 1.0, 0.0, 0.0)))
    assert nightly.probability < SURE <= monthly.probability
