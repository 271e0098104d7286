"""Text for generated files: plain office sentences, Chinese or English, and a unique phrase."""

from __future__ import annotations

import random
from dataclasses import dataclass

_ZH = (
    ("采购部", "财务部", "客户服务中心", "人事处", "信息技术组", "仓储班组", "法务室", "质量管理科"),
    ("每季度", "本年度", "每周一", "合同签订后", "项目验收前", "出差结束后", "新员工入职时", "盘点期间"),
    ("应当", "需要", "通常会", "不得晚于规定日期", "在主管批准后", "按照流程"),
    ("提交费用报销单", "更新供应商名录", "核对库存数量", "归档会议纪要", "检查消防设施", "续签维护合同",
     "备份业务数据", "评估培训效果", "公布排班表", "登记来访车辆"),
)  # fmt: skip
_EN = (
    ("The purchasing team", "Finance", "The support desk", "Human resources", "The data centre crew",
     "The warehouse", "Legal counsel", "The quality office"),
    ("every quarter", "this year", "on Mondays", "after a contract is signed", "before acceptance",
     "when a trip ends", "for new colleagues", "during stocktaking"),
    ("has to", "usually will", "must, once a manager agrees,", "should", "may"),
    ("file an expense report", "update the list of suppliers", "count the stock", "archive the minutes",
     "check the fire extinguishers", "renew the maintenance contract", "back up the business data",
     "review the training", "publish the rota", "register visiting cars"),
)  # fmt: skip
_BIRDS_ZH = ("青鸾", "白鹭", "云雀", "朱鹮", "金雕", "灰鹤", "翠鸟", "红隼", "杜鹃", "苍鹰")
_BIRDS_EN = (
    "heron",
    "kestrel",
    "plover",
    "lapwing",
    "osprey",
    "bittern",
    "dunlin",
    "curlew",
    "merlin",
    "pipit",
)
_THINGS_ZH = ("保险柜", "样品架", "备用电机", "验收章", "温控箱", "校准仪", "门禁卡", "流量计")
_THINGS_EN = (
    "safe",
    "sample rack",
    "spare motor",
    "stamp",
    "cooling box",
    "calibrator",
    "badge",
    "flow meter",
)


@dataclass(frozen=True, slots=True)
class Story:
    """The content of one file. `phrase` is in no other file; `question` asks for it."""

    chinese: bool
    title: str
    paragraphs: tuple[str, ...]
    phrase: str
    question: str


def story(number: int, chance: random.Random) -> Story:
    """Return the story of that number; the same number and random state give the same story."""
    chinese = chance.random() < 0.5
    body = [_paragraph(chinese, chance) for _ in range(chance.randint(1, 4))]
    phrase, question = _phrase(chinese, number, chance)
    body.insert(chance.randint(0, len(body)), phrase)
    title = f"第{number}号工作说明" if chinese else f"Work note {number}"
    return Story(chinese, title, tuple(body), phrase, question)


def _paragraph(chinese: bool, chance: random.Random) -> str:
    words, end, gap = (_ZH, "。", "") if chinese else (_EN, ". ", " ")
    sentences = [gap.join(chance.choice(kind) for kind in words) + end for _ in range(chance.randint(2, 5))]
    return "".join(sentences).strip()


def _phrase(chinese: bool, number: int, chance: random.Random) -> tuple[str, str]:
    code = 10_000 + number * 7
    if chinese:
        bird, thing = chance.choice(_BIRDS_ZH), chance.choice(_THINGS_ZH)
        return f"{bird}{code}号{thing}的编号是{bird}-{code * 3}。", f"{bird}{code}号{thing}的编号是多少？"
    bird, thing = chance.choice(_BIRDS_EN), chance.choice(_THINGS_EN)
    sentence = f"The {thing} of project {bird} {code} has the number {bird}-{code * 3}."
    return sentence, f"Which number has the {thing} of project {bird} {code}?"
