"""Chat completions as requested by OpenAI's own SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.routes.openai.support import Door, Numbered, add, assistant, door, read_until, user
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEAVE = "# Annual leave\n\nEvery employee has fifteen days of annual leave a year."
QUESTION = "How many days of annual leave does an employee have?"
TITLE = (
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n"
    "### Chat History:\n<chat_history>\nUSER: Hi\nASSISTANT: Hello\n</chat_history>"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    async with door(tmp_path_factory.mktemp("openai"), Numbered()) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def at(served: Door) -> Door:
    served.stub.reset()
    return served


async def test_a_complete_answer_has_its_ids_and_its_usage(at: Door) -> None:
    at.stub.usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    answer = await at.ask([user("Where is the parrot?")], temperature=0.2, seed=7)
    message = answer.choices[0].message
    assert (message.role, message.content, answer.choices[0].finish_reason) == (
        "assistant",
        "answer 1",
        "stop",
    )
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (7, 9)
    stored = (await at.http.get(f"/turns/{answer.wenmai['turn_id']}")).json()
    assert (stored["question"], stored["answer"]) == ("Where is the parrot?", "answer 1")
    assert answer.wenmai["session_id"] == stored["session_id"]
    assert answer.wenmai["parent_turn_id"] is None


async def test_parts_of_text_stay_separate(at: Door) -> None:
    """Discriminates: the last word of one part and the first of the next joined into one word."""
    parts = [{"type": "text", "text": "Where is"}, {"type": "text", "text": "the parrot?"}]
    answer = await at.ask([{"role": "user", "content": parts}])
    stored = (await at.http.get(f"/turns/{answer.wenmai['turn_id']}")).json()
    assert stored["question"].split() == ["Where", "is", "the", "parrot?"]


async def test_parameters_that_do_not_apply_are_named(at: Door) -> None:
    raw = await at.client.chat.completions.with_raw_response.create(
        model="wenmai", messages=[{"role": "user", "content": "Hm?"}], temperature=0.2, seed=7, top_p=0.9
    )
    assert set(raw.headers["x-ignored-parameters"].split(", ")) == {"seed", "top_p"}


@pytest.mark.parametrize("model", ["wenmai", "plain/default"])
async def test_temperature_and_the_longest_answer_reach_the_model(at: Door, model: str) -> None:
    """Discriminates: a slider of the client without effect, with the documents or without them."""

    async def sent(**more: Any) -> tuple[float, int]:
        raw = await at.client.chat.completions.with_raw_response.create(
            model=model, messages=[{"role": "user", "content": "Hm?"}], **more
        )
        assert "x-ignored-parameters" not in raw.headers
        return at.stub.bodies[-1]["temperature"], at.stub.bodies[-1]["max_tokens"]

    table = await sent()
    assert await sent(temperature=None, max_tokens=None, max_completion_tokens=None) == table
    assert await sent(temperature=1.5, max_tokens=40) == (1.5, 40)
    assert await sent(temperature=0, max_tokens=40, max_completion_tokens=50) == (0, 50)
    assert (await sent(max_tokens=1_000_000))[1] == 8_192 // 4  # never more than its share of the window


@pytest.mark.parametrize("model", ["wenmai", "plain/default"])
@pytest.mark.parametrize("words", [("Fifteen",), ("<think>Let me",)])
async def test_an_answer_at_its_limit_ends_with_length(at: Door, model: str, words: tuple[str, ...]) -> None:
    """Also one whose thinking took all of it: OpenAI's API returns no text then, and no error."""
    at.stub.words, at.stub.reason = words, "length"
    whole = (await at.ask([user("How many?")], model, max_tokens=5)).choices[0]
    stream = await at.ask([user("How many days?")], model, max_tokens=5, stream=True)
    choices = [chunk.choices[0] async for chunk in stream]
    streamed = "".join(choice.delta.content or "" for choice in choices)
    assert whole.message.content == streamed == ("Fifteen" if words == ("Fifteen",) else "")
    assert (whole.finish_reason, choices[-1].finish_reason) == ("length", "length")


async def test_another_temperature_is_another_request_for_the_same_key(at: Door) -> None:
    headers = {"Idempotency-Key": "temperature"}
    first = await at.ask([user("Hm?")], temperature=0.5, extra_headers=headers)
    again = await at.ask([user("Hm?")], temperature=0.5, extra_headers=headers)
    assert again.wenmai == first.wenmai
    with pytest.raises(openai.ConflictError):
        await at.ask([user("Hm?")], temperature=0.6, extra_headers=headers)
    stored = (await at.http.get(f"/turns/{first.wenmai['turn_id']}")).json()
    assert (stored["request"]["temperature"], stored["request"]["max_tokens"]) == (0.5, None)


async def test_a_stream_is_the_complete_answer_in_pieces(at: Door) -> None:
    at.stub.words, at.stub.pause_s = ("Otto ", "sits ", "there."), 0.05
    stream = await at.ask([user("Where?")], stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "Otto sits there."
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) == 3
    *_, last, usage = chunks
    assert last.choices[0].finish_reason == "stop"
    assert last.wenmai["turn_id"] in last.id
    assert usage.choices == []
    assert usage.usage.total_tokens == usage.usage.prompt_tokens + usage.usage.completion_tokens > 0


async def test_a_stream_without_include_usage_ends_with_its_reason(at: Door) -> None:
    response = await at.http.post(
        "/v1/chat/completions", json={"model": "wenmai", "messages": [user("Hm?")], "stream": True}
    )
    data = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data:")]
    assert data[-1] == "[DONE]"
    assert all("usage" not in json.loads(each) for each in data[:-1])
    assert json.loads(data[-2])["choices"][0]["finish_reason"] == "stop"


async def test_thinking_is_reasoning_content(at: Door) -> None:
    at.stub.words = ("<think>Let me", " see.</think>", "Here.")
    whole = (await at.ask([user("Where is it?")])).choices[0].message
    stream = await at.ask([user("Where else?")], stream=True)
    deltas = [chunk.choices[0].delta async for chunk in stream]
    assert (whole.reasoning_content, whole.content) == ("Let me see.", "Here.")
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Let me see."
    assert "".join(delta.content or "" for delta in deltas) == "Here."


@pytest.mark.parametrize("wanted", [{"type": "enabled"}, {"type": "auto"}])
async def test_thinking_is_requested_like_from_other_providers(at: Door, wanted: dict[str, str]) -> None:
    """Discriminates: the field of DeepSeek, GLM and Kimi refused, since ours is true or false."""
    at.stub.words = ("<think>Hm.</think>", "Here.")
    one = await at.ask([user("Where is it?")], extra_body={"thinking": wanted})
    other = await at.ask([user("Where else?")], extra_body={"thinking": {"type": "disabled"}})
    absent = await at.ask([user("Where?")], extra_body={"thinking": None})
    assert one.choices[0].message.reasoning_content == "Hm."
    assert [each.choices[0].message.content for each in (other, absent)] == ["Here."] * 2
    with pytest.raises(openai.BadRequestError):
        await at.ask([user("Where?")], extra_body={"thinking": {"type": "much"}})


async def test_reasoning_effort_turns_thinking_on_or_off(at: Door) -> None:
    """Discriminates: Open WebUI's slider without effect; a default that outweighs our own field."""
    at.stub.words = ("<think>Hm.</think>", "Here.")

    async def thought(model: str, effort: Any, **more: Any) -> bool:
        raw = await at.client.chat.completions.with_raw_response.create(
            model=model, messages=[{"role": "user", "content": "?"}], reasoning_effort=effort, extra_body=more
        )
        assert "x-ignored-parameters" not in raw.headers
        return hasattr(raw.parse().choices[0].message, "reasoning_content")

    for model in ("wenmai", "plain/default"):
        thoughts = [await thought(model, effort) for effort in ("none", "minimal", "low", "high", None)]
        assert thoughts == [False, False, True, True, True]
        assert await thought(model, "none", thinking=True)
        assert not await thought(model, "high", thinking=False)


async def test_the_sources_are_citations_and_annotations(at: Door) -> None:
    at.stub.words = ("Fifteen [1].",)
    await add(at.http, "leave.md", LEAVE)
    message = (await at.ask([user(QUESTION)])).choices[0].message
    stream = await at.ask([user(QUESTION)], stream=True)
    last = [chunk async for chunk in stream][-1].choices[0].delta
    citation, annotation = message.citations[0], message.annotations[0]
    assert (citation["index"], citation["file_name"], citation["cited"]) == (1, "leave.md", True)
    place = annotation.url_citation
    assert message.content[place.start_index : place.end_index] == "[1]"
    assert place.url.endswith(f"/#/d/{citation['document_id']}/{citation['chunk_id']}")
    assert last.citations[0]["chunk_id"] == citation["chunk_id"]
    assert last.annotations[0]["url_citation"]["title"] == "leave.md"


async def test_a_link_to_a_passage_leads_to_wenmais_page_and_is_converted_back(at: Door) -> None:
    """Discriminates: #/d/… as a link of the client's own page; a link that is split by a piece; an answer
    that is no longer recognized."""
    at.stub.words = ("Nearest: [VPN](", "#", "/d", "/a/b) and [x](#y), [", "z](#/d/c/d)](")
    asked = [user("Where is it?")]
    whole = (await at.ask(asked)).choices[0].message.content
    page = str(at.http.base_url).rstrip("/")
    assert whole == f"Nearest: [VPN]({page}/#/d/a/b) and [x](#y), [z]({page}/#/d/c/d)]("
    streamed = await at.ask([user("Where is it now?")], stream=True)
    chunks = [chunk async for chunk in streamed]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    first = next(chunk.wenmai for chunk in chunks if hasattr(chunk, "wenmai"))
    history = [user("Where is it now?"), assistant(whole), user("And then?")]
    assert (await at.ask(history)).wenmai["parent_turn_id"] == first["turn_id"]
    stored = (await at.http.get(f"/turns/{first['turn_id']}")).json()
    assert "http" not in stored["answer"]


async def test_a_returned_footer_of_sources_is_not_part_of_the_answer(at: Door) -> None:
    """Discriminates: a footer in the stored answer, or one that hides the turn below which it is shown."""
    at.stub.words = ("Fifteen [1].",)
    await add(at.http, "leave.md", LEAVE)
    body = {"sources_in_text": "footer"}
    first = await at.ask([user(QUESTION)], extra_body=body)
    text = first.choices[0].message.content
    assert text == "Fifteen [1].\n\n---\nSources:\n[1] leave.md · Annual leave"
    stream = await at.ask([user(QUESTION)], extra_body=body, stream=True)
    streamed = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(streamed) == text
    second = await at.ask([user(QUESTION), assistant(text), user("Who says so?")])
    assert second.wenmai["session_id"] in {each["session_id"] for each in await at.sessions()}
    parent = (await at.http.get(f"/turns/{second.wenmai['parent_turn_id']}")).json()
    assert (parent["answer"], parent["model_id"]) == ("Fifteen [1].", "default")
    assert "---" not in at.received().split("Fifteen", 1)[1][:60]


async def test_a_setting_adds_the_footer_to_every_answer_unless_the_request_decides(
    tmp_path: Path,
) -> None:
    stub = Numbered(words=("Fifteen [1].",))
    async with door(tmp_path, stub, server={"sources_in_text": "footer"}) as at:
        await add(at.http, "leave.md", LEAVE)
        answer = await at.ask([user(QUESTION)])
        assert answer.choices[0].message.content.endswith("Sources:\n[1] leave.md · Annual leave")
        without = await at.ask([user(QUESTION)], extra_body={"sources_in_text": "off"})
        assert without.choices[0].message.content == "Fifteen [1]."


async def test_a_system_message_is_the_persona_of_its_turn_only(at: Door) -> None:
    system = {"role": "system", "content": "You are a pirate."}
    first = await at.ask([system, user("Who are you?")])
    assert "You are a pirate." in at.received()
    prompt = await at.http.get(f"/turns/{first.wenmai['turn_id']}/prompt")
    assert [part["reason"] for part in prompt.json()["parts"] if part["part"] == "persona"] == [
        "persona_of_the_turn"
    ]
    await at.ask([user("Who are you?"), assistant("answer 1"), user("And now?")])
    assert "pirate" not in at.received()
    session = (await at.http.get(f"/sessions/{first.wenmai['session_id']}")).json()
    assert "pirate" not in json.dumps(session)


async def test_closing_the_connection_stops_the_answer(at: Door) -> None:
    """Discriminates: the grace period of our own streams, in which the model would continue for thirty
    seconds."""
    at.stub.words, at.stub.pause_s = ("word ",) * 2_000, 0.02
    stream = await at.ask([user("Talk.")], stream=True)
    await read_until(stream, "word")
    await until(lambda: at.stub.left == 1, limit_s=15)  # the grace period is 30
    session = (await at.sessions())[0]["session_id"]  # the newest
    turns = (await at.http.get(f"/sessions/{session}/turns")).json()["turns"]
    assert [(turn["status"], turn["answer"][:4]) for turn in turns] == [("cancelled", "word")]


async def test_the_models_are_the_configured_ones_with_and_without_knowledge(at: Door) -> None:
    offered = [model.id async for model in at.client.models.list()]
    assert offered == ["wenmai", "plain/default"]
    assert (await at.client.models.retrieve("plain/default")).id == "plain/default"
    with pytest.raises(openai.NotFoundError):
        await at.client.models.retrieve("gpt-4o")


@pytest.mark.parametrize("asked", [("plain/default", "Just talk."), ("wenmai", TITLE)])
@pytest.mark.parametrize("stream", [False, True])
async def test_plain_questions_are_neither_searched_nor_stored(
    at: Door, asked: tuple[str, str], stream: bool
) -> None:
    before = len(await at.sessions())
    model, text = asked
    answer = await at.ask([user("Before"), assistant("Yes"), user(text)], model=model, stream=stream)
    if stream:
        content = "".join([chunk.choices[0].delta.content or "" async for chunk in answer])
    else:
        content = answer.choices[0].message.content
    assert content == "answer 1"
    assert len(await at.sessions()) == before
    assert json.loads(at.stub.raw_bodies[-1])["messages"] == [
        user("Before"),
        assistant("Yes"),
        user(text),
    ]


REFUSED: tuple[tuple[dict[str, Any], type[openai.APIStatusError], str], ...] = (
    ({"model": "gpt-4o"}, openai.NotFoundError, "model_not_found"),
    ({"model": "wenmai/none"}, openai.NotFoundError, "model_not_found"),
    ({"messages": []}, openai.BadRequestError, "invalid_field"),
    ({"messages": [user("")]}, openai.BadRequestError, "empty_question"),
    ({"messages": [user(" ")], "model": "plain/default"}, openai.BadRequestError, "empty_question"),
    ({"messages": [user("a"), assistant("b")]}, openai.BadRequestError, "invalid_request"),
    ({"messages": [{"role": "judge", "content": "a"}]}, openai.BadRequestError, "invalid_field"),
    (
        {"messages": [{"role": "tool", "content": "a", "tool_call_id": "x"}]},
        openai.BadRequestError,
        "invalid_request",
    ),
    ({"n": 2}, openai.BadRequestError, "invalid_field"),
    ({"logprobs": True}, openai.BadRequestError, "invalid_field"),
    ({"tool_choice": "required"}, openai.BadRequestError, "invalid_field"),
    ({"temperature": 2.1}, openai.BadRequestError, "invalid_field"),
    ({"max_tokens": 0}, openai.BadRequestError, "invalid_field"),
    ({"max_completion_tokens": -1}, openai.BadRequestError, "invalid_field"),
    ({"response_format": {"type": "json_object"}}, openai.BadRequestError, "invalid_field"),
    ({"messages": [user("word " * 20_000)]}, openai.BadRequestError, "question_too_long"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        openai.BadRequestError,
        "image_refused",
    ),
    (
        {
            "messages": [user("a"), assistant("b"), user("c")],
            "extra_body": {"session_id": "4f0c1c62-0000-4000-8000-000000000001"},
        },
        openai.NotFoundError,
        "unknown_session",
    ),
)


async def test_refusals_have_openais_form(at: Door) -> None:
    before = len(await at.sessions())
    for changes, kind, code in REFUSED:
        body: dict[str, Any] = {"model": "wenmai", "messages": [user("Hm?")], **changes}
        with pytest.raises(kind) as refused:
            await at.client.chat.completions.create(**body)
        error = refused.value
        expected = "context_length_exceeded" if code == "question_too_long" else code
        assert (error.code, error.type) == (expected, "invalid_request_error"), changes
        assert error.body["message"], changes  # type: ignore[index]
        if code in ("invalid_field", "empty_question", "question_too_long", "image_refused"):
            assert (error.param or "").partition(".")[0] == next(iter(changes)), error.message
        if code in ("invalid_field", "empty_question", "question_too_long"):
            assert error.body["message"].startswith(error.param), changes  # type: ignore[index]
        if set(changes) <= {"n", "logprobs", "tool_choice", "response_format"}:
            assert "omit it" in error.body["message"], changes  # type: ignore[index]
    with pytest.raises(openai.APIStatusError) as too_large:
        await at.ask([user("x" * 33_000_000)])
    assert too_large.value.status_code == 413
    assert len(await at.sessions()) == before
    assert at.stub.bodies == []


async def test_null_counts_as_unset(at: Door) -> None:
    """Typed clients send it for unset fields."""
    nulls = {"knowledge": None, "rerank_top_n": None, "date": None, "stream_options": {"include_usage": None}}
    answer = await at.ask([user("Null?")], extra_body=nulls)
    stored = (await at.http.get(f"/turns/{answer.wenmai['turn_id']}")).json()
    assert (stored["request"]["knowledge"], stored["request"]["rerank_top_n"]) == ("auto", 10)
    body = {"model": "wenmai", "messages": [user("Null?")], "stream": True, **nulls}
    streamed = await at.http.post("/v1/chat/completions", json=body)
    assert (streamed.status_code, '"usage"' in streamed.text) == (200, False)


async def test_a_wrong_base_address_is_answered_with_the_right_one(at: Door) -> None:
    root = str(at.http.base_url).rstrip("/")
    for wrong in ("", "/v1/v1", "/v1/chat/completions", "/v1/v1/chat/completions"):
        client = at.client.with_options(base_url=root + wrong)
        asking: list[Any] = [
            client.chat.completions.create(model="wenmai", messages=[{"role": "user", "content": "?"}])
        ]
        asking += [client.models.list()] if wrong else []  # GET /models is a route of our own
        for request in asking:
            with pytest.raises(openai.NotFoundError) as refused:
                await request
            assert refused.value.type == "invalid_request_error"
            assert f"the base address is {root}/v1," in refused.value.message
    for method, path, status in (("GET", "/v1/chat/completions", 405), ("POST", "/v1/responses", 404)):
        reply = await at.http.request(method, path)
        assert (reply.status_code, "base address" in reply.text) == (status, False)
    with pytest.raises(openai.NotFoundError) as refused:
        await at.client.responses.create(model="wenmai", input="?")
    assert "/v1 has /v1/chat/completions, /v1/models and /v1/embeddings" in refused.value.message
    assert "type" not in (await at.http.get("/chat")).json()["error"]


async def test_tool_messages_of_a_history_are_left_out_with_or_without_their_calls(at: Door) -> None:
    """Discriminates: an orphan that reaches the model, which refuses it; a turn stored again because of
    it."""
    first = (await at.ask([user("Who barks?")])).choices[0].message.content
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    results = {"role": "tool", "tool_call_id": "x", "content": "A_TOOLS_RESULT"}
    before = [user("Who barks?"), assistant(first)]
    paired = [user("Who barks?"), {"role": "assistant", "tool_calls": [call]}, results, assistant(first)]
    parents: set[str] = set()
    for history in (before, paired, [*before, results], [results, *before]):
        place = (await at.ask([*history, user(f"And who meows, {len(parents)}?")])).wenmai
        parents.add(place["parent_turn_id"])
        assert "A_TOOLS_RESULT" not in at.received()
        assert all(each["role"] in ("system", "user", "assistant") for each in at.stub.bodies[-1]["messages"])
    assert len(parents) == 1


async def test_a_wrong_key_is_an_authentication_error(tmp_path: Path) -> None:
    async with door(tmp_path, server={"api_keys": ("alice",)}) as at:
        with pytest.raises(openai.AuthenticationError) as refused:
            await at.ask([user("Hm?")])
        assert refused.value.code == "invalid_api_key"
        assert (await at.client.with_options(api_key="alice").models.list()).data


async def test_a_models_failure_is_an_error_of_the_sdk(at: Door) -> None:
    at.stub.status = 400
    with pytest.raises(openai.InternalServerError):
        await at.ask([user("Hm?")])
    stream = await at.ask([user("Hm again?")], stream=True)
    with pytest.raises(openai.APIError):
        _ = [chunk async for chunk in stream]


async def test_hostile_characters_are_cleaned_and_the_answer_is_stored(at: Door) -> None:
    body = b'{"model": "wenmai", "messages": [{"role": "user", "content": "a\\u0000b \\ud800 c"}]}'
    answer = await at.http.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200, answer.text
    turn = (await at.http.get(f"/turns/{answer.json()['wenmai']['turn_id']}")).json()
    assert turn["question"] == "ab \ufffd c"
