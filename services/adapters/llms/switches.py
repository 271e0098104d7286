"""How to turn a model's thinking on or off: its provider's options, by model name and server host.

A model that is not known here gets no option; its table can set some (`thinking_on`, `thinking_off`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from config.tables import LLMSettings

Options = Mapping[str, Any]
CLAUDE_BUDGET = 2_048  # thinking tokens, for versions that require a number


@dataclass(frozen=True, slots=True)
class ThinkingSwitch:
    """Options merged into a request: the model's table overrides `on`, and `off` overrides the table.

    `guessed`: the options are from this file; if a server refuses them, the request is repeated without.
    """

    on: Options = field(default_factory=dict)
    off: Options = field(default_factory=dict)
    guessed: bool = True


NOTHING = ThinkingSwitch()


def _both(name: str, on: Any, off: Any) -> ThinkingSwitch:
    return ThinkingSwitch({name: on}, {name: off})


_TYPE = _both("thinking", {"type": "enabled"}, {"type": "disabled"})
_ENABLE = _both("enable_thinking", True, False)
TEMPLATE = "chat_template_kwargs"  # of vLLM, SGLang and llama.cpp: arguments of the model's own template

# Models that can be switched. Those that always or never think are recognised by a word in their names.
_HYBRID = (
    r"qwen3(\.\d+)?(?!-?max$)|deepseek-(v3\.[1-9]|v[4-9])|glm-(4\.[5-9]|[5-9])|kimi-k(2\.[5-9]|[3-9])"
    r"|hunyuan-(a13b|2)|gemma-?[4-9]|granite-?(3\.[2-9]|[4-9])|ernie-4\.5-vl|doubao-(seed|1[.-]6)"
)
_FIXED = re.compile(r"thinking|instruct|coder|reasoner")
_BY_THINKING = r"deepseek-|kimi-|granite"  # their templates' argument is `thinking`, others' enable_thinking

_OPENAI = (
    (r"gpt-5(-mini|-nano)?(-\d{4}.*)?$", _both("reasoning_effort", "medium", "minimal")),
    (r"gpt-(5\.\d+|[6-9](\.\d+)?)(-mini|-nano)?(-\d{4}.*)?$", _both("reasoning_effort", "medium", "none")),
    (r"o(1|3|4)(-mini)?(-\d{4}.*)?$", _both("reasoning_effort", "medium", "low")),
)
_GEMINI = (
    (r"gemini-2\.5-flash", _both("reasoning_effort", "medium", "none")),
    (r"gemini-(2\.5|[3-9])", _both("reasoning_effort", "medium", "low")),
)
_OLLAMA = (
    (r"gpt-oss", _both("reasoning_effort", "medium", "low")),
    (
        rf"{_HYBRID}|deepseek-r1|magistral|cogito",
        ThinkingSwitch(
            {"think": True, "reasoning_effort": "medium"}, {"think": False, "reasoning_effort": "none"}
        ),
    ),
)
_OPENROUTER = (
    (_HYBRID, _both("reasoning", {"enabled": True}, {"enabled": False})),
    (r"", _both("reasoning", {"enabled": True}, {"exclude": True})),
)
_QWEN_CLOUD = ((rf"{_HYBRID}|qwen3-max|qwen-(plus|flash|turbo)", _ENABLE),)
_HOSTS: tuple[tuple[str, tuple[tuple[str, ThinkingSwitch], ...]], ...] = (
    (r"api\.openai\.com$", _OPENAI),
    (r"openrouter\.ai$", _OPENROUTER),
    (r"googleapis\.com$", _GEMINI),
    (r"aliyuncs\.com$|siliconflow\.(cn|com)$", _QWEN_CLOUD),
    (r"api\.deepseek\.com$", ((rf"{_HYBRID}|deepseek-chat", _TYPE),)),
    (r"bigmodel\.cn$|z\.ai$|volces\.com$|moonshot\.(cn|ai)$", ((_HYBRID, _TYPE),)),
)
_CLAUDE_WITHOUT = re.compile(r"claude-(v?[12]|instant|3-(opus|sonnet|haiku|5))")
_CLAUDE_BY_BUDGET = re.compile(r"claude-(3-7|[a-z]+-4(-[0-5])?(-latest|[-@]\d{8}.*)?$)")


def switch_of(entry: LLMSettings) -> ThinkingSwitch:
    """The switch from the model's table, else the one known for its provider."""
    if entry.thinking_on is not None or entry.thinking_off is not None:
        return ThinkingSwitch(entry.thinking_on or {}, entry.thinking_off or {}, guessed=False)
    name = entry.model.lower().rpartition("/")[2]
    if entry.provider == "anthropic":
        return _claude(name)
    return _openai(name, entry.base_url) if entry.provider == "openai" else NOTHING


def _claude(name: str) -> ThinkingSwitch:
    """Claude does not think unless it is asked to."""
    if _CLAUDE_WITHOUT.match(name):
        return NOTHING
    if _CLAUDE_BY_BUDGET.match(name):
        return _both("thinking", {"type": "enabled", "budget_tokens": CLAUDE_BUDGET}, None)
    return _both("thinking", {"type": "adaptive", "display": "summarized"}, None)


def _openai(name: str, base_url: str | None) -> ThinkingSwitch:
    parts = urlsplit(base_url or "https://api.openai.com/v1")
    rules, whole = next(_rules_of(parts.hostname or ""), None), name
    if rules is None and (":" in name or parts.port == 11434):
        rules, name = _OLLAMA, name.partition(":")[0]
    if rules is None:
        rules = ((_HYBRID, _template_switch(name)),)
    elif rules is _OPENROUTER:
        name = name.partition(":")[0]
    if rules is not _OPENROUTER and _FIXED.search(whole):
        return NOTHING
    return next((switch for pattern, switch in rules if re.match(pattern, name)), NOTHING)


def _rules_of(host: str) -> Iterator[tuple[tuple[str, ThinkingSwitch], ...]]:
    return (rules for pattern, rules in _HOSTS if re.search(rf"(^|\.)({pattern})", host))


def _template_switch(name: str) -> ThinkingSwitch:
    word = "thinking" if re.match(_BY_THINKING, name) else "enable_thinking"
    return _both(TEMPLATE, {word: True}, {word: False})
