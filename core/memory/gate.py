"""The write gate: code decides what may be remembered; a model only proposes.

If possible, a memory is read as a statement of one kind (the name, the place, a number, a liking, …): two
with the same kind and value are one fact, two with the same kind and different values cannot both be true.
All others are compared by likeness and words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.memory.record import MAX_CONTENT_CHARS, Memory, MemoryDraft
from core.relevance.sparse import question_terms, terms
from core.text import fold_case, fold_width, is_mostly_chinese


class Refusal(StrEnum):
    """Why something is not remembered; counted under this name."""

    EMPTY = "empty"
    TOO_LONG = "too_long"
    SECRET = "secret"  # noqa: S105 - a reason
    NOT_ABOUT_PERSON = "not_about_person"
    PASSING = "passing"
    NO_SOURCE = "no_source"
    UNSUPPORTED = "unsupported"
    TOO_MANY = "too_many"
    UNREADABLE = "unreadable"


# Kinds of statements.

NAME = "name"
_ATTRIBUTES = {
    NAME: "名字 姓名 称呼 名称 name first_name full_name preferred_name",
    "department": "部门 团队 小组 科室 department team group",
    "role": "职位 岗位 职业 职务 工作 job job_title role position title occupation profession",
    "place": "住址 地址 家庭住址 居住地 居住城市 城市 所在地 所在城市 address city home home_city residence "
             "hometown place location",
    "employer": "公司 单位 雇主 employer company",
    "phone": "电话 手机 手机号 手机号码 电话号码 联系电话 phone phone_number mobile mobile_number telephone",
    "email": "邮箱 邮件地址 电子邮箱 email email_address e-mail",
    "age": "年龄 岁数 age",
    "desk": "工位 工位号 座位 座位号 desk desk_number seat seat_number",
    "manager": "主管 上级 领导 上司 老板 经理 manager boss supervisor line_manager",
    "extension": "分机 分机号 extension extension_number",
    "birthday": "生日 出生日期 birthday date_of_birth birth_date",
}  # fmt: skip
_SLOT_OF = {word.replace("_", " "): slot for slot, words in _ATTRIBUTES.items() for word in words.split()}
# A person may have several of these: another one does not end the first.
_SEVERAL = re.compile(
    r"孩子|儿子|女儿|同事|朋友|爱好|兴趣|技能|项目|过敏|宠物|客户|语言|兄弟|姐妹|哥哥|姐姐|弟弟|妹妹|任务"
    r"|目标|计划|"
    r"\b(?:child(?:ren)?|kids?|sons?|daughters?|colleagues?|friends?|hobb(?:y|ies)|interests?|skills?"
    r"|projects?|"
    r"allerg(?:y|ies)|pets?|clients?|languages?|brothers?|sisters?|tasks?|goals?|plans?)$",
    re.I,
)
_PERSON = re.compile(
    r"^(?:(?P<zh>用户|我(?!们)|本人)|(?P<of>the user['’]s|user['’]s|my)\s+|(?:the user|user"
    r"|i(?:['’]m\b)?)(?=\s|['’])\s*)",
    re.I,
)
_ZH_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(?:现在|已经|已)?(?:改名?)?叫做?(?P<v>.+)$"), NAME),
    (re.compile(r"^(?:现在|目前|已)?(?:居?住在|住|搬到了?|家在)(?P<v>.+?)了?$"), "place"),
    (re.compile(r"^(?:是|在|属于|来自|调到了?)(?P<v>.{1,16}?(?:部门?|组|团队|科室?))(?:的(?:员工|同事|人)?"
                r"|工作|上班)?$"), "department"),
    (re.compile(r"^在(?P<v>.{2,20}?)(?:工作|上班|任职|就职)$"), "employer"),
    (re.compile(r"^是(?:一名|一位|一个)(?P<v>.+)$"), "role"),
    (re.compile(r"^(?:今年)?(?P<v>\d{1,3})岁$"), "age"),
    (re.compile(r"^毕业于(?P<v>.+)$"), "school"),
    (re.compile(r"^(?:每天)?(?:坐|骑|开|乘)(?P<v>.{1,8}?)(?:上班|去公司|通勤)$"), "commute"),
)  # fmt: skip
_EN_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(?:is |am )?(?:now )?(?:called|named|goes by|go by) (?P<v>.+)$", re.I), NAME),
    (re.compile(r"^(?:now |currently )?(?:lives? in|moved to|resides? in|is based in|am based in)(?P<v>.+)$",
    re.I), "place"),
    (re.compile(r"^works? (?:in|for) (?:the )?(?P<v>.+ (?:department|team|group))$", re.I), "department"),
    (re.compile(r"^works? (?:at|for) (?P<v>.+)$", re.I), "employer"),
    (re.compile(r"^(?:works? as|is|am) an? (?P<v>[\w -]{3,40})$", re.I), "role"),
    (re.compile(r"^(?:is|am) (?P<v>\d{1,3})(?: years old)?$", re.I), "age"),
    (re.compile(r"^graduated from (?P<v>.+)$", re.I), "school"),
    (re.compile(r"^(?:commutes?|(?:gets?|goes?) to work) by (?P<v>.+)$", re.I), "commute"),
)  # fmt: skip
_ZH_ATTRIBUTE = re.compile(
    r"^(?:现在|目前)?(?:的|(?P<verb>[^的是，,。]{1,6}的))(?P<a>[^是为叫：:，,。]{1,14}?)"
    r"(?:现在|已经|已)?(?:改为|改成|变成|换成了?|是|为|叫|：|:)(?P<v>.+)$"
)
_EN_ATTRIBUTE = re.compile(
    r"^(?P<a>[\w' -]{2,40}?) (?:is now|is called|is|are|was changed to|:) (?P<v>.+)$", re.I
)
# Recurring events: "has yoga every Tuesday".
_RECURS = re.compile(
    r"^每(?:个?月|周|星期)(?P<v>[一二三四五六日天\d]+号?)(?P<a>.{1,8})$|^has (?:a |an "
    r")?(?P<a2>[\w -]{2,30}?) every (?P<v2>.+)$",
    re.I,
)
_LIKES_ZH = re.compile(
    r"^(?P<no>不太?|没那么)?(?:很|非常|特别|最|更)?(?P<verb>喜欢|爱吃|爱喝|爱|喜爱|偏好|讨厌|厌恶|吃"
    r"|喝)(?P<v>.+)$"
)
_LIKES_EN = re.compile(
    r"^(?P<no>do(?:es)? not |do(?:es)?n['’]t |no longer )?(?:really |also )?(?P<verb>likes?|loves?|enjoys?"
    r"|prefers?|hates?|dislikes?) (?P<v>.+)$",
    re.I,
)
_AVERSE = ("讨厌", "厌恶", "hate", "hates", "dislike", "dislikes")


@dataclass(frozen=True, slots=True)
class Statement:
    """`slot` is the kind ("name", "place", an attribute's own word, "like:tea"), `value` what is said about
    it. `single`: another value cannot be true at the same time. `attribute` is the word for the kind as it
    occurs in the text, "" if a verb expresses it."""

    slot: str
    value: str
    single: bool = True
    attribute: str = ""


def statement_of(content: str) -> Statement | None:
    """Return None if it is of no known kind."""
    text = " ".join(content.split()).rstrip("。.!！")
    person = _PERSON.match(text)
    if person is None:
        return None
    rest = text[person.end() :].strip()
    return (
        _liking(rest)
        or _recurring(rest)
        or (_chinese(rest) if person["zh"] else _english(rest, owned=bool(person["of"])))
    )


def slot_named(attribute: str) -> str:
    """Return the kind that a word stands for, or the word itself if the kind is unknown."""
    word = " ".join(fold_case(attribute).split())
    return _SLOT_OF.get(word, word)


def _liking(rest: str) -> Statement | None:
    match = _LIKES_ZH.match(rest) or _LIKES_EN.match(rest)
    if match is None or (match["verb"] in ("吃", "喝") and not match["no"]):
        return None
    negative = bool(match["no"]) != (match["verb"].lower() in _AVERSE)
    return Statement(f"like:{_plain(match['v'])}", "no" if negative else "yes")


def _recurring(rest: str) -> Statement | None:
    match = _RECURS.match(rest)
    if match is None:
        return None
    return Statement(f"every:{_plain(match['a'] or match['a2'])}", _plain(match["v"] or match["v2"]))


def _chinese(rest: str) -> Statement | None:
    return _by_form(rest, _ZH_FORMS) or _attribute(_ZH_ATTRIBUTE.match(rest))


def _english(rest: str, *, owned: bool) -> Statement | None:
    return _attribute(_EN_ATTRIBUTE.match(rest)) if owned else _by_form(rest, _EN_FORMS)


def _by_form(rest: str, forms: Sequence[tuple[re.Pattern[str], str]]) -> Statement | None:
    for pattern, slot in forms:
        if match := pattern.match(rest):
            return Statement(slot, _plain(match["v"]))
    return None


def _attribute(match: re.Match[str] | None) -> Statement | None:
    if match is None:
        return None
    verb = match.groupdict().get("verb") or ""
    slot = f"{verb}{match['a']}" if verb else slot_named(match["a"])
    single = bool(verb) or not _SEVERAL.search(match["a"])
    return Statement(slot, _plain(match["v"]), single, match["a"])


def _plain(value: str) -> str:
    """Remove what does not distinguish two values."""
    return re.sub(r"^(?:the|a|an)\s+|[\s。.,，!！'\"“”「」]+", "", fold_case(value))


# What is refused.

_PASSING = re.compile(
    r"这一?次|本次|当前(?:问题|对话|会话)|刚才|刚刚|此刻|今天(?:想|要|问)|"
    r"^(?:the )?user(?:['’]s)? (?:is (?:asking|looking for|trying|currently)|asks?|asked|wants? to know"
    r"|wanted to know|inquired|"
    r"requests?|requested|thanks?|thanked|greeted|said (?:hello|hi|thanks)|needs? help|question|last message"
    r"|query)|"
    r"\b(?:this time|right now|in this (?:conversation|chat|session)|just now|current(?:ly)? (?:question"
    r"|asking))\b|"
    r"^用户(?:想(?:要)?(?:知道|了解|问)|询问|问[了到过]?|正在(?:问|找|看|等|咨询|询问|了解)|请求|要求(?:总结"
    r"|概括|翻译|解释|列出)"
    r"|希望(?:了解|知道)|感谢|打招呼|咨询|提到[了过]?$|的(?:问题|提问)是)",
    re.I,
)  # fmt: skip
_NUMBER = re.compile(r"\d+(?:\.\d+)?|[二两三四五六七八九十百千万亿]+")
_ASKS = re.compile(
    r"[?？]\s*$|什么|怎么|怎样|如何|哪|多少|几[^乎]|谁|为何|[吗呢]\s*$|是不是|是否|有没有"
    r"|^\s*(?:and |so |but )?(?:what|where|who|whose|which|how|when|why|(?:do|did|am|is|are|was|can|could"
    r"|should|would|will) "
    r"(?:i|my|it|there))\b",
    re.I,
)
_NEGATION = re.compile(r"不|没|无|别|非(?!常)|\b(?:not|no|never|n't|without)\b|n['’]t\b", re.I)
_SOMEBODY = re.compile(
    r"妻子|老婆|丈夫|老公|爱人|妈|爸|母亲|父亲|哥|姐|弟|妹|儿子|女儿|孩子|同事|朋友|老板|经理|室友|同学|邻居"
    r"|客户|"
    r"[他她它](?:们)?|有人|别人|\b(?:wife|husband|mother|father|mom|dad|brother|sister|son|daughter|child"
    r"|colleague|"
    r"friend|boss|manager|roommate|neighbou?r|client|partner|he|she|they|his|her|their|someone|somebody)\b",
    re.I,
)
_UNREAL = re.compile(r"如果|假如|要是|假设|比如|例如|\b(?:if|suppose|imagine|for example|pretend)\b", re.I)
_YES = re.compile(
    r"^\s*(?:对的?|是的?|没错|正确|嗯+|好的?|确实|yes|yep|yeah|right|correct|exactly|that['’]s (?:right"
    r"|correct)|sure|indeed)(?![\u4e00-\u9fffa-z])",
    re.I,
)
SUPPORT = 0.6  # share of a proposal's words, by weight, that its source must have


def refused_always(content: str) -> Refusal | None:
    """Return why this is refused, whoever wants it remembered."""
    if not content.strip():
        return Refusal.EMPTY
    if len(content) > MAX_CONTENT_CHARS:
        return Refusal.TOO_LONG
    return Refusal.SECRET if holds_secret(content) else None


def refused_proposal(content: str, sources: Sequence[str]) -> Refusal | None:
    """Why a model's proposal is refused; `sources` are the person's words in the turns it names."""
    if refusal := refused_always(content):
        return refusal
    if not sources:
        return Refusal.NO_SOURCE
    person = _PERSON.match(content.strip())
    if person is None:
        return Refusal.NOT_ABOUT_PERSON
    if _PASSING.search(content):
        return Refusal.PASSING
    return None if _is_supported(content[person.end() :], sources) else Refusal.UNSUPPORTED


def confirms(text: str) -> bool:
    """Whether this says yes to the preceding message."""
    return bool(_YES.match(text)) and len(text) <= 200


def _is_supported(claim: str, sources: Sequence[str]) -> bool:
    """Whether one source has its words and numbers, said by the person of themselves, not negated."""
    return any(_supports(claim, source) for source in sources)


def _supports(claim: str, source: str) -> bool:
    weights = {term.text: term.weight for term in question_terms(claim) if term.text not in _FRAME}
    numbers = set(_NUMBER.findall(claim))
    if not weights or not numbers <= set(_NUMBER.findall(source)):
        return False
    present = set(terms(source))
    share = sum(weight for term, weight in weights.items() if term in present) / sum(weights.values())
    foreign = is_mostly_chinese(claim) != is_mostly_chinese(source)
    if share < (0.25 if foreign and numbers else SUPPORT):
        return False
    clause = _clause_of(weights, source)
    same_side = bool(_NEGATION.search(clause)) == bool(_NEGATION.search(claim))
    of_others = {each.lower() for each in _SOMEBODY.findall(clause)} - {
        each.lower() for each in _SOMEBODY.findall(claim)
    }
    return same_side and not of_others and not _UNREAL.search(clause) and not _ASKS.search(clause)


_FRAME = frozenset(
    terms(
        "名字 姓名 部门 职位 住址 地址 偏好 用户 user name department role place lives works prefers called "
        "likes"
    )
)


def _clause_of(weights: dict[str, float], source: str) -> str:
    """Return the clause of the source with most of the claim's words."""
    clauses: list[str] = re.findall(r"[^。！？!?\n，,；;]+[。！？!?\n，,；;]?", source) or [source]
    return max(clauses, key=lambda each: sum(weights.get(term, 0.0) for term in set(terms(each))))


# Same, contradicted, or new.

ALIKE_Z = 2.5  # in widths of the embedder's cosines above unrelated texts
ALIKE_WORDS = 0.75
EQUAL_WORDS = 0.9


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A stored memory and how far its cosine to the draft lies above unrelated texts, in widths."""

    memory: Memory
    z: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`same` is the memory that already says it. Otherwise it is new: `ends` are those it replaces;
    `ended_by` is a later one that already superseded it."""

    same: Memory | None = None
    ends: tuple[Memory, ...] = ()
    ended_by: Memory | None = None


def decide(draft: MemoryDraft, neighbours: Sequence[Neighbour]) -> Decision:
    """Compare with the owner's memories, both current and superseded."""
    current = [each for each in neighbours if each.memory.valid_until is None]
    for each in current:
        if is_same(draft.content, each.memory.content, each.z):
            return Decision(same=each.memory)
    contrary = [each.memory for each in current if contradicts(draft.content, each.memory.content)]
    later = [each for each in contrary if each.valid_from > draft.said_us]
    if later:
        return Decision(ended_by=min(later, key=lambda memory: memory.valid_from))
    return Decision(ends=tuple(contrary))


def plain_words(content: str) -> str:
    """Normalise case, width and the full stop."""
    return fold_case(content).strip("。.!！ ")


def is_same(content: str, other: str, z: float | None) -> bool:
    """Whether both say the same: equal numbers and negation, and equal words, or most of them and the
    sense."""
    if plain_words(content) == plain_words(other):
        return True
    one, two = statement_of(content), statement_of(other)
    if one and two and one.slot == two.slot:
        return one.value == two.value
    if set(_NUMBER.findall(content)) != set(_NUMBER.findall(other)):
        return False
    if bool(_NEGATION.search(content)) != bool(_NEGATION.search(other)):
        return False
    shared = _shared_words(content, other)
    return shared >= EQUAL_WORDS or (shared >= ALIKE_WORDS and z is not None and z >= ALIKE_Z)


def contradicts(content: str, other: str) -> bool:
    one, two = statement_of(content), statement_of(other)
    return bool(one and two and one.single and one.slot == two.slot and one.value != two.value)


def _shared_words(content: str, other: str) -> float:
    """Return the Jaccard index of their words, without those that stand for the person."""
    one, two = (
        {term for term in terms(_PERSON.sub("", each)) if term not in _FRAME} for each in (content, other)
    )
    return len(one & two) / len(one | two) if one | two else 0.0


# What is never remembered, whoever asks: keys, passwords, card and identity numbers, codes.

_KEYS = re.compile(
    r"\b(?:sk|pk|rk|gsk|hf|xai|nvapi|ghp|gho|github_pat|glpat|xox[abpr])[-_][\w-]{8,}|\bAKIA[0-9A-Z]{12,}"
    r"|\bAIza[\w-]{20,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.|-----BEGIN [A-Z ]*PRIVATE KEY|\bBearer\s+\S{8,}|://[^/\s:@]+:[^/\s@]+@"
)
_NAMED = re.compile(
    r"(?:密码|口令|密钥|秘钥|验证码|校验码|取款码|助记词|私钥|令牌|支付码|安全码|开机码|门禁码|门锁码"
    r"|\b(?:pass(?:word|wd|phrase|code)|pwd?|pin(?: code| number)?|secret|api[-_ ]?key|access[-_ ]?(?:key"
    r"|token)|auth token|token|private key|seed phrase|cvv|cvc|otp"
    r"|(?:security|one[- ]time|recovery|door|gate|access|entry|alarm) code)\b)"
    r"(?:\s*(?P<bare>(?=[!-~]*\d)[!-~]{4,})(?!\s*[年月日])"
    r"|\s*(?:is|was|are|as|to|=|:|是|为|改成|改为|设为|变成|叫|（|\(|\")+\s*(?P<value>[\"'“「]?[^\s，。,;；]{2,}))",
    re.I,
)
_NOT_A_VALUE = re.compile(
    r"^(?:什么|多少|不|在|存|由|放|记|a\b|the\b|in\b|not\b|stored|kept|managed|changed|required|never|always"
    r"|safe|expired?)",
    re.I,
)
_DIGITS = re.compile(r"(?<![A-Za-z\d.])(?:\d[ -]?){12,18}[\dXx](?![A-Za-z\d])")
_SSN = re.compile(r"(?<!\d)(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_IDENTITY = re.compile(
    r"(?:身份证|护照|社保|银行卡|信用卡|驾驶证|驾照|\b(?:passport|ssn|social security|id card|credit card"
    r"|debit card|bank account|driv(?:er['’]?s?['’]?|ing) licen[cs]e)\b)\D{0,12}"
    r"(?:[A-Z]{0,2}\d{5,}|[A-Z]{1,2}\d{2,}-\d{3,})",
    re.I,
)
_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def holds_secret(text: str) -> bool:
    """Whether something in the text looks like a secret; prefers false alarms."""
    text = fold_width(text)
    if (
        _KEYS.search(text)
        or _SSN.search(text)
        or _IDENTITY.search(text)
        or any(map(_is_iban, _IBAN.findall(text)))
    ):
        return True
    named = [match["bare"] or match["value"] for match in _NAMED.finditer(text)]
    if any(not _NOT_A_VALUE.match(value) for value in named):
        return True
    return any(_is_card_or_identity(re.sub("[ -]", "", match)) for match in _DIGITS.findall(text))


def _is_card_or_identity(digits: str) -> bool:
    return (
        _is_identity(digits)
        if len(digits) == 18 and not digits.isdigit()
        else _passes_luhn(digits) or _is_identity(digits)
    )


def _passes_luhn(digits: str) -> bool:
    if not digits.isdigit() or not 13 <= len(digits) <= 19:
        return False
    doubled = [int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _is_identity(digits: str) -> bool:
    """Validate a Chinese identity number by its check digit."""
    if len(digits) != 18 or not digits[:17].isdigit():
        return False
    total = sum(int(digit) * weight for digit, weight in zip(digits, _ID_WEIGHTS, strict=False))
    return "10X98765432"[total % 11] == digits[17].upper()


def _is_iban(number: str) -> bool:
    """Validate the check digits."""
    text = number.replace(" ", "")
    moved = text[4:] + text[:4]
    return 15 <= len(text) <= 34 and int("".join(str(int(char, 36)) for char in moved)) % 97 == 1
