"""What the text of a refusal reveals: whether another form of the messages could help."""

from __future__ import annotations

import pytest

from config.tables import LLMSettings
from core.errors import LLMRefusedError
from core.prompt.exchange import Exchange
from core.prompt.messages import Message, Part, Role
from services.adapters.http import open_model_client
from services.adapters.llms.openai import OpenAILLM
from tests.support.models.stub_llm import Refusal, StubLLM, running_stub

ASKED = [Message(Role.USER, "Hi?", Part.QUESTION)]
OTHER_CAUSES = [
    Refusal("This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
    Refusal("prompt is too long: 208310 tokens > 200000 maximum"),
    Refusal("the request exceeds the available context size, try increasing it"),
    Refusal("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096", 422),
    Refusal("Range of input length should be [1, 6000]"),
    Refusal("Your request exceeded model token limit: 8192"),
    Refusal("The input token count (70000) exceeds the maximum number of tokens allowed (65536)."),
    Refusal("Please reduce the length of the messages or completion."),
    Refusal("输入内容长度超过上下文窗口"),
    Refusal("The response was filtered due to our content management policy.", code="content_filter"),
]
ABOUT_THE_FORM = [
    Refusal("System role not supported"),
    Refusal("Conversation roles must alternate user/assistant/user/assistant/..."),
    Refusal("After the optional system message, conversation roles must alternate user and assistant."),
    Refusal("System message must be at the beginning."),
    Refusal("Only user and assistant roles are supported!", 422),
    Refusal("[{'loc': ['messages', 1, 'role'], 'msg': 'Input should be user or assistant'}]", 422),
    Refusal("该模型只支持一条 system 消息"),
    Refusal("System role not supported" + " " * 500 + "context length"),
]


@pytest.mark.parametrize(
    "refusal", [*OTHER_CAUSES, *ABOUT_THE_FORM], ids=lambda refusal: refusal.message[:40]
)
async def test_a_refusal_for_length_or_content_is_not_about_the_form(refusal: Refusal) -> None:
    """Discriminates: checking the code alone; reading a request that is repeated after its reason."""
    with running_stub(StubLLM(refuse=lambda body: refusal)) as stub:
        entry = LLMSettings(provider="openai", model="m", base_url=stub.url)
        async with open_model_client(10) as client:
            with pytest.raises(LLMRefusedError) as caught:
                await anext(OpenAILLM(entry, "k", client).stream_deltas(ASKED, Exchange()))
    assert caught.value.about_form is (refusal in ABOUT_THE_FORM)
