"""What a person says that should be remembered, recognised by rule in Chinese and English: explicit requests
(「记住：…」, "remember that …", 「忘掉…」, "forget …"), and the plainest statements about oneself: name,
department, role, place.

A rule that misses a statement costs little: a model may still propose it. One that takes 「我叫他来」 for a
name is wrong forever. So every rule requires a whole clause and lists what must not occur in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from core.memory.record import MAX_CONTENT_CHARS, MemoryDraft, MemoryType
from core.text import fold_width, is_mostly_chinese

ASKS_ZH = re.compile(
    r"[?？]|[吗呢么]\s*$|怎么|怎样|如何|什么|哪[些个里儿一种]|多少|几[个点次天]|谁|哪$|为何|是不是|是否"
    r"|能不能"
)
_ASKING = re.compile(r"[?？]\s*$")
_END = r"\s*[。.!！~～]*\s*$"
_POLITE_ZH = r"(?:请|麻烦你?|帮我|帮忙|拜托|你要?|您|务必|一定要?|我(?:想|要|希望)让?(?=你))"
_POLITE_EN = (
    r"(?P<polite>(?:please )?(?:(?:can|could|will|would) you |i(?:['’]d| would) like you to "
    r"|i (?:want|need) you to )?)(?:please )?"
)
_REMEMBER_ZH = re.compile(
    rf"^\s*(?P<polite>{_POLITE_ZH}*)(?:记住|记一下|记下来?)(?P<mark>\s*[:：，,]\s*|\s+)?(?P<what>.+?){_END}",
    re.S,
)
_ABOUT_ME_ZH = re.compile(r"^(?:我|本人|以后|今后|从现在起)")
_REMEMBER_EN = re.compile(
    rf"^\s*{_POLITE_EN}(?:remember|keep in mind|note|make a note)"
    r"(?: that|(?= (?:i|i'm|my|we|our|to always|to never|always|never)\b)"
    rf"|\s*:)\s*(?P<what>.+?){_END.replace('!！', '!！?')}",
    re.I | re.S,
)
_NOT_A_FACT_EN = re.compile(
    r"^(?:time|day|one time|night|when|what|how|who|where|why|thing|guy|movie|for (?:me|us|later|next))\b"
    r"|^(?:my|our) [\w'’-]+$",  # without a value
    re.I,
)
_FORGET_ZH = re.compile(
    rf"^\s*{_POLITE_ZH}*(?:(?:忘掉|忘记|删掉)\s*[:：]\s*|(?:{_POLITE_ZH}+忘记|忘掉|别再记着?)\s*"
    rf"(?=我(?:的|叫|是|住|在|喜欢|不|对|说过)|关于)"
    # Without 请, this may say what somebody forgot.
    rf"|忘记(?=我(?:的|叫|是|住|喜欢|对))(?!.*(?:密码|口令|账号|证|卡|钥匙)))"
    rf"(?:关于)?(?P<what>.+?(?<!了))(?:这件事|的事情?|的记忆)?{_END}",
    re.S,
)
_NOT_OF_A_PERSON = (  # of the talk, or of a document
    r"(?:it|that|this|them|him|h(?:er|is)|us|me|you|your|our|their|those|these|the|an?|all|any\w*|every\w*"
    r"|some\w*|what|how|when|where|why|who|which|whether|if)\b"
)
_FORGET_EN = re.compile(
    rf"^\s*{_POLITE_EN}forget(?:\s*:\s*| that (?=(?:i|i['’]m|my|we|our)\b)| about (?=my\b)"
    rf"| about (?!{_NOT_OF_A_PERSON})(?=[\w'’-]+(?: (?!please)[\w'’-]+){{0,2}}(?:,? please)?{_END})"
    rf"| what you know about | (?=my\b))(?P<what>.+?)(?:,? please)?{_END}",
    re.I | re.S,
)
_MY_ALL = re.compile(
    r"(?:everything|all)(?: that)? you (?:know|remember|have (?:stored|remembered))(?: about me)?"
    r"|everything about me|all (?:of )?(?:(?:my|your|the) )?memories(?: (?:of|about) me)?"
    r"|(?:(?:你|记住的?|记得的?|知道的?|所有|全部)*(?:关于|有关))?我的(?:一切|所有|全部)(?:事情?|信息|记忆)?"
    r"|(?:你|记住的?|记得的?|知道的?|所有|全部)*(?:关于|有关)我的(?:事情?|信息|记忆)?"
    r"|(?:你的|关于我的)?(?:所有|全部)的?记忆",
    re.I,
)
_ALL = re.compile(r"everything|it all|一切|所有(?:的?事情?)?|全部", re.I)
_FORGET_ALL = re.compile(
    rf"^\s*(?:{_POLITE_ZH}?(?:(?P<drop>删除|删掉|清空|清除)|忘掉|忘记|忘了)|{_POLITE_ZH}?把(?=.+(?:忘|删)[掉了除记])"
    r"|(?:please |can you |could you )?(?:(?P<erase>delete|erase|clear)|forget)(?: about)? )"
    rf"(?P<what>.+?)(?:(?:都|全)?(?:忘|删)[掉了除记])?吧?{_END}",
    re.I,
)
_OF_THE_TALK_EN = re.compile(
    r"\b(?:last|previous|earlier|first|above) |\b(?:question|message|request|instructions?|prompt|password"
    r"|keys)\b", re.I
)  # fmt: skip
_SENTENCE_CONTINUES = re.compile(r"[。！？!?\n]\s*\S|\.\s+\S")


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """`forget`: the opposite of remembering. `whole`: the message is nothing but this request."""

    content: str
    forget: bool = False
    whole: bool = True


def explicit_request(text: str) -> MemoryRequest | None:
    """Return what the message asks, in plain words, to remember or to forget; None for anything else."""
    if len(text) > 2 * MAX_CONTENT_CHARS:
        return None
    return _forget_all(text) or _forget(text) or _remember_zh(text) or _remember_en(text)


class Extent(StrEnum):
    """What "everything" in a request to forget means: what is known about the person, or maybe only what was
    said in the conversation."""

    MEMORIES = "memories"
    UNCLEAR = "unclear"


def everything(words: str) -> Extent | None:
    """Return what these words, which are to be forgotten, mean as a whole; None if they name something."""
    if _MY_ALL.fullmatch(words):
        return Extent.MEMORIES
    return Extent.UNCLEAR if _ALL.fullmatch(words) else None


def _forget_all(text: str) -> MemoryRequest | None:
    match = _FORGET_ALL.match(text)
    extent = everything(match["what"]) if match else None
    if match is None or extent is None or (extent is Extent.UNCLEAR and (match["drop"] or match["erase"])):
        return None
    return MemoryRequest(match["what"], forget=True)


def _forget(text: str) -> MemoryRequest | None:
    match = _FORGET_ZH.match(text) or _FORGET_EN.match(text)
    if (
        match is None
        or ASKS_ZH.search(text)
        or _OF_THE_TALK_EN.search(text)
        or _SENTENCE_CONTINUES.search(text)
    ):
        return None
    return MemoryRequest(match["what"].strip(), forget=True)


def _remember_zh(text: str) -> MemoryRequest | None:
    match = _REMEMBER_ZH.match(text)
    if match is None:
        return None
    what, marked = match["what"].strip(), bool((match["mark"] or "").strip())
    goes_on = _SENTENCE_CONTINUES.search(what)
    whole = goes_on is None or (marked and not _ASKING.search(text))
    content = what[: goes_on.start()] if goes_on and not whole else what
    if what.startswith(("了", "过")) or content in ("我", "吧") or (whole and _ASKING.search(text)):
        return None
    if not marked and (ASKS_ZH.search(content) or not (match["polite"] or _ABOUT_ME_ZH.match(content))):
        return None
    return MemoryRequest(content, whole=whole)


def _remember_en(text: str) -> MemoryRequest | None:
    match = _REMEMBER_EN.match(text)
    if match is None or _NOT_A_FACT_EN.match(match["what"]):
        return None
    what = match["what"].strip()
    goes_on = _SENTENCE_CONTINUES.search(what)
    if goes_on:
        return MemoryRequest(what[: goes_on.start()], whole=False)
    if _ASKING.search(text) and not (match["polite"] or "").lower().endswith("you "):
        return None
    return MemoryRequest(what)


_DECLINES_ZH = re.compile(
    r"(?<![我们])(?:不要|(?<![特个分区级性])别|不用|不必|不许|[无不](?:需要?|须))(?:再|帮我|替我|给我)?"
    r"(?:把[^，,。]{1,8}?)?(?:记(?:住|下来?|录)?(?![错混反岔恨仇得忆性账者载]|不)|存(?:下来?|储)|保存)"
)
_DECLINES_EN = re.compile(
    r"(?:^|[,.;:!?(\n]\s*|\b(?:please|but|and|so) )(?:never|do not|don['’]t"
    r"|(?:there(?: is|['’]s) )?no need to|(?:you )?(?:do not|don['’]t) (?:need|have) to"
    r"|(?:you )?need(?: not|n['’]t)) (?:remember\b(?! (?:if|whether|when|where|who|how|why|what)\b)"
    r"|(?:memori[sz]e|store|save|keep|record|note)\b(?: down)? (?:this|that|it|any|what i|my|the following)"
    r"\b)|\boff the record\b",
    re.I,
)


def declines(text: str) -> bool:
    """Whether the message asks not to be remembered: then nothing is learned from it, by rule or model."""
    return bool(_DECLINES_ZH.search(text) or _DECLINES_EN.search(text))


_LASTING = re.compile(
    r"以后|今后|从现在起|总是|每次|一律|不要再?|别再?|请用|\b(?:always|never|from now on|don't|do not|in "
    r"future)\b",
    re.I,
)
_OF_ANSWERS = re.compile(
    r"^(?:请|要)?用.{1,8}?(?:回答|回复|答复)|^(?:回答|回复|答复)(?:我?时|要|请|尽量|得)"
    r"|我(?:更?喜欢|偏好|更?希望|想要|要).{0,10}(?:回答|回复|答复)我?[。.!！]?$"
    r"|^(?:please |to )?(?:answer|reply|respond)(?: to me| me)? (?:in|with|briefly|shortly)\b"
    r"|\bi(?: would|['’]d)? (?:prefer|like|want)\b.*\b(?:answers|replies|responses)\b",
    re.I,
)
_WISH = re.compile(
    r"喜欢|偏好|更愿意|最爱|讨厌|\b(?:prefers?|likes?|loves?|hates?|dislikes?|favou?rite)\b", re.I
)


def type_of(content: str) -> MemoryType:
    """Classify what a person asked to remember, by its words."""
    if _LASTING.search(content) or _OF_ANSWERS.search(content):
        return MemoryType.INSTRUCTION
    return MemoryType.PREFERENCE if _WISH.search(content) else MemoryType.FACT


# Statements about oneself.

_QUOTATION = re.compile('“[^”]*”|「[^」]*」|『[^』]*』|"[^"]*"')  # may hold several sentences
_QUOTED = re.compile("[「」『』“”\"《》]|(?<![\\w])['‘]|['’](?![\\w])")
_SUPPOSED = re.compile(
    r"^\s*(?:如果|假如|要是|假设|假使|倘若|若|就算|即使|万一|想象|设想|比如|例如|譬如|当我?|他说|她说|有人"
    r"|在?(?:小说|故事|游戏|梦|剧本?)[里中]|(?:if|suppose|imagine|say|pretend|assum(?:e|ing)|when|for example"
    r"|e\.g|let(?:'s| us) say|in (?:my|the|a|this) (?:novel|story|game|dream|book)|what if|as if|he said|she "
    r"said|they)\b)",
    re.I,
)
# What follows is a text to work on, not a statement about anybody.
_OF_A_TEXT = re.compile(
    r"翻译(?:成|一下|下|这|以下|[:：，,])|译成|造句|改写|润色|例句"
    r"|\b(?:translate|rephrase|proofread|this sentence)\b",
    re.I,
)
_SENTENCE = re.compile(r"[^。！？!?\n]+[。！？!?\n]?")
_SUBJECTLESS_EN = r"(?:now |currently )?(?:live in|moved to|work (?:in|for|at|as))\b"
_AND = re.compile(rf"(?:^|\s+)and\s+(?=(?:i|i['’]m|my)\b|{_SUBJECTLESS_EN})", re.I)
_SUBJECTLESS = re.compile(
    rf"(?P<joint>也|还|并且?|而且)?(?P<zh>(?:现在|目前)?(?:住在|家在|搬到|搬家到|是|在|改名?叫))|{_SUBJECTLESS_EN}",
    re.I,
)
# The subject of what follows is uncertain: "with people who sing and live in Rome".
_OF_OTHERS = re.compile(r"\b(?:who|whose|which|that|with|like|people|friends?|parents)\b", re.I)
# Between two statements, these do not change the subject.
_ASIDE = re.compile(
    r"(?:你好|您好|大家好|嗨|hi|hello|hey|(?:我?今年)?\d{1,3}岁了?|(?:i am|i['’]m) \d{1,3}(?: years old)?)$",
    re.I,
)
_MOVED_ZH = re.compile(r"(?:现在|目前)?(?:住在|家在|搬到|搬家到)")
_NOT_OF_PLACES = "的我你他她它们谁吗呢吧叫是想要不很比好贵便可应该没更太最等时候后之边行年月周话"
_PLACE_ALONE = re.compile(
    rf"(?:住在|家在|到)了?(?:[^\W{_NOT_OF_PLACES}]{{2,4}}|[^\W{_NOT_OF_PLACES}]{{2,10}}[省市区县镇村州路街岛]"
    r"|[A-Z][\w '-]*)了?$"
)
_CLAUSE = re.compile(r"[，,；;：:]|\.(?=\s|$)")
_HELLO = r"(?:你好|您好|大家好|嗨|hi|hello|hey)?\s*"
_FROM_ZH = r"(?:其实|从(?:今天|现在)(?:起|开始)|以后|今后)?"
_SURNAMES = (
    "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张孔曹严华金魏陶姜戚谢邹喻柏窦章云苏潘葛奚范彭郎鲁韦马苗凤"
    "方俞任袁柳唐罗薛伍余米贝姚孟顾尹江钟徐邱骆高夏蔡田樊胡凌霍虞万支柯管卢莫房缪解应宗丁宣邓郁单洪包左石崔吉"
    "龚程邢裴陆荣翁荀羊惠甄曲封储靳段富焦巴牧谷车侯宁仇甘武刘景龙叶幸司黎薄白怀蒲从卓蔺屠蒙池乔谭贺赖温庄"
    "晏柴瞿阎连习艾向古易廖庾居衡步耿满匡文寇广东欧沃利蔚越师巩聂晁敖冷辛阚简饶曾沙丰关游岳梅常伊黄林郭梁宋"
    "董于肖史钱齐闵倪汪雷毛祝"
)
_CHINESE_NAME = rf"(?:欧阳|上官|司马|诸葛|[{_SURNAMES}]|[小老阿大])[\u4e00-\u9fff·]{{1,3}}?"
_LATIN_NAME = r"[A-Z][\w'’-]*(?: [A-Z][\w'’.-]*){0,3}"
_NOT_A_NAME = re.compile(
    r"[他她它你您谁不没去了过着吗呢吧啊就来帮们个车]|什么|外卖|老师|师傅|经理|医生|先生|女士|大家|老板$"
    r"|^大[^\u4e00-\u9fff]?$"
)
_NOT_A_LATIN_NAME = re.compile(
    r"^(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|Tomorrow|Today|Later|Back|Not|Now|Maybe"
    r"|When|If|"
    r"A|An|The|Crazy|On|In|At|What|Who|Uber|Taxi|Train|Bus|Car|Bike|Bicycle)\b"
)
_UNIT = r"(?:部门?|组|团队|中心|科室?|办公室|事业部|分公司|公司|学院|医院)"
_NOT_A_UNIT = re.compile(r"^(?:问|说|想|找|要|从|被|去|来|给|替|帮|不|谁|哪|什么|这个?|那个?)")
_ROLE_END = r"(?:师|员|生|家|经理|主管|总监|助理|负责人|顾问|专员|会计|律师|司机|厨师|护士|教授|医生)"
# 小 or 老 plus one character that forms no word with it: not 小白, not 老广.
_NICKNAME = (
    "[小老][王李张刘陈杨赵周吴徐孙朱胡郭林何罗郑梁谢宋唐许邓韩冯曹彭"
    "曾肖田董潘袁蔡蒋余于杜程魏吕丁沈姚卢傅钟谭]"
)
_ROLE_EN = (
    r"an? (?:[a-z]+[ -]){0,3}[a-z]*(?:er|or|ist|ian|ant|ent|ect|nurse|cook|chef|clerk|pilot|guide|guard|judge"
    r"|coach|vet)"
)
_PLACE = r"[\u4e00-\u9fff]{2,12}?|[A-Z][\w '-]{1,30}"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            rf"^{_HELLO}{_FROM_ZH}(?:我(?:现在|已经|后来)?(?:改名?)?叫做?|我名叫|我(?:已经)?改名[为成]"
            rf"|我的?(?:名字|姓名)(?:是|叫|改[为成叫])|(?:我?(?:现在|已经|以后))?改名?叫"
            rf"|(?:以后|今后|请|就|你可以|可以)*叫我)\s*(?P<name>{_CHINESE_NAME}|{_LATIN_NAME})(?:了|吧"
            rf"|就行了?|就好|就可以了?|好了)?$"
        ),
        "用户的名字是{}",
    ),
    (re.compile(rf"^{_HELLO}我就?是(?P<name>{_NICKNAME})$"), "用户的名字是{}"),
    (re.compile(rf"^{_HELLO}我?(?:现在)?(?:是"
                rf"|在)(?P<unit>[\u4e00-\u9fffA-Za-z0-9]{{1,12}}{_UNIT})(?:的(?:员工|同事|人)?|工作|上班"
                rf"|任职)$"), "用户的部门是{}"),
    (re.compile(rf"^{_HELLO}我?是(?:一名|一位|一个)(?P<role>[\u4e00-\u9fffA-Za-z]{{0,12}}{_ROLE_END})$"),
    "用户的职位是{}"),
    (re.compile(rf"^{_HELLO}我(?:现在|目前)?(?:住在|家在|搬到了?|搬家到了?)(?P<place>{_PLACE})了?$"),
    "用户住在{}"),
    (re.compile(rf"^(?i:{_HELLO}(?:from now on |actually )?(?:my name(?: is|'s|’s)(?: now)?|(?:(?:please"
                rf"|you can|just) )*call me|(?:i am|i'm|i’m) (?:now )?called|i go by|i(?:'ve|’ve| have)? "
                rf"changed my name to)) (?P<name>{_LATIN_NAME})(?i: (?:and|now|please|from now on)\b.*)?$"),
                "The user's name is {}"),
    (re.compile(rf"^{_HELLO}(?:i (?:now )?work (?:in|for|at)|i am (?:in|from)|i'm (?:in|from)|i’m (?:in"
                rf"|from)) (?:the )?(?P<unit>[\w& ]{{2,30}}? (?:department|team|office|group))(?: and\b.*)?$",
                re.I), "The user's department is the {}"),
    (re.compile(rf"^{_HELLO}i (?:now |currently )?work as (?P<role>{_ROLE_EN})(?: (?:and|now|in|at|for|with"
                rf"|since)\b.*)?$", re.I), "The user works as {}"),
    (re.compile(rf"^(?i:{_HELLO}i(?:'ve|’ve| have)? (?:now |currently )?(?:live in|moved to)) (?P<place>"
                rf"{_LATIN_NAME})(?i: (?:and|now|with|but|since|for)\b.*)?$"), "The user lives in {}"),
)  # fmt: skip


def self_statements(text: str) -> list[MemoryDraft]:
    """Return what the message plainly says about its writer: name, department, role, place. Nothing from
    questions, quotations, suppositions, or statements about others."""
    if len(text) > 4 * MAX_CONTENT_CHARS or _OF_A_TEXT.search(text) or declines(text):
        return []
    return [
        MemoryDraft(content) for content in dict.fromkeys(_statements(_QUOTATION.sub("“”", fold_width(text))))
    ]


def is_introduction(text: str) -> bool:
    """Whether the message is nothing but such statements, with a greeting or the like before them."""
    sentences = (sentence.strip(" 。.！!~～\n") for sentence in _SENTENCE.findall(text))
    clauses = (_AND.split(clause.strip()) for each in sentences for clause in _CLAUSE.split(each))
    plain = [part for part in filter(None, chain.from_iterable(clauses)) if not _ASIDE.match(part)]
    return bool(plain) and len(self_statements(text)) == len(plain)


def _statements(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.findall(text):
        if sentence.rstrip().endswith(("?", "？")) or _QUOTED.search(sentence) or _SUPPOSED.match(sentence):
            continue
        clauses = [clause.strip().rstrip(".!~～ ") for clause in _CLAUSE.split(sentence.rstrip("。！!\n"))]
        if any(ASKS_ZH.search(clause) and is_mostly_chinese(clause) for clause in clauses[:1]):
            continue
        yield from _of_one_sentence(clauses)


def _of_one_sentence(clauses: Sequence[str]) -> Iterator[str]:
    """Let a clause without a subject, or after "and", continue the preceding statement; if that was about
    others, it may be, too ("they think I am late and I live in Rome", 「我朋友叫小李，住在苏州」)."""
    before: str | None = None  # the last statement; "" if something else followed it
    for clause in clauses:
        for at, part in enumerate(filter(None, _AND.split(clause))):
            if not before and (at or clause[:4].lower() == "and "):
                break
            stated = list(_stated(_with_subject(part, before)))
            yield from stated
            if stated or not _ASIDE.match(part):
                before = part if stated else ""


def _with_subject(part: str, before: str | None) -> str:
    """Supply the subject; "" if it lacks one and nothing shows that it is the writer."""
    match = _SUBJECTLESS.match(part)
    if match is None or before is None:
        return part
    if not before or _OF_OTHERS.search(before):
        return ""
    if not match["zh"]:
        return f"I {part}"
    rest = part[len(match["joint"] or "") :]
    return f"我{rest}" if _PLACE_ALONE.search(rest) or not _MOVED_ZH.match(rest) else ""


def _stated(clause: str) -> Iterator[str]:
    for pattern, form in _RULES:
        match = pattern.match(clause)
        if match is None:
            continue
        kind, value = next((name, each) for name, each in match.groupdict().items() if each)
        if _is_value(kind, value.strip()):
            yield form.format(value.strip())
            return


def _is_value(kind: str, value: str) -> bool:
    latin = value.isascii()
    if latin and not value[:1].isupper() and kind not in ("unit", "role"):
        return False
    if kind == "name":
        words = value.split()
        return not (_NOT_A_LATIN_NAME.match(value) if latin else _NOT_A_NAME.search(value)) and all(
            word[:1].isupper() for word in words if latin
        )
    return not (_NOT_A_UNIT.match(value) if kind == "unit" else ASKS_ZH.search(value))
