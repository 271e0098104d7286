"""Reading a turn again: from any event on, while it runs and after it ended."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import structlog

from core.conversation.turns import Turn, TurnRequest, TurnStatus
from services.conversation.turns import TurnVectors
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted, serving
from tests.support.waiting import until
from tests.support.wire.sse import Frame, Streamed, frames

PIECES = ("<think>hm\nand", " so</think>", "First.\n\nSecond", " line", "\n", "DONE: is text")


def numbered(stream: Streamed, after: int = 0) -> list[Frame]:
    """Every frame after this number except progress, which is not kept; of the last status only its place."""
    remaining = [frame for frame in stream.frames if frame.kind != "STATUS"]
    remaining += [
        Frame("STATUS", "", frame.event_id) for frame in stream.frames if '"finished"' in frame.text
    ]
    return [frame for frame in remaining if int(frame.event_id.rpartition(":")[2]) > after]


async def read(app: App, turn_id: str, after: int) -> Streamed:
    response = await app.client.get(f"/turns/{turn_id}/stream", params={"after": after})
    return Streamed(frames(response.text))


async def test_a_finished_turn_resumes_from_any_event_under_the_same_numbers(tmp_path: Path) -> None:
    """Discriminates: numbering the replay from the start loses the answer for a reader that returns late."""
    settings = make_settings(tmp_path, models={"llms": {"default": scripted(*PIECES)}})
    async with open_app(settings) as app:
        live = await app.ask("Tell me.")
        turn_id = live.finished["turn_id"]
        for after in range(len(live.frames) + 1):
            assert numbered(await read(app, turn_id, after)) == numbered(live, after)
        progress = len([frame for frame in live.frames if frame.kind == "STATUS"])
        assert progress == 5
        by_header = await app.client.get(
            f"/turns/{turn_id}/stream", headers={"last-event-id": f"{turn_id}:6"}
        )
        assert numbered(Streamed(frames(by_header.text))) == numbered(live, 6)


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize("script", [("half an", " answer", "!"), ("!",)])
async def test_a_failed_turn_keeps_its_numbers_too(tmp_path: Path, script: tuple[str, ...]) -> None:
    settings = make_settings(tmp_path, models={"llms": {"default": scripted(*script)}})
    async with open_app(settings) as app:
        live = await app.ask("Tell me.")
        again = await read(app, live.finished["turn_id"], 0)
    assert [(f.kind, f.event_id) for f in numbered(again)] == [(f.kind, f.event_id) for f in numbered(live)]
    assert again.answer == live.answer


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_interrupted_answer_is_never_taken_for_a_complete_one(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("half", 30.0, "never")}})
    turn_id = str(uuid.uuid4())
    async with open_app(settings) as app:
        asking = asyncio.create_task(app.ask("Slow?", turn_id=turn_id))
        await until(lambda: any(run.stream.layout) if (run := app.container.running.get(turn_id)) else False)
        run = app.container.running.get(turn_id)
        assert run is not None
        run.cut(TurnStatus.INTERRUPTED)
        live = await asking
        stored = (await app.client.get(f"/turns/{turn_id}")).json()
        again = await read(app, turn_id, 0)
    assert live.kinds[-4:] == ["SOURCE", "ERROR", "STATUS", "DONE"]
    assert live.finished["status"] == stored["status"] == "interrupted"
    assert (live.answer, stored["answer"]) == ("half", "half")
    assert "ERROR" in again.kinds


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_two_readers_of_a_running_turn_see_the_same(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("a", 0.2, "b", 0.2, "c")}})
    turn_id = str(uuid.uuid4())
    async with open_app(settings) as app:
        first = asyncio.create_task(app.ask("Together?", turn_id=turn_id))
        await until(lambda: app.container.running.get(turn_id))
        second = asyncio.create_task(app.ask("Together?", turn_id=turn_id))
        one, two = await asyncio.gather(first, second)
    assert one.frames == two.frames


async def test_ten_equal_requests_at_once_run_the_model_once(tmp_path: Path) -> None:
    from tests.support.models.scripted_llm import RECORDED

    model = scripted("once", record_as="ten")
    turn_id = str(uuid.uuid4())
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        answers = await asyncio.gather(*(app.ask("Once?", turn_id=turn_id) for _ in range(10)))
    assert {answer.answer for answer in answers} == {"once"}
    assert len(RECORDED["ten"]) == 1


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_second_turn_in_a_busy_session_is_refused_unless_it_names_its_parent(tmp_path: Path) -> None:
    async with open_app(
        make_settings(tmp_path, models={"llms": {"default": scripted("x", 0.3, "y")}})
    ) as app:
        root = await app.ask("Root?")
        session_id, parent = root.session_id, root.finished["turn_id"]
        running = asyncio.create_task(app.ask("Left?", session_id=session_id))
        await until(lambda: len(app.container.running))
        body = {"question": "Right?", "session_id": session_id}
        refused = await app.client.post("/knowledge_chat_conversation", json=body)
        sibling = await app.ask("Right?", session_id=session_id, parent_turn_id=parent)
        left = await running
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_busy")
    assert left.finished["parent_turn_id"] == sibling.finished["parent_turn_id"] == parent


async def test_a_retry_that_arrives_while_the_run_is_being_cut_runs_again(tmp_path: Path) -> None:
    """Discriminates: attaching to a cut run gives the retry that run's ERROR."""
    settings = make_settings(
        tmp_path,
        server={"disconnect_grace_s": 0},
        models={"llms": {"default": scripted("begun ", 0.3, "and ended", record_as="cut")}},
    )
    async with open_app(settings) as app:
        turn_id = str(uuid.uuid4())
        request = TurnRequest(question="Why?", owner="local", request_id="r", turn_id=turn_id)
        stream = await app.container.chat.begin_turn(request)
        await anext(stream.follow())
        assert await app.container.chat.stop(turn_id, "local")
        again = await app.ask("Why?", turn_id=turn_id)
        assert (again.kinds[-1], again.answer, again.text("ERROR")) == ("DONE", "begun and ended", "")


async def test_a_client_that_disconnects_before_the_answer_is_not_a_server_error(
    tmp_path: Path,
) -> None:
    """Discriminates: an object made from half a turn, which has no end; the log then contains a crash."""
    settings = make_settings(
        tmp_path,
        server={"disconnect_grace_s": 0},
        models={"llms": {"default": scripted("begun ", 30, "and ended", record_as="left")}},
    )
    with structlog.testing.capture_logs() as lines:
        async with serving(settings) as url, httpx.AsyncClient(base_url=url) as client:
            asking = asyncio.create_task(client.post(CHAT, json={"question": "Why?", "stream": False}))
            await until(lambda: RECORDED.get("left"))
            asking.cancel()
            await until(lambda: "turn_finished" in [line["event"] for line in lines])
    assert "request_crashed" not in [line["event"] for line in lines]


async def test_a_turn_whose_session_a_crash_left_unwritten_is_listed_and_can_be_retried(
    tmp_path: Path,
) -> None:
    """Discriminates: only the retry, or only the start, creating the missing session."""
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("answer")}})
    session_id, turn_id = str(uuid.uuid4()), str(uuid.uuid4())
    request = TurnRequest(question="Why?", owner="local", request_id="r", turn_id=turn_id)
    left = Turn(turn_id, session_id, "local", "Why?", 1, TurnStatus.RUNNING, request_hash=request.fingerprint)
    async with open_app(settings) as app:
        await app.container.conversations.turns.put(left, TurnVectors())
        assert (await app.client.get(f"/sessions/{session_id}")).status_code == 404
        again = await app.ask("Why?", turn_id=turn_id)
        assert (again.session_id, again.answer) == (session_id, "answer")
        other = replace(left, turn_id=str(uuid.uuid4()), session_id=str(uuid.uuid4()))
        await app.container.conversations.turns.put(other, TurnVectors())
    with structlog.testing.capture_logs() as lines:
        async with open_app(settings) as app:
            results = (await app.client.get(f"/sessions/{other.session_id}")).json()
            assert (results["title"], results["turn_count"]) == ("Why?", 1)
    assert [line["turns"] for line in lines if line["event"] == "turns_interrupted"] == [1]


async def test_a_stored_turn_can_be_stopped_however_early(tmp_path: Path) -> None:
    """Discriminates: a stop that does not wait for a turn being started says that nothing runs."""
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("a", 30, "b")}})
    async with open_app(settings) as app:
        chat, turns = app.container.chat, app.container.conversations.turns
        actual_early = 0
        for step in range(40):
            turn_id = str(uuid.uuid4())
            request = TurnRequest(question="Why?", owner="local", request_id="r", turn_id=turn_id)
            starting = asyncio.create_task(chat.begin_turn(request))
            await asyncio.sleep(step * 0.0002)
            stored = await turns.get(turn_id) is not None
            actual_early += stored and not starting.done()
            stopped = await chat.stop(turn_id, "local")
            assert stopped or not stored
            await starting
            await chat.stop(turn_id, "local")
        assert actual_early


async def test_a_reader_who_has_seen_everything_learns_that_nothing_is_left(tmp_path: Path) -> None:
    """Discriminates: an empty 200 makes an EventSource reconnect forever; `after` over a newer Last-Event-ID;
    the number of another turn's event taken for one of this turn."""
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("one ", "two")}})
    async with open_app(settings) as app:
        whole = await app.ask("Why?")
        turn_id, last = whole.frames[-1].event_id.split(":")
        path = f"/turns/{turn_id}/stream"
        assert (await app.client.get(path, params={"after": int(last)})).status_code == 204
        observed = {"Last-Event-ID": f"{turn_id}:{int(last) - 1}"}
        again = Streamed(frames((await app.client.get(path, params={"after": 1}, headers=observed)).text))
        assert again.kinds == ["DONE"]
        for unknown in (f"{turn_id}:²", f"{uuid.uuid4()}:{last}"):
            odd = await app.client.get(path, headers={b"Last-Event-ID": unknown.encode("latin-1")})
            assert Streamed(frames(odd.text)).answer == whole.answer


@pytest.mark.parametrize("answer", ["", "half an"])
async def test_a_reader_of_a_turn_cut_by_a_crash_gets_its_error_whatever_it_has_read(
    tmp_path: Path, answer: str
) -> None:
    """Discriminates: numbering the replay from the start gives 204, or DONE without ERROR, as for a stored
    turn; numbers that a reader has already read are taken for known events."""
    settings = make_settings(tmp_path)
    cut = Turn(str(uuid.uuid4()), str(uuid.uuid4()), "local", "Why?", 1, TurnStatus.RUNNING, answer=answer)
    async with open_app(settings) as app:
        await app.container.conversations.turns.put(cut, TurnVectors())
    async with open_app(settings) as app:
        for after in (0, 1, 2, 3, 4, 5, 6, 7, 500):
            again = await read(app, cut.turn_id, after)
            assert again.kinds[-3:] == ["ERROR", "STATUS", "DONE"]
            assert again.finished["status"] == "interrupted"
            assert int(again.frames[0].event_id.rpartition(":")[2]) > after
