"""How thinking is switched on or off for each provider, by a model's name and its server's host."""

from __future__ import annotations

from typing import Any

import pytest

from config.tables import LLMSettings
from services.adapters.llms.switches import NOTHING, switch_of

QWEN = "https://dashscope.aliyuncs.com/compatible-mode/v1"
DEEPSEEK = "https://api.deepseek.com/v1"
GLM = "https://open.bigmodel.cn/api/paas/v4"
OPENROUTER = "https://openrouter.ai/api/v1"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
OLLAMA = "http://127.0.0.1:11434/v1"
ENABLED, DISABLED = {"type": "enabled"}, {"type": "disabled"}


def switch(model: str, base_url: str | None, provider: str = "openai") -> tuple[Any, Any]:
    found = switch_of(LLMSettings(provider=provider, model=model, base_url=base_url))
    return dict(found.on), dict(found.off)


@pytest.mark.parametrize(
    ("model", "base_url", "name", "on", "off"),
    [
        ("qwen-plus", QWEN, "enable_thinking", True, False),
        ("qwen3-32b", QWEN, "enable_thinking", True, False),
        ("qwen3.5-plus", QWEN, "enable_thinking", True, False),
        ("Qwen/Qwen3-32B", "https://api.siliconflow.cn/v1", "enable_thinking", True, False),
        ("deepseek-chat", DEEPSEEK, "thinking", ENABLED, DISABLED),
        ("deepseek-v4-flash", DEEPSEEK, "thinking", ENABLED, DISABLED),
        ("glm-4.6", GLM, "thinking", ENABLED, DISABLED),
        ("doubao-seed-1-6-251015", "https://ark.cn-beijing.volces.com/api/v3", "thinking", ENABLED, DISABLED),
        ("kimi-k2.5", "https://api.moonshot.cn/v1", "thinking", ENABLED, DISABLED),
        ("gpt-5", None, "reasoning_effort", "medium", "minimal"),
        ("gpt-5.2", None, "reasoning_effort", "medium", "none"),
        ("gpt-5.4-mini", None, "reasoning_effort", "medium", "none"),
        ("o4-mini", None, "reasoning_effort", "medium", "low"),
        ("gemini-2.5-flash", GEMINI, "reasoning_effort", "medium", "none"),
        ("gemini-3-pro", GEMINI, "reasoning_effort", "medium", "low"),
        ("qwen/qwen3-32b", OPENROUTER, "reasoning", {"enabled": True}, {"enabled": False}),
        ("openai/o3", OPENROUTER, "reasoning", {"enabled": True}, {"exclude": True}),
        ("gpt-oss:20b", OLLAMA, "reasoning_effort", "medium", "low"),
        ("glm-4.6", "http://10.0.0.7:8000/v1", "chat_template_kwargs", {"enable_thinking": True},
         {"enable_thinking": False}),
    ],
)  # fmt: skip
def test_each_form_of_the_thinking_switch(
    model: str, base_url: str | None, name: str, on: Any, off: Any
) -> None:
    assert switch(model, base_url) == ({name: on}, {name: off})


@pytest.mark.parametrize("model", ["deepseek-r1:8b", "qwen3", "deepseek-v3.1:671b"])
def test_ollama_gets_both_of_its_forms(model: str) -> None:
    on, off = switch(model, OLLAMA)
    assert (on["think"], off) == (True, {"think": False, "reasoning_effort": "none"})


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("claude-3-7-sonnet-latest", "enabled"),
        ("claude-sonnet-4-20250514", "enabled"),
        ("claude-haiku-4-5", "enabled"),
        ("claude-opus-4-1@20250805", "enabled"),
        ("claude-opus-4-6", "adaptive"),
        ("claude-sonnet-5", "adaptive"),
    ],
)
def test_claudes_switch_depends_on_its_version(model: str, kind: str) -> None:
    on, off = switch(model, None, "anthropic")
    assert (on["thinking"]["type"], off) == (kind, {"thinking": None})


@pytest.mark.parametrize(
    ("model", "base_url", "provider"),
    [
        ("gpt-4o", None, "openai"),
        ("gpt-5-chat-latest", None, "openai"),
        ("gpt-5-pro", None, "openai"),
        ("qwen-max", QWEN, "openai"),
        ("qwen3-235b-a22b-thinking-2507", QWEN, "openai"),
        ("deepseek-reasoner", DEEPSEEK, "openai"),
        ("llama3.1:8b", OLLAMA, "openai"),
        ("qwen3:4b-thinking", OLLAMA, "openai"),
        ("claude-3-5-sonnet-latest", None, "anthropic"),
        ("qwen3-8b.gguf", None, "gguf"),
    ],
)
def test_a_model_that_cannot_be_switched_gets_no_parameter(
    model: str, base_url: str | None, provider: str
) -> None:
    """Discriminates: a parameter that the provider refuses for this model."""
    assert switch_of(LLMSettings(provider=provider, model=model, base_url=base_url)) == NOTHING
