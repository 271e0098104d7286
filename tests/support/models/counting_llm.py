"""A scripted LLM that never says the same twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from llama_index.core.base.llms.types import ChatMessage

from tests.support.models.scripted_llm import ScriptedLLM, Step

NUMBERS = count(1)
COUNTING = {"provider": "llama_index:tests.support.models.counting_llm:CountingLLM"}


class CountingLLM(ScriptedLLM):
    def script_for(self, messages: Sequence[ChatMessage]) -> Sequence[Step]:
        return ("reply ", f"number {next(NUMBERS)}")
