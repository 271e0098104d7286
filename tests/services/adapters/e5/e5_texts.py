"""Texts of 1 to 500 tokens in Chinese, English and other content of documents, the same in every run."""

from __future__ import annotations

import random

_BASES = (
    "会话数据默认保留三十天，到期后由每天凌晨三点的任务清理；"
    "管理员可以用 CONVERSATION_EXPIRE_DAYS 改成别的天数。"
    "退款一般在七个工作日内到账，节假日顺延。如果超过十天仍未收到，请带上订单号联系客服。"
    "向量数据库把每一轮问答存成一个点，并用上一轮的编号连成一棵树。",
    "The server keeps every turn of a conversation as a point in the vector database. A turn is written when "
    "it begins, so the question is never lost, and again when it ends. Recent history is what the last turns "
    "of the branch said; relevant history is found by search. Nothing is taken from a sibling branch.",
    "| 设置 | 默认 | 说明 |\n|---|---|---|\n| PORT | 8000 | 端口 |\n"
    "| RERANK_SCORE_THRESHOLD | 0.2 | 门槛 |\n\n"
    "```python\ndef fused(rankings, k=60):\n    return sorted(rankings, key=lambda r: -1 / (k + r))\n```\n",
    "价格：￥1,299.00（含税）　ＡＢＣ１２３…… "
    "https://example.com/a?b=c&d=1 naïve Ωmega 😀 Привет 日本語 한국어 ",
)
_SHORT = ("好", "a", "1", "Fee", "费用？", "OK, thanks!", "……", "😀", "2024-05-01", "向量数据库")


def varied_texts(count: int) -> list[str]:
    """The first ten are short; the others are sections of a mixed text, short as often as long."""
    chance = random.Random(5)
    whole = "\n\n".join(chance.choice(_BASES) for _ in range(40))
    texts = list(_SHORT)
    while len(texts) < count:
        begin = chance.randrange(len(whole) - 1000)
        texts.append(whole[begin : begin + int(2 ** chance.uniform(1, 9.7))])
    return texts


def long_text(characters: int) -> str:
    """The first half in Chinese, the second in English, so that truncation changes the text."""
    half = characters // 2
    return "".join((base * (half // len(base) + 1))[:half] for base in _BASES[:2])
