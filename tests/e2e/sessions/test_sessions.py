"""Sessions over HTTP: personas, trees, titles, and refusals."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.services.conversation.stores import SESSIONS, TURNS
from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted
from tests.support.waiting import until
from tests.support.wire.copies import branch, import_session, qa, tree, uid

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """Shared: every test works in its own sessions."""
    async with open_app(make_settings(tmp_path_factory.mktemp("shared"))) as opened:
        yield opened


NOBODYS = str(uuid.uuid4())


async def new_session(app: App) -> str:
    response = await app.client.post("/sessions", json={})
    assert response.json()["persona"] is None
    return str(response.json()["session_id"])


async def test_a_persona_is_set_replaced_and_cleared_and_the_session_shows_it(app: App) -> None:
    session_id = await new_session(app)
    path = f"/sessions/{session_id}/persona"
    first = (await app.client.put(path, json={"text": " Be kind.\r\n", "name": "Kind"})).json()
    assert first["session_id"] == session_id
    assert (first["persona"]["text"], first["persona"]["name"]) == ("Be kind.", "Kind")
    document_id = await app.add_text("brief.md", "# Brief\nBe brief.")
    chunks = (await app.client.get(f"/documents/{document_id}/chunks")).json()["chunks"]
    origin = {"document_id": document_id, "chunk_id": chunks[0]["chunk_id"]}
    second = (await app.client.put(path, json={"text": "Be brief.", **origin})).json()
    assert second["persona"]["persona_id"] == first["persona"]["persona_id"]
    assert second["persona"]["name"] == ""
    assert {name: second["persona"][name] for name in origin} == origin
    assert (await app.client.get(f"/sessions/{session_id}")).json()["persona"] == second["persona"]
    assert (await app.client.get("/sessions")).json()["sessions"][0]["persona"] == second["persona"]
    assert (await app.client.delete(path)).json()["persona"] is None
    assert (await app.client.delete(path)).status_code == 200
    assert (await app.client.get(f"/sessions/{session_id}")).json()["persona"] is None


async def test_a_persona_survives_turns_changes_and_a_restart(tmp_path: Path) -> None:
    """Discriminates: the start of a turn or a new title that writes the whole record without the persona."""
    async with open_app(make_settings(tmp_path)) as app:
        session_id = await new_session(app)
        fields = await app.client.put(f"/sessions/{session_id}/persona", json={"text": "Be kind."})
        await app.ask("What is this?", session_id=session_id)
        await app.client.patch(f"/sessions/{session_id}", json={"title": "Mine", "hold": True})
    async with open_app(make_settings(tmp_path)) as app:
        session = (await app.client.get(f"/sessions/{session_id}")).json()
    assert session["persona"] == fields.json()["persona"]
    assert (session["title"], session["hold"]) == ("Mine", True)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "text"),
        ({"text": ""}, 422, "text"),
        ({"text": " \n\u200b"}, 422, "text"),
        ({"text": "a\0b"}, 422, "text"),
        ({"text": "x" * 16_001}, 422, "text"),
        ({"text": 1}, 422, "text"),
        ({"text": None}, 422, "text"),
        ({"text": "x", "name": "n" * 201}, 422, "name"),
        ({"text": "x", "surplus": 1}, 422, "surplus"),
        ([], 400, "body"),
    ],
)
async def test_a_bad_persona_is_refused(app: App, body: Any, status: int, field: str) -> None:
    session_id = await new_session(app)
    response = await app.client.put(f"/sessions/{session_id}/persona", json=body)
    assert response.status_code == status
    assert field in response.json()["error"]["message"]
    assert (await app.client.get(f"/sessions/{session_id}")).json()["persona"] is None


ROUTES = [
    ("PUT", "/sessions/{}/persona", {"text": "x"}),
    ("DELETE", "/sessions/{}/persona", None),
    ("GET", "/sessions/{}/export", None),
    ("GET", "/sessions/{}/export?format=json", None),
    ("GET", "/sessions/{}/tree", None),
    ("GET", "/sessions/{}/turns", None),
]


async def send(client: httpx.AsyncClient, method: str, path: str, body: Any, key: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return await client.request(method, path, json=body, headers=headers)


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_an_invalid_session_id_is_refused(app: App, method: str, path: str, body: Any) -> None:
    """B65 to B67."""
    for bad in ("nope", "x" * 5_000, "' OR 1=1", "..%2Fx"):
        assert (await send(app.client, method, path.format(bad), body)).status_code in (404, 422), bad
    missing = await send(app.client, method, path.format(NOBODYS), body)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_session")


async def test_an_invalid_title_or_id_is_explained_in_plain_words(app: App) -> None:
    """Discriminates: "at least 1 item after validation"; "invalid character: found `n` at 0"."""
    session = (await app.client.post("/sessions", json={})).json()["session_id"]
    empty = await app.client.patch(f"/sessions/{session}", json={"title": ""})
    assert empty.json()["error"]["message"] == "title: must not be empty."
    no_id = await app.client.get("/turns/nope/prompt")
    assert no_id.json()["error"]["message"] == "turn_id: this is not a valid id: a UUID is expected."


async def test_another_owners_session_answers_as_unknown(tmp_path: Path) -> None:
    """B64. Discriminates: reading a session without comparing its owner."""
    async with open_app(make_settings(tmp_path, server={"api_keys": ["mine", "other"]})) as app:
        mine = {"authorization": "Bearer mine"}
        imported = await app.client.post(
            "/sessions/import", json={"turns": [qa(turn_id=NOBODYS)]}, headers=mine
        )
        session_id = imported.json()["session_id"]
        for method, path, body in ROUTES:
            response = await send(app.client, method, path.format(session_id), body, "other")
            assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_session"), path
        taken = {"turns": [qa(turn_id=NOBODYS)]}
        assert (await send(app.client, "POST", "/sessions/import", taken, "other")).status_code == 409
        assert (await send(app.client, "GET", f"/sessions/{session_id}", None, "mine")).json()[
            "persona"
        ] is None


async def test_an_unknown_export_format_is_refused(app: App) -> None:
    response = await app.client.get(f"/sessions/{await new_session(app)}/export?format=pdf")
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_field")


async def test_the_tree_describes_each_turn(app: App) -> None:
    one, two = uid(), uid()
    summary = {"text": "So far.", "start": one, "covers": [one], "created_at": "2024-01-01T00:00:00Z"}
    turns = [
        qa(turn_id=one, timestamp="2024-01-01T00:00:00Z"),
        qa("/help", turn_id=two, command="help", status="completed", summary=summary),
    ]
    session_id = (await import_session(app, turns=turns))["session_id"]
    first, second = await tree(app, session_id)
    assert first == {
        "turn_id": one, "parent_turn_id": None, "status": "completed", "seq": 0, "command": "",
        "created_at": "2024-01-01T00:00:00.000000Z", "has_summary": False, "question": "Why?",
    }  # fmt: skip
    assert (second["command"], second["has_summary"], second["question"]) == ("help", True, "/help")
    plain, commanded = await branch(app, session_id)
    assert "command" not in plain
    assert "summary" not in plain
    assert commanded["command"] == "help"
    assert commanded["summary"] == {"text": "So far.", "start": one, "covers": 1}


async def test_the_newest_branch_is_listed_unless_a_leaf_is_named(app: App) -> None:
    ids = [uid() for _ in range(3)]
    turns = [qa("root", turn_id=ids[0]), qa("old", turn_id=ids[1]), qa("new", parent_turn_id=ids[0])]
    session_id = (await import_session(app, turns=turns))["session_id"]
    assert [turn["question"] for turn in await branch(app, session_id)] == ["root", "new"]
    old = (await app.client.get(f"/sessions/{session_id}/turns?leaf={ids[1]}")).json()["turns"]
    assert [turn["question"] for turn in old] == ["root", "old"]
    page = (await app.client.get(f"/sessions/{session_id}/turns?leaf={ids[1]}&limit=1")).json()["turns"]
    assert page == old[1:]  # its parent is the leaf of the page before
    missing = await app.client.get(f"/sessions/{session_id}/turns?leaf={NOBODYS}")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_turn")


async def test_erasing_a_session_erases_its_persona_and_turns(app: App) -> None:
    before = [(await app.container.store.count(name)).count for name in (TURNS, SESSIONS)]
    imported = await import_session(app, persona="Be kind.", turns=[qa(), qa()])
    erased = (await app.client.delete(f"/sessions/{imported['session_id']}")).json()
    assert erased["turns_erased"] == 2
    assert [(await app.container.store.count(name)).count for name in (TURNS, SESSIONS)] == before


async def test_a_title_derived_from_a_question_is_erased_with_it(app: App) -> None:
    """Discriminates: a title that outlives its question, or an edited one that is erased with it."""
    first = await app.ask("My PIN is 4711.")
    second = await app.ask("And then?", session_id=first.session_id)
    session = f"/sessions/{first.session_id}"
    assert (await app.client.get(session)).json()["title"] == "My PIN is 4711."
    await app.client.delete(f"/turns/{second.finished['turn_id']}")
    assert (await app.client.get(session)).json()["title"] == "My PIN is 4711."
    await app.client.delete(f"/turns/{first.finished['turn_id']}")
    assert (await app.client.get(session)).json()["title"] == ""
    third = await app.ask("What is this?", session_id=first.session_id)
    assert (await app.client.get(session)).json()["title"] == "What is this?"
    await app.client.patch(session, json={"title": "What is this?"})
    await app.client.delete(f"/turns/{third.finished['turn_id']}")
    assert (await app.client.get(session)).json()["title"] == "What is this?"


async def test_a_retry_of_clear_with_a_parent_is_replayed(app: App) -> None:
    first = await app.ask("What is this?")
    again = {
        "session_id": first.session_id,
        "turn_id": str(uuid.uuid4()),
        "parent_turn_id": first.finished["turn_id"],
    }
    once, twice = await app.ask("/clear", **again), await app.ask("/clear", **again)
    assert once.answer == twice.answer
    assert twice.finished["parent_turn_id"] is None


async def test_new_turns_follow_an_imported_turn_from_a_clock_ahead(app: App) -> None:
    """Discriminates: times taken only from the clock, so that an imported turn stays the newest."""
    ahead = (datetime.now(UTC) + timedelta(hours=5)).isoformat()
    imported = await import_session(app, turns=[qa("One?", "One.", timestamp=ahead)])
    session_id = imported["session_id"]
    second = await app.ask("Two?", session_id=session_id)
    third = await app.ask("Three?", session_id=session_id)
    assert second.finished["parent_turn_id"] == imported["turns"][0]
    assert third.finished["parent_turn_id"] == second.finished["turn_id"]


async def test_children_of_an_erased_turn_are_shown_as_roots_everywhere(app: App) -> None:
    """Discriminates: showing the stored parent, in any of the three."""
    first = await app.ask("One?")
    session_id, erased = first.session_id, first.finished["turn_id"]
    child = (await app.ask("Two?", session_id=session_id)).finished["turn_id"]
    await app.client.delete(f"/turns/{erased}")
    turn = (await app.client.get(f"/turns/{child}")).json()
    (node,) = (await app.client.get(f"/sessions/{session_id}/tree")).json()["turns"]
    (listed,) = (await app.client.get(f"/sessions/{session_id}/turns")).json()["turns"]
    assert [each["parent_turn_id"] for each in (turn, node, listed)] == [None, None, None]


async def test_the_list_is_searched_by_title(tmp_path: Path) -> None:
    """Discriminates: `q` ignored, or compared literally."""
    async with open_app(make_settings(tmp_path)) as app:
        for title in ("Ｒｅｆｕｎｄｓ 2024", "退款说明", "refunds and returns"):
            await app.client.post("/sessions", json={"title": title})

        async def titles_of(q: str, **more: Any) -> list[str]:
            listed = (await app.client.get("/sessions", params={"q": q, **more})).json()
            return [session["title"] for session in listed["sessions"]]

        everything = ["refunds and returns", "退款说明", "Ｒｅｆｕｎｄｓ 2024"]
        assert await titles_of("") == await titles_of("  ") == everything
        assert await titles_of(" REFUNDS ") == [everything[0], everything[2]]
        assert await titles_of("退款") == ["退款说明"]
        assert await titles_of("none of them") == []
        one = (await app.client.get("/sessions", params={"q": "refunds", "limit": 1})).json()
        assert await titles_of("refunds", limit=1, before=one["next"]) == [everything[2]]
        assert one["sessions"][0]["turn_count"] == 0
        for bad, why in (("a\0b", "NUL"), ("x" * 201, "201 characters")):
            refused = await app.client.get("/sessions", params={"q": bad})
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_field")
            assert why in refused.json()["error"]["message"]


async def test_the_list_is_searched_by_questions_and_answers(tmp_path: Path) -> None:
    """Discriminates: only titles; one word of several; the oldest turn; other owners' conversations; a page
    that is filled up with results of the next."""
    async with open_app(make_settings(tmp_path, server={"api_keys": ["mine", "other"]})) as app:
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("mine", "other"))

        async def add_session(title: str, *turns: tuple[str, str], of: dict[str, str] = one) -> str:
            asked = [{"question": question, "answer": answer} for question, answer in turns]
            body = {"title": title, "turns": asked}
            return str(
                (await app.client.post("/sessions/import", json=body, headers=of)).json()["session_id"]
            )

        async def matches(q: str, **more: Any) -> list[tuple[str, str | None]]:
            page = (await app.client.get("/sessions", params={"q": q, **more}, headers=one)).json()
            return [(each["title"], each.get("match", {}).get("text")) for each in page["sessions"]]

        fridge = "The **warranty** of a fridge is five years, that of a freezer two."
        await add_session("Kitchen", ("How long?", fridge), ("And the freezers' warranties?", "Two years."))
        await add_session("Garden", ("Does the mower have a warranty?", "No."))
        await add_session("报销", ("出差住酒店能报多少？", "一线城市每晚不超过五百元。"))
        await add_session("Theirs", ("Is there a warranty on the freezer?", "Yes."), of=two)
        about = "Does the mower have a warranty?"
        assert await matches("warranty") == [("Garden", about), ("Kitchen", "…the freezers' warranties?")]
        assert await matches("freezer warranty") == [("Kitchen", "And the freezers' warranties?")]
        assert await matches("五百元") == [("报销", "一线城市每晚不超过五百元。")]
        assert await matches("fridge") == [("Kitchen", "…of a fridge is five years, that of a freezer two.")]
        assert await matches("KITCHEN") == [("Kitchen", None)]
        assert await matches("the") == await matches("?") == await matches("dishwasher") == []
        first = (await app.client.get("/sessions", params={"q": "warranty", "limit": 1}, headers=one)).json()
        assert await matches("warranty", limit=1, before=first["next"]) == (await matches("warranty"))[1:]
        turn_id = first["sessions"][0]["match"]["turn_id"]
        assert (await app.client.get(f"/turns/{turn_id}", headers=one)).json()["question"] == about


async def test_a_search_says_when_more_turns_match_than_it_returns(tmp_path: Path) -> None:
    """Discriminates: a list that ends as if nothing else contained the words."""
    async with open_app(make_settings(tmp_path)) as app:
        turns = [{"question": f"Tides, part {part}?", "answer": "At noon."} for part in range(100)]
        await app.client.post("/sessions/import", json={"title": "Sea", "turns": turns})
        whole = (await app.client.get("/sessions", params={"q": "part 7"})).json()
        most = (await app.client.get("/sessions", params={"q": "tides"})).json()
        assert whole["sessions"]
        assert "partial" not in whole
        assert most["partial"] is True


async def test_a_session_is_pending_while_one_of_its_turns_runs(tmp_path: Path) -> None:
    """Discriminates: every session while one is busy; a state that outlives its turn."""
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("x", 30.0)}})) as app:
        other = (await app.client.post("/sessions", json={"title": "Other"})).json()
        session_id, turn_id = str(uuid.uuid4()), str(uuid.uuid4())
        asking = asyncio.create_task(app.ask("Why?", session_id=session_id, turn_id=turn_id))
        await until(lambda: len(app.container.running))

        async def states() -> dict[str, str]:
            listed = (await app.client.get("/sessions")).json()["sessions"]
            single = [(await app.client.get(f"/sessions/{each['session_id']}")).json() for each in listed]
            assert [each["state"] for each in listed] == [each["state"] for each in single]
            return {each["session_id"]: each["state"] for each in listed}

        assert await states() == {other["session_id"]: "idle", session_id: "pending"}
        body = {"question": "And?", "session_id": session_id}
        refused = await app.client.post(CHAT, json=body)
        assert refused.json()["error"]["code"] == "session_busy"
        await app.client.post(f"/turns/{turn_id}/stop")
        await asking
        await until(lambda: not len(app.container.running))
        assert set((await states()).values()) == {other["state"]} == {"idle"}


async def test_the_tree_shows_each_question_as_one_short_line(app: App) -> None:
    """Discriminates: questions stored with the cached tree, which become outdated."""
    long = "one\n\n two\tthree　" + "很长" * 100
    imported = await import_session(app, turns=[qa(long), qa("short")])
    session_id = imported["session_id"]
    first, second = await tree(app, session_id)
    assert first["question"] == "one two three " + "很长" * 53
    assert (len(first["question"]), second["question"]) == (120, "short")
    asked = await app.ask("/help  me\nplease", session_id=session_id)
    assert (await tree(app, session_id))[-1]["question"] == "/help me please"
    turns = app.container.conversations.turns
    await turns.set_payload({"user_query": 5}, [asked.finished["turn_id"]])
    assert [node["question"] for node in await tree(app, session_id)][1:] == ["short", ""]
