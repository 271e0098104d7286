"""Which conversation a list of messages belongs to, with OpenAI's SDK and read back by our own routes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from core.conversation.importing import ImportedSession, imported_turn
from core.conversation.turns import PastTurn
from services.conversation.lineage import Lineage
from services.conversation.turns import MARKS
from tests.routes.openai.support import Door, Message, Numbered, assistant, door, read_until, user
from tests.support.models.counting_llm import COUNTING
from tests.support.servers.app import make_settings, open_app
from tests.support.stores.turn_model import embedded_in_background
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FACT = "The walnut harvest at Brookfield begins on the ninth of October."
ASKS = "When does the walnut harvest at Brookfield begin?"
# They need another version of OpenAI's SDK: `make clients` creates an environment for them.
OWN = Path(sys.prefix) / "clients" / "bin" / "python"
SCRIPT = Path(__file__).parent / "library_chat.py"
RECALLING = {"conversation": {"max_recent_turns": 3, "max_relevant_turns": 2, "relevant_turn_threshold": 0.0}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    async with door(tmp_path_factory.mktemp("lineage"), Numbered(), **RECALLING) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def at(served: Door) -> Door:
    served.stub.reset()
    return served


class Chat:
    """A chat client, which keeps messages but no ids."""

    def __init__(self, at: Door, **more: Any) -> None:
        self.at = at
        self.messages: list[Message] = []
        self.more = more
        self.turns: list[dict[str, Any]] = []

    async def send(self, text: str) -> dict[str, Any]:
        self.messages.append(user(text))
        answer = await self.at.ask(self.messages, **self.more)
        self.messages.append(assistant(answer.choices[0].message.content))
        self.turns.append(answer.wenmai)
        return dict(answer.wenmai)

    def back_to(self, turn: int) -> str:
        """Return to before turn `turn` (from 1) was asked; returns its question."""
        question = str(self.messages[2 * turn - 2]["content"])
        del self.messages[2 * turn - 2 :]
        return question


async def test_twenty_turns_with_an_edit_and_a_regeneration_are_one_session_with_two_branches(
    at: Door,
) -> None:
    chat = Chat(at)
    await chat.send(FACT)
    for number in range(2, 13):
        await chat.send(f"Note {number} of the old trunk: the kettle number {number} is blue.")
    trunk = list(chat.turns)
    asked_12 = chat.back_to(12)
    regenerated = await chat.send(asked_12)
    chat.back_to(7)
    edited = await chat.send("Note 7, edited: the lamp is green.")
    for number in range(8, 20):
        await chat.send(f"Note {number} after the edit: the lamp number {number} is green.")
    await embedded_in_background()
    last = await chat.send(ASKS)

    session_id = trunk[0]["session_id"]
    assert {turn["session_id"] for turn in chat.turns} == {session_id}
    assert regenerated["parent_turn_id"] == trunk[10]["turn_id"]
    assert edited["parent_turn_id"] == trunk[5]["turn_id"]
    assert last["turn_id"] == (await at.tree(session_id))[-1]["turn_id"]
    await check_branches(at, session_id, [message["content"] for message in chat.messages])


async def check_branches(at: Door, session_id: str, texts: list[str]) -> None:
    """Check for a trunk of twelve turns, the twelfth asked twice, and a branch from the seventh on, which is
    `texts`; the model received the very first turn, and nothing of the other branches."""
    turns = await at.tree(session_id)
    parents = {turn["turn_id"]: turn["parent_turn_id"] for turn in turns}
    assert len(turns) == len(set(parents)) == 12 + 1 + 14
    children = list(parents.values())
    forks = [parent for parent in parents if children.count(parent) > 1]
    assert forks == [turns[5]["turn_id"], turns[10]["turn_id"]]
    leaf = {"leaf": turns[-1]["turn_id"]}
    stored = (await at.http.get(f"/sessions/{session_id}/turns", params=leaf)).json()["turns"]
    assert [text for turn in stored for text in (turn["question"], turn["answer"])] == texts
    received = at.received()
    assert FACT in received
    assert "Note 19 after the edit" in received
    assert [number for number in range(7, 13) if f"Note {number} of the old trunk" in received] == []


@pytest.mark.full("imports a library in an environment of its own")
@pytest.mark.parametrize("library", ["langchain", "llama_index"])
async def test_libraries_that_keep_messages_create_the_same_tree(tmp_path: Path, library: str) -> None:
    """Discriminates: messages that a library writes differently, so that each turn begins a session."""
    if not OWN.exists():
        pytest.skip("make clients makes an environment for it")
    async with door(tmp_path, Numbered(), **RECALLING) as at:
        process = await asyncio.create_subprocess_exec(
            str(OWN), str(SCRIPT), library, str(at.client.base_url), FACT, ASKS,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout
        assert await process.stdout.readline() == b"waiting\n"
        await embedded_in_background()
        printed, _ = await process.communicate(b"\n")
        assert process.returncode == 0
        texts = [line.partition(" ")[2] for line in printed.decode().splitlines()]
        (session,) = await at.sessions()
        await check_branches(at, session["session_id"], texts)


def quoted(message: Any) -> str:
    """In NextChat's form: the thinking in front of the answer."""
    return f"> {message.reasoning_content}\n\n{message.content}".replace("so.\n\n", "so.\n\n> ", 1)


def tagged(message: Any) -> str:
    return f"<think>\n{message.reasoning_content}\n</think>\n\n{message.content}"


@pytest.mark.parametrize("written", [quoted, tagged])
async def test_thinking_returned_in_front_of_an_answer_is_not_part_of_it(at: Door, written: Any) -> None:
    """Discriminates: a session per question, each containing every earlier turn once more."""
    messages: list[Message] = []
    sessions = set()
    for number in range(3):
        at.stub.words = (f"<think>It is {number} and so.\n\nOr not?</think>", f"It is {number}.")
        messages.append(user(f"Which number, {written.__name__} {number}?"))
        answer = await at.ask(messages)
        messages.append(assistant(written(answer.choices[0].message)))
        sessions.add(answer.wenmai["session_id"])
    assert [len(await at.tree(session_id)) for session_id in sessions] == [3]


async def test_two_identical_chats_stay_separate(at: Door) -> None:
    at.stub.words = ("The same.",)
    first, second = Chat(at), Chat(at)
    one, two = await first.send("Hello, you."), await second.send("Hello, you.")
    assert one["session_id"] != two["session_id"]
    three = await second.send("And on.")
    assert three["parent_turn_id"] == two["turn_id"]


async def test_a_history_from_elsewhere_is_imported_once(at: Door) -> None:
    past = [user("Who is Ada?"), assistant("A cat."), user("And Bo?"), assistant("A dog.")]
    first = (await at.ask([*past, user("Which of them barks?")])).wenmai
    again = (await at.ask([*past, user("Which of them meows?")])).wenmai
    assert again["parent_turn_id"] == first["parent_turn_id"]
    turns = (await at.http.get(f"/sessions/{first['session_id']}/turns")).json()["turns"]
    assert [(turn["question"], turn["model_id"]) for turn in turns[:2]] == [
        ("Who is Ada?", "imported"),
        ("And Bo?", "imported"),
    ]
    assert len(await at.tree(first["session_id"])) == 4
    assert "A dog." in at.received()


async def test_the_oldest_messages_may_be_left_out(at: Door) -> None:
    chat = Chat(at)
    for text in ("First of four.", "Second of four.", "Third of four."):
        await chat.send(text)
    place = (await at.ask([*chat.messages[2:], user("Fourth of four.")])).wenmai
    assert place["parent_turn_id"] == chat.turns[-1]["turn_id"]


async def test_a_stopped_answer_is_recognized_by_what_the_client_read_of_it(at: Door) -> None:
    at.stub.words, at.stub.pause_s = tuple(f"word{n} " for n in range(500)), 0.02
    stream = await at.ask([user("Count the words.")], stream=True)
    read = await read_until(stream, "word3")
    await until(lambda: at.stub.left == 1)
    at.stub.words, at.stub.pause_s = ("Enough.",), 0.0
    place = (await at.ask([user("Count the words."), assistant(read[:-2]), user("Thanks for that.")])).wenmai
    parent = (await at.http.get(f"/turns/{place['parent_turn_id']}")).json()
    assert (parent["question"], parent["status"]) == ("Count the words.", "cancelled")
    assert len(await at.tree(place["session_id"])) == 2


async def test_explicit_ids_take_precedence(at: Door) -> None:
    chat = Chat(at)
    await chat.send("One thing.")
    await chat.send("Another thing.")
    session_id, first = chat.turns[0]["session_id"], chat.turns[0]["turn_id"]
    below = {"session_id": session_id, "parent_turn_id": first}
    place = (await at.ask([user("Elsewhere?")], extra_body=below)).wenmai
    assert (place["session_id"], place["parent_turn_id"]) == (session_id, first)
    by_header = await at.ask([user("Goes on.")], extra_headers={"X-Session-Id": session_id})
    assert by_header.wenmai["parent_turn_id"] == place["turn_id"]
    root = (
        await at.ask([user("Anew.")], extra_body={"session_id": session_id, "parent_turn_id": None})
    ).wenmai
    assert (root["session_id"], root["parent_turn_id"]) == (session_id, None)


async def test_a_clear_among_the_messages_begins_a_new_root(at: Door) -> None:
    """Discriminates: a new session, which lacks the persona and recalls what was cleared."""
    chat = Chat(at)
    await chat.send("Before the clearing.")
    await chat.send("/persona Speak like a lighthouse keeper.")
    await chat.send("/clear")
    after = await chat.send("After the clearing.")
    assert after["parent_turn_id"] is None
    assert "Before the clearing." not in at.received()
    assert "lighthouse keeper" in at.received()
    follow_up = await chat.send("And then?")
    assert follow_up["parent_turn_id"] == after["turn_id"]
    await chat.send("/clear")
    await chat.send("/clear")
    again = await chat.send("After two more.")
    assert again["parent_turn_id"] is None
    assert len({turn["session_id"] for turn in chat.turns}) == 1


async def test_a_retry_is_one_turn(at: Door) -> None:
    """The same request twice at once, and once more under its key."""
    at.stub.pause_s = 0.2
    body = {"model": "wenmai", "messages": [user("Twice at once?")]}
    both = await asyncio.gather(*(at.http.post("/v1/chat/completions", json=body) for _ in range(2)))
    assert len({each.json()["wenmai"]["turn_id"] for each in both}) == 1
    headers = {"Idempotency-Key": "key-1"}
    keyed = [
        (await at.http.post("/v1/chat/completions", json=body, headers=headers)).json() for _ in range(2)
    ]
    assert keyed[0]["wenmai"] == keyed[1]["wenmai"]
    assert keyed[0]["wenmai"]["turn_id"] != both[0].json()["wenmai"]["turn_id"]
    assert len(at.stub.bodies) == 2
    other = {**body, "messages": [user("Another question?")]}
    conflict = await at.http.post("/v1/chat/completions", json=other, headers=headers)
    assert (conflict.status_code, conflict.json()["error"]["code"]) == (409, "turn_conflict")


async def test_a_retry_after_a_failure_runs_the_same_turn_again(at: Door) -> None:
    """The SDK retries by default. Discriminates: a failed turn beside the one that was answered."""
    at.stub.status = 400
    client = at.client.with_options(max_retries=2)
    asking = asyncio.create_task(
        client.chat.completions.create(
            model="wenmai", messages=[{"role": "user", "content": "Fails at first?"}]
        )
    )
    await until(lambda: at.stub.bodies)
    at.stub.status = 200
    answer = await asking
    session_id = answer.wenmai["session_id"]  # type: ignore[attr-defined]
    turns = (await at.http.get(f"/sessions/{session_id}/turns")).json()["turns"]
    assert [(turn["question"], turn["status"]) for turn in turns] == [("Fails at first?", "completed")]
    assert len([each for each in await at.sessions() if each["title"] == "Fails at first?"]) == 1


async def test_another_owners_conversation_is_never_continued(tmp_path: Path) -> None:
    """Another owner's turns with exactly the same words."""
    async with door(tmp_path, Numbered(words=("Same.",)), server={"api_keys": ("alice", "bob")}) as at:
        alice, bob = (at.client.with_options(api_key=key) for key in ("alice", "bob"))
        messages: list[Any] = [user("A secret?"), assistant("Same."), user("Go on?")]
        first = await alice.chat.completions.create(model="wenmai", messages=messages[:1])
        other = await bob.chat.completions.create(model="wenmai", messages=messages)
        assert other.wenmai["session_id"] != first.wenmai["session_id"]  # type: ignore[attr-defined]
        place = {"session_id": first.wenmai["session_id"]}  # type: ignore[attr-defined]
        with pytest.raises(openai.NotFoundError):
            await bob.chat.completions.create(model="wenmai", messages=messages, extra_body=place)
        headers = {"Idempotency-Key": "key-1"}
        keyed = [
            await each.chat.completions.create(model="wenmai", messages=messages[:1], extra_headers=headers)
            for each in (alice, bob)
        ]
        assert keyed[0].wenmai["turn_id"] != keyed[1].wenmai["turn_id"]  # type: ignore[attr-defined]


async def test_turns_of_earlier_versions_are_recognized_too(tmp_path: Path) -> None:
    """Their records have no marks."""
    async with open_app(make_settings(tmp_path, models={"llms": {"default": COUNTING}})) as app:
        turns = [imported_turn(f"Question {n}?", f"Answer {n}.") for n in range(100)]
        brought = await app.container.sessions.importer.run(ImportedSession("local", turns))
        await app.container.conversations.turns.set_payload({MARKS: None}, brought.turn_ids)
        past = [each for turn in turns for each in (user(turn.question), assistant(turn.answer))]
        for _ in range(2):
            body = {"model": "wenmai", "messages": [*past, user("What now?")]}
            reply = (await app.client.post("/v1/chat/completions", json=body)).json()
            assert reply["wenmai"]["parent_turn_id"] == brought.turn_ids[-1]
        lineage = Lineage(app.container.conversations.turns)
        read = [PastTurn(turn.question, turn.answer) for turn in turns]
        started = time.perf_counter()
        match = await lineage.find(read, "local", None)
        print(f"the parent of 200 messages: {(time.perf_counter() - started) * 1000:.1f} ms")
        assert match is not None
        assert (match.turn.turn_id, match.depth) == (brought.turn_ids[-1], 100)
