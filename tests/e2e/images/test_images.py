"""Images in questions, end to end: what the model receives, what is stored, and what is erased."""

from __future__ import annotations

import base64
import io
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from api.offline.archives import open_restoring
from config.settings import StoreSettings
from core.images import MAX_STORED_SIDE
from services.conversation.images import BEGUN
from services.operations.backup.reader import open_archive
from tests.e2e.images.pictures import FORMS, WHAT, Looking, looking, part, picture, text, url_of, with_place
from tests.support.models.tool_stub import Step


@pytest.fixture(scope="module")
async def look(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Looking]:
    async with looking(tmp_path_factory.mktemp("images")) as opened:
        yield opened


def sent(form: str, body: dict[str, Any]) -> list[tuple[str, bytes | str]]:
    """The parts of the last message: media type and bytes of an image, or "text" and its words."""
    parts: list[tuple[str, bytes | str]] = []
    for each in body["messages"][-1]["content"]:
        if each["type"] == "text":
            parts.append(("text", each["text"]))
        elif form == "openai":
            head, _, data = each["image_url"]["url"].partition(";base64,")
            parts.append((head.removeprefix("data:"), base64.b64decode(data)))
        else:
            assert each["source"]["type"] == "base64"
            parts.append((each["source"]["media_type"], base64.b64decode(each["source"]["data"])))
    return parts


@pytest.mark.parametrize("form", FORMS)
async def test_an_image_is_sent_to_the_model_in_its_provider_s_form(form: str, look: Looking) -> None:
    """Discriminates: an image that is dropped on the way, put after the words, or sent unprocessed."""
    answer = await look.ask([text(WHAT), part(with_place(), "image/jpeg")], form)
    (kind, content), (_, words) = sent(form, look.stub.bodies[-1])
    assert kind == "image/jpeg"
    assert isinstance(content, bytes)
    assert b"secret" not in content
    with Image.open(io.BytesIO(content)) as drawn:
        assert (drawn.size, dict(drawn.getexif())) == ((48, 64), {})  # upright
    assert str(words).endswith(WHAT)
    turn = await look.turn(answer["turn_id"])
    (kept,) = turn["images"]
    assert (kept["media_type"], kept["width"], kept["height"]) == ("image/jpeg", 48, 64)
    shown = await look.app.client.get(f"/turns/{answer['turn_id']}/images/1")
    assert (shown.content, shown.headers["content-type"]) == (content, "image/jpeg")
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert shown.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("form", FORMS)
async def test_the_prompt_shows_the_image_and_later_ones_only_a_note(form: str, look: Looking) -> None:
    """Discriminates: an image that is sent with every question, a record that cannot be rebuilt."""
    answer = await look.ask([text(WHAT), part(picture()), part(picture("JPEG"), "image/jpeg")], form)
    prompt = (await look.app.client.get(f"/turns/{answer['turn_id']}/prompt")).json()
    question = next(each for each in prompt["parts"] if each["part"] == "question")
    assert question["images"] == 2
    assert question["tokens"] > 2
    assert prompt["request"]["exact"]
    assert len(prompt["request"]["body"]) < len(look.stub.raw_bodies[-1])
    await look.ask("那右边呢？", form, session_id=answer["session_id"])
    later = look.stub.raw_bodies[-1].decode()
    assert "base64" not in later
    assert "（这个问题附有 2 张图片，这里不再重发。）" in later
    prompt = (await look.app.client.get(f"/turns/{answer['turn_id']}/prompt")).json()
    assert prompt["request"]["exact"]


async def test_a_question_may_be_only_an_image_and_is_not_searched(look: Looking) -> None:
    response = await look.post([part(picture())], knowledge="auto", stream=False)
    answer = response.json()
    assert "rerank" not in answer["timings_ms"]
    assert (await look.turn(answer["turn_id"]))["question"] == "[image]"
    assert [kind for kind, _ in sent("openai", look.stub.bodies[-1])] == ["image/png", "text"]


async def test_claude_s_form_and_a_stored_image_are_accepted_too(look: Looking) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture()).decode()}
    both = [{"type": "image", "source": source}, part(picture("JPEG"), "image/jpeg")]
    first = await look.ask([text(WHAT), *both])
    before = sent("openai", look.stub.bodies[-1])[:2]
    for number in (2, 1):
        stored = {"type": "image", "turn_id": first["turn_id"], "number": number}
        again = await look.ask([text("再看一次"), stored])
        assert sent("openai", look.stub.bodies[-1])[0] == before[number - 1]
    await look.app.client.delete(f"/turns/{first['turn_id']}")
    assert (await look.app.client.get(f"/turns/{again['turn_id']}/images/1")).status_code == 200


async def test_a_large_image_is_stored_smaller_and_counts_by_its_size(look: Looking) -> None:
    """Discriminates: a budget that ignores images."""
    answer = await look.ask([text(WHAT), part(picture("PNG", (4_000, 1_000)))], "anthropic")
    (kept,) = (await look.turn(answer["turn_id"]))["images"]
    assert (kept["width"], kept["height"]) == (MAX_STORED_SIDE, 392)
    prompt = (await look.app.client.get(f"/turns/{answer['turn_id']}/prompt")).json()
    question = next(each for each in prompt["parts"] if each["part"] == "question")
    assert question["tokens"] >= MAX_STORED_SIDE * 392 // 750
    many = [part(picture("PNG", (1_568, 1_568)))] * 3
    refused = await look.post([text(WHAT), *many], "small")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "question_too_long")
    assert "images" in refused.json()["error"]["message"]


async def test_a_repeated_request_is_the_same_turn_and_another_image_is_a_conflict(look: Looking) -> None:
    turn_id = str(uuid.uuid4())
    question = [text(WHAT), part(picture())]
    first = await look.ask(question, turn_id=turn_id)
    assert (await look.ask(question, turn_id=turn_id))["answer"] == first["answer"]
    assert look.stub.bodies == []
    by_reference = [text(WHAT), {"type": "image", "turn_id": turn_id}]
    assert (await look.ask(by_reference, turn_id=turn_id))["answer"] == first["answer"]
    other = await look.post([text(WHAT), part(picture(size=(10, 10)))], turn_id=turn_id)
    assert other.status_code == 409


@pytest.mark.parametrize("what", ["turn", "session", "owner"])
async def test_images_are_erased_with_their_turn_and_the_proof_checks_them(what: str, tmp_path: Path) -> None:
    """Discriminates: a file that outlives its turn, a proof that does not look."""
    async with looking(tmp_path) as look:
        answer = await look.ask([text(WHAT), part(picture())])
        assert look.files() == [f"{answer['turn_id']}/1.png"]
        client = look.app.client
        match what:
            case "turn":
                proof = (await client.delete(f"/turns/{answer['turn_id']}")).json()["proof"]
            case "session":
                proof = (await client.delete(f"/sessions/{answer['session_id']}")).json()["proof"]
            case _:
                proof = (await client.delete("/admin/owners/local?confirm=local")).json()["proof"]
        assert look.files() == []
        assert {"images of questions"} <= {each["place"] for each in proof["searched"]}
        assert (proof["hits"], proof["complete"]) == (0, True)
        assert (await client.get(f"/turns/{answer['turn_id']}/images/1")).status_code == 404


async def test_images_expire_with_their_turn(tmp_path: Path) -> None:
    async with looking(tmp_path) as look:
        answer = await look.ask([text(WHAT), part(picture())])
        old = {"created_us": 1_700_000_000_000_000, "timestamp": "2023-11-14T22:13:20.000000Z"}
        await look.app.container.conversations.turns.set_payload(old, [answer["turn_id"]])
        await look.app.container.conversations.delete_old_conversations(30)
        assert look.files() == []


async def test_another_owner_s_image_is_unknown(tmp_path: Path) -> None:
    async with looking(tmp_path, server={"api_keys": ("one", "two")}) as look:
        look.app.client.headers["authorization"] = "Bearer one"
        answer = await look.ask([text(WHAT), part(picture())])
        path = f"/turns/{answer['turn_id']}/images/1"
        assert (await look.app.client.get(path)).status_code == 200
        assert (await look.app.client.get(path.replace("images/1", "images/2"))).status_code == 404
        look.app.client.headers["authorization"] = "Bearer two"
        assert (await look.app.client.get(path)).status_code == 404
        stolen = await look.post([text(WHAT), {"type": "image", "turn_id": answer["turn_id"]}])
        assert stolen.json()["error"]["code"] == "image_refused"


async def test_an_exported_conversation_is_imported_with_its_images(look: Looking) -> None:
    answer = await look.ask([text(WHAT), part(picture())])
    client, session = look.app.client, answer["session_id"]
    copy = (await client.get(f"/sessions/{session}/export?format=json")).json()
    kept = (await client.get(f"/turns/{answer['turn_id']}/images/1")).content
    assert copy["turns"][0]["images"] == [url_of(kept)]
    assert "1 张图片，不在这份文件里" in (await client.get(f"/sessions/{session}/export?format=md")).text
    await client.delete(f"/sessions/{session}")
    assert (await client.post("/sessions/import", json=copy)).status_code == 201
    assert (await client.get(f"/turns/{answer['turn_id']}/images/1")).content == kept
    await client.delete(f"/sessions/{session}")
    copy["turns"][0]["images"] = ["https://example.org/a.png"]
    refused = await client.post("/sessions/import", json=copy)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "image_refused")
    assert (await client.get(f"/sessions/{session}")).status_code == 404


async def test_a_backup_contains_the_images_and_their_owners(look: Looking, tmp_path: Path) -> None:
    answer = await look.ask([text(WHAT), part(picture())])
    report = await look.app.container.backups.create(reason="request")
    path = look.app.container.settings.store.backups / report.file
    with open_archive(path) as archive:
        archive.verify()
        member = next(each for each in archive.manifest.members if each.role == "images")
        records = {record.id: record.payload for record in archive.records(member)}
    (kind, content), *_ = records[answer["turn_id"]]["images"]
    shown = await look.app.client.get(f"/turns/{answer['turn_id']}/images/1")
    assert (kind, content) == ("image/png", shown.content)
    path.unlink()


async def test_chat_completions_accept_images_and_find_their_conversation(look: Looking) -> None:
    """Discriminates: a history with an image that is taken for another conversation and imported again."""
    client = look.app.client
    question = {"role": "user", "content": [text(WHAT), part(picture())]}
    look.stub.play(Step("一块红色。"))
    first = await client.post("/v1/chat/completions", json={"model": "wenmai", "messages": [question]})
    assert first.status_code == 200, first.text
    assert [kind for kind, _ in sent("openai", look.stub.bodies[-1])] == ["image/png", "text"]
    history = [question, first.json()["choices"][0]["message"], {"role": "user", "content": "那右边呢？"}]
    later = await client.post("/v1/chat/completions", json={"model": "wenmai", "messages": history})
    asked = later.json()["wenmai"]
    assert asked["session_id"] == first.json()["wenmai"]["session_id"]
    assert asked["parent_turn_id"] == first.json()["wenmai"]["turn_id"]
    before = await look.stored()
    plain = await client.post("/v1/chat/completions", json={"model": "plain/openai", "messages": [question]})
    assert plain.status_code == 200, plain.text
    assert [kind for kind, _ in sent("openai", look.stub.bodies[-1])] == ["image/png", "text"]
    assert await look.stored() == before
    sound = {"role": "user", "content": [text(WHAT), {"type": "input_audio", "input_audio": {"data": "x"}}]}
    refused = await client.post("/v1/chat/completions", json={"model": "wenmai", "messages": [sound]})
    assert refused.status_code == 400


async def test_the_list_of_models_says_which_accept_images(look: Looking) -> None:
    models = (await look.app.client.get("/models")).json()["models"]
    assert {each["id"]: each["vision"] for each in models if each["id"] in ("openai", "blind")} == {
        "openai": True,
        "blind": False,
    }


async def test_a_restored_backup_has_its_images_again(look: Looking, tmp_path: Path) -> None:
    """Discriminates: an archive whose images nothing restores."""
    answer = await look.ask([text(WHAT), part(picture())])
    shown = await look.app.client.get(f"/turns/{answer['turn_id']}/images/1")
    report = await look.app.container.backups.create(reason="request")
    path = look.app.container.settings.store.backups / report.file
    names = StoreSettings(data_dir=tmp_path / "restored")
    async with open_restoring(path) as restoring:
        await restoring.into(names, lambda number: None)
    path.unlink()
    kept = names.data_dir / "images" / answer["turn_id"] / "1.png"
    assert kept.read_bytes() == shown.content


async def test_an_image_left_by_a_crash_without_its_turn_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "images" / str(uuid.uuid4())
    left.mkdir(parents=True)
    (left / "1.png").write_bytes(picture())
    (left / BEGUN).touch()
    async with looking(tmp_path) as look:
        assert look.files() == []
