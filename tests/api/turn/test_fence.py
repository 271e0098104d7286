"""Injection: whatever a document, a conversation or a name contains, no request holds a control token of a
chat template, a fence that is not ours, or an attribute that ends early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.messages import PromptLibrary
from api.turn.prompt import Gathered, Prompt, PromptBuilder
from config.settings import ConversationSettings
from core.conversation.sessions import Persona, Session
from core.conversation.summaries import AppliedSummary, SummarySource, task_text
from core.conversation.turns import TurnRequest
from core.knowledge import Candidate, Chunk, KnowledgeFilter
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.memory.record import Memory
from core.prompt.exchange import MESSAGES, PROMPT, SYSTEM, canonical_json, fielded, wire_messages
from core.prompt.fence import nearest_in, nearest_of, parse_knowledge, scope_in_prompt
from core.prompt.layouts import read_back
from core.prompt.messages import Layout, Message, Part, Role, ToolCall
from services.llm_service import ModelEntry
from services.retrieval.insert_block import Asked, InsertBlock
from services.retrieval.query_forms import QueryRewriter
from tests.core.prompt.test_messages import turn
from tests.support.models.scripted_llm import RECORDED, ScriptedLLM
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import make_settings, open_app
from tests.support.wire.injections import JOINER, SHAPES, faults_of, texts_of

WIRE = (Layout.ONE_SYSTEM, Layout.MANY_SYSTEM, Layout.SYSTEM_FIELD, Layout.FLAT)
ASKED = "What does the guide say of the fee?"


def entry(record_as: str = "", *script: str) -> ModelEntry:
    llm = ScriptedLLM(script=script, record_as=record_as)
    wrapper = LLMStreamWrapper(llm, StreamTimeouts(5, 5))
    return ModelEntry("default", "scripted", "m", wrapper, Layout.AUTO, 100_000, 1_000)


def builder() -> PromptBuilder:
    return PromptBuilder(PromptLibrary(), ConversationSettings(), lambda: datetime(2026, 5, 1, tzinfo=UTC))


def everywhere(shape: str, *, passages: bool = True) -> tuple[Prompt, Candidate]:
    """A prompt with `shape` in every place that holds foreign text; and its passage."""
    chunk = Chunk(
        "c-1", "d-1", f"{shape} guide.md", f"The fee {shape}\n{shape}\nis 300.", 0, f"Fees > {shape}"
    )
    passage = Candidate(chunk, probability=0.9 if passages else 0.1)
    gathered = Gathered(
        recent=(turn(5, "covered"), turn(7, f"And {shape}?", f"{shape} it is"), turn(8, shape, "")),
        relevant=(turn(1, f"{shape} then?", f"so {shape}"),),
        summary=AppliedSummary(f"They spoke\n{shape}\nof it", frozenset({"t5"}), "t5", "t5", 0),
        ranked=(passage,),
        candidates=(passage,) if passages else (),
        memories=(Memory("m-1", "o", f"Likes tea.\n{shape}"),),
    )
    limits = KnowledgeFilter(tags=(shape, "a tag"), sources=(f"from {shape}",))
    request = TurnRequest(ASKED, "o", filters=limits)
    prompt = builder().build(
        request,
        entry(),
        Session("s", "o", "", 0, 0, persona=Persona("p", "", f"You are {shape}\n{shape}", 0)),
        gathered,
    )
    call = ToolCall("call-1", f"look{shape}", canonical_json({"for": shape}).decode())
    tools = (
        Message(Role.ASSISTANT, f"Let me {shape}", Part.RECENT, "t8", tool_calls=(call,)),
        Message(Role.TOOL, f"result\n{shape}", Part.RECENT, "t8", tool_call_id="call-1"),
    )
    end = -2 if passages else -1
    messages = (*prompt.messages[:end], *tools, *prompt.messages[end:])
    return replace(prompt, messages=messages), passage


def sent(prompt: Prompt, layout: Layout) -> bytes:
    """The request body."""
    laid = prompt.lay(layout)
    if layout is Layout.SYSTEM_FIELD:
        request = fielded(laid)
        return canonical_json({SYSTEM: request.system, MESSAGES: request.messages})
    key = PROMPT if layout is Layout.FLAT else MESSAGES
    return canonical_json({key: wire_messages(laid, key)})


def test_there_are_two_hundred_shapes() -> None:
    assert len(SHAPES) >= 200


@pytest.mark.slow("two hundred shapes in fifteen places of eight requests each")
@pytest.mark.parametrize("passages", [True, False])
@pytest.mark.parametrize("layout", WIRE)
def test_nothing_escapes_its_place_in_a_request(layout: Layout, passages: bool) -> None:
    """Discriminates: any one of these places written unescaped; a quotation mark or an angle bracket in an
    attribute; a token that is broken up only where it is alone."""
    faults = {}
    for shape in SHAPES:
        prompt, _ = everywhere(shape, passages=passages)
        faults[shape] = faults_of(sent(prompt, layout), ASKED)
    assert {shape: each for shape, each in faults.items() if each} == {}


@pytest.mark.parametrize("layout", WIRE)
def test_a_reader_sees_every_text_unchanged(layout: Layout) -> None:
    """Discriminates: a shape that is cut out, or replaced by something that reads differently."""
    for shape in SHAPES:
        prompt, _ = everywhere(shape)
        text = "\n".join(texts_of(sent(prompt, layout))).replace(JOINER, "")
        for line in (f"You are {shape}\n{shape}", f"The fee {shape}\n{shape}\nis 300."):
            assert line.replace(JOINER, "") in text


@pytest.mark.slow("two hundred shapes, each in a prompt with passages and in one without")
@pytest.mark.parametrize("layout", WIRE)
def test_our_own_models_read_the_passages_without_the_joiners(layout: Layout) -> None:
    """Discriminates: quoting what the fence put into a text."""
    for shape in SHAPES[:: 1 if layout is Layout.FLAT else 7]:
        prompt, passage = everywhere(shape)
        [read] = parse_knowledge(read_back(prompt.lay(layout)).knowledge)
        assert read.text == passage.chunk.text
        assert read.file_name == " ".join(passage.chunk.file_name.split())
        assert read.heading == " ".join(passage.chunk.heading.split())
        bare, passage = everywhere(shape, passages=False)
        system = bare.lay(Layout.ONE_SYSTEM)[0].content
        assert nearest_in(system) == nearest_of([passage])
        assert scope_in_prompt(system)


@pytest.mark.parametrize("question", ["What does it say?", "资料里怎么说？"])
@pytest.mark.parametrize("layout", WIRE)
def test_the_model_receives_the_meaning_of_the_fence(layout: Layout, question: str) -> None:
    """Discriminates: a fence whose code no sentence names, or a sentence that does not call the content
    data."""
    prompt, _ = everywhere("x")
    gathered = Gathered(
        recent=(turn(7),), relevant=(turn(1),), ranked=prompt.candidates, candidates=prompt.candidates
    )
    gathered = replace(gathered, summary=AppliedSummary("before", frozenset({"t5"}), "t5", "t5", 0))
    built = builder().build(TurnRequest(question, "o"), entry(), None, gathered)
    text = "\n".join(texts_of(sent(built, layout)))
    code = built.texts.code
    says = f"以 {code}" if question.startswith("资料") else f"tags ending in {code}"
    dialogue = layout in (Layout.ONE_SYSTEM, Layout.SYSTEM_FIELD)  # recalled turns are messages there
    assert text.count(says) == (2 if dialogue else 3)
    assert text.count(f"</passage-{code}>") == text.count(f"</summary-{code}>") == 1
    assert text.count(f"</history-{code}>") == (0 if dialogue else 1)
    for sentence in text.split("\n"):
        if says in sentence:
            assert "仅作数据" in sentence or "is data" in sentence


def test_every_request_has_its_own_code() -> None:
    codes = {everywhere("x")[0].texts.code for _ in range(50)}
    assert len(codes) == 50


@pytest.mark.parametrize("layout", WIRE)
def test_the_question_is_passed_verbatim(layout: Layout) -> None:
    """Discriminates: a joiner in the person's question, who then gets an answer to something else."""
    for shape in SHAPES:
        asked = f"What is {shape} for?".strip()
        built = builder().build(TurnRequest(asked, "o"), entry(), None, Gathered())
        assert any(asked in text for text in texts_of(sent(built, layout)))


async def test_summaries_judgements_and_rewritings_are_fenced_the_same_way() -> None:
    RECORDED.clear()
    for nth, shape in enumerate(SHAPES):
        text = task_text(shape, [SummarySource("1", f"{shape}?", f"so {shape}")], "9 words", "402731")
        body = canonical_json({"messages": [{"role": "user", "content": text}]})
        assert faults_of(body, "9 words") == []
        candidate = Candidate(Chunk("c", "d", "f.md", f"The fee {shape}.", 0))
        judge = entry(f"judge-{nth}", '{"can_answer": true, "passage": "The fee", "reason": "r"}')
        await InsertBlock(lambda: "Judge.").judge(Asked("fee?", (f"before {shape}",)), [candidate], judge)
        rewriter = QueryRewriter(lambda language: "Rewrite.", 5.0)
        await rewriter.rewrite("fee?", [turn(1, shape, shape)], entry(f"rewrite-{nth}", "The fee?"))
        for name in (f"judge-{nth}", f"rewrite-{nth}"):
            [call] = RECORDED[name]
            assert faults_of(canonical_json([text for _, text in call]), "fee?") == []


def _documents() -> Iterator[tuple[str, str]]:
    """Every shape under its own heading, in files with a shape in their names."""
    for at in range(0, len(SHAPES), 12):
        parts = [
            f"## Fee {shape}\n\nThe fee of the guide {shape} is 300 {shape} a year."
            for shape in SHAPES[at : at + 12]
        ]
        yield f"{SHAPES[at][:20].replace('/', '-')} {at}.md".replace("\n", " "), "\n\n".join(parts)


@pytest.mark.slow("opens the whole application and reads a dozen documents in")
@pytest.mark.parametrize(
    "layout",
    [
        "one_system",
        *(pytest.param(each, marks=pytest.mark.full("the same again")) for each in WIRE[1:]),
    ],
)
async def test_the_sent_bytes_are_clean_and_shown_unchanged(tmp_path: Path, layout: str) -> None:
    """Discriminates: a step between file and wire at which a text is passed unescaped."""
    with running_stub(StubLLM(words=SHAPES[:60])) as stub:
        model = {"provider": "openai", "base_url": stub.url, "api_key": "k", "model": "m", "layout": layout}
        table: Mapping[str, Any] = {**model, "context_window": 60_000}
        async with open_app(make_settings(tmp_path, models={"llms": {"default": table}})) as app:
            for name, text in _documents():
                await app.add_text(name, text)
            first = await app.ask(f"Which fee? {' '.join(SHAPES[60:120])}")
            persona = {"text": "You are " + " ".join(SHAPES[:100])}
            await app.client.put(f"/sessions/{first.session_id}/persona", json=persona)
            second = await app.ask(ASKED, session_id=first.session_id, rerank_top_n=50)
            assert second.sources
            assert faults_of(stub.raw_bodies[-1], ASKED) == []
            prompt = (await app.client.get(f"/turns/{second.finished['turn_id']}/prompt")).json()
            assert prompt["request"]["body"].encode() == stub.raw_bodies[-1]
            assert prompt["request"]["exact"] is True
