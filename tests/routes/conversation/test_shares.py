"""Links to a branch: what they show, and that they show nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import time_machine

from core.images import Image
from core.knowledge import Citation
from services.conversation.turns import TurnVectors
from tests.support.servers.app import CHAT, App, make_settings, open_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE, BOB = ({"authorization": f"Bearer {name}"} for name in ("alice", "bob"))
PASSAGE = "The walnut harvest begins in October."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    server = {"api_keys": ("alice", "bob")}
    async with open_app(make_settings(tmp_path_factory.mktemp("shares"), server=server)) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def session(app: App) -> dict[str, Any]:
    """Two branches: a root, and two answers below it."""
    root = await ask(app, "What is a <b>walnut</b>?")
    place = {"session_id": root["session_id"], "parent_turn_id": root["turn_id"]}
    left, right = [await ask(app, question, **place) for question in ("The left one?", "The right one?")]
    return {"session_id": root["session_id"], "left": left["turn_id"], "right": right["turn_id"]}


async def ask(
    app: App, question: str, headers: dict[str, str] | None = ALICE, **place: str
) -> dict[str, Any]:
    body = {"question": question, "stream": False, **place}
    return dict((await app.client.post(CHAT, json=body, headers=headers)).json())


async def share(
    app: App, session: dict[str, Any], headers: dict[str, str] | None = ALICE, **body: Any
) -> dict[str, Any]:
    path = f"/sessions/{session['session_id']}/shares"
    made = await app.client.post(path, json=body, headers=headers)
    assert made.status_code == 201, made.text
    return dict(made.json())


async def opened(app: App, url: str) -> httpx.Response:
    """Opened without a key."""
    return await app.client.get(url)


async def test_a_link_shows_its_branch_and_no_other_and_nothing_later(
    app: App, session: dict[str, Any]
) -> None:
    link = await share(app, session, leaf=session["left"])
    later = {"session_id": session["session_id"], "parent_turn_id": session["left"]}
    await ask(app, "And what came later?", **later)
    page = await opened(app, link["url"])
    assert page.status_code == 200
    assert "The left one?" in page.text
    assert "What is a &lt;b&gt;walnut&lt;/b&gt;?" in page.text
    assert "The right one?" not in page.text
    assert "And what came later?" not in page.text
    assert session["session_id"] not in page.text
    assert page.headers["x-robots-tag"].startswith("noindex")
    assert '<meta name="robots" content="noindex">' in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"


async def test_passages_are_shown_only_if_that_was_allowed(app: App, session: dict[str, Any]) -> None:
    turns = app.container.conversations.turns
    turn = await turns.get(session["right"])
    assert turn is not None
    source = Citation(1, "d", "harvest.md", "c", 0.9, None, "", 0, 9, PASSAGE, PASSAGE, cited=True)
    await turns.put(replace(turn, sources=(source,)), TurnVectors())
    without = await share(app, session, leaf=session["right"])
    along = await share(app, session, leaf=session["right"], passages=True)
    note = "sources, which this link does not show"  # what is [1]?
    hidden, shown = [(await opened(app, link["url"])).text for link in (without, along)]
    assert (PASSAGE in hidden, note in hidden) == (False, True)
    assert (PASSAGE in shown, note in shown) == (True, False)


@pytest.mark.parametrize(("title", "words"), [("Nuts", "Document deleted"), ("核桃什么时候收", "文档已删除")])
async def test_a_source_whose_document_was_deleted_says_so(
    app: App, session: dict[str, Any], title: str, words: str
) -> None:
    """Discriminates: a number with an empty line beside it, and an empty quotation."""
    text = f"# Harvest of {title}\n\n{PASSAGE}".encode()
    sent = {"file": ("harvest.md", text, "text/markdown")}
    added = (await app.client.post("/documents", files=sent, headers=ALICE)).json()
    await app.client.get(f"/jobs/{added['job_id']}/stream", headers=ALICE)  # to its end
    cited = await ask(app, "When does the walnut harvest begin?")
    path = f"/sessions/{cited['session_id']}"
    await app.client.patch(path, json={"title": title}, headers=ALICE)
    link = await share(app, cited, passages=True)
    assert "harvest.md" in (await opened(app, link["url"])).text
    document_id = added["document"]["document_id"]
    assert (await app.client.delete(f"/documents/{document_id}", headers=ALICE)).status_code == 200
    page = (await opened(app, link["url"])).text
    assert f'<li value="1">{words}</li>' in page
    assert "<blockquote></blockquote>" not in page


async def test_an_answer_contains_no_markup_and_no_image(app: App, session: dict[str, Any]) -> None:
    turns = app.container.conversations.turns
    turn = await turns.get(session["left"])
    assert turn is not None
    answer = "<script>alert(1)</script> ![x](http://elsewhere.test/x.png) **bold** [a](javascript:alert(1))"
    await turns.put(replace(turn, answer=answer), TurnVectors())
    page = (await opened(app, (await share(app, session, leaf=session["left"]))["url"])).text
    assert "<strong>bold</strong>" in page
    assert "<script" not in page
    assert "<img" not in page
    assert 'href="javascript' not in page


async def test_an_image_that_the_page_leaves_out_is_mentioned(app: App, session: dict[str, Any]) -> None:
    turns = app.container.conversations.turns
    turn = await turns.get(session["left"])
    assert turn is not None
    await turns.put(replace(turn, images=(Image("image/png", 1, 1, 1, "0"),) * 2), TurnVectors())
    page = (await opened(app, (await share(app, session, leaf=session["left"]))["url"])).text
    assert page.count("Images: 2, not shown here") == 1


async def test_lines_and_numbers_are_as_on_the_page(app: App, session: dict[str, Any]) -> None:
    turns = app.container.conversations.turns
    turn = await turns.get(session["left"])
    assert turn is not None
    table = "| Kind | Month |\n| --- | --- |\n| walnut | October |"
    source = Citation(3, "d", "harvest.md", "c", 0.9, None, "", 0, len(table), table, table)
    answer = "**Harvest**\nIn ~~May~~ October [3]."
    await turns.put(replace(turn, answer=answer, sources=(source,)), TurnVectors())
    page = (await opened(app, (await share(app, session, leaf=session["left"], passages=True))["url"])).text
    assert "<strong>Harvest</strong><br" in page
    assert "<s>May</s>" in page
    assert f'<h3>Sources</h3><ol><li value="3">harvest.md<blockquote>{table}</blockquote>' in page
    assert "li>blockquote{white-space:pre-wrap}" in page
    assert "color-scheme:light dark" in page


async def rendered(app: App, session: dict[str, Any], answer: str) -> str:
    """The answer as its link shows it."""
    turns = app.container.conversations.turns
    turn = await turns.get(session["left"])
    assert turn is not None
    await turns.put(replace(turn, answer=answer), TurnVectors())
    page = (await opened(app, (await share(app, session, leaf=session["left"]))["url"])).text
    return page.rpartition("</h2><div>")[2].partition("</div>")[0].strip()


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("**注意：**请提前", "<strong>注意：</strong>请提前"),
        (
            "**年假（带薪）**按，其中**“累计工龄”**是",
            "<strong>年假（带薪）</strong>按，其中<strong>“累计工龄”</strong>是",
        ),
        ("**甲：**乙**丙：**丁", "<strong>甲：</strong>乙<strong>丙：</strong>丁"),
        ("~~原价：~~现价 3~5 元，5~7 元", "<s>原价：</s>现价 3~5 元，5~7 元"),
        ("`甲**` **未完：后", "<code>甲**</code> **未完：后"),
        ("**foo:**bar", "**foo:**bar"),  # as CommonMark has it
        ("基数*（1+比例）*月数", "基数*（1+比例）*月数"),
        ("中__“甲”__乙", "中__“甲”__乙"),
    ],
)
async def test_bold_begins_and_ends_beside_chinese_punctuation(
    app: App, session: dict[str, Any], answer: str, shown: str
) -> None:
    """Discriminates: CommonMark's own rule; a rule that also changes single asterisks and underscores."""
    assert await rendered(app, session, answer) == f"<p>{shown}</p>"


async def test_headings_of_an_answer_are_ranked_below_its_question(app: App, session: dict[str, Any]) -> None:
    shown = await rendered(app, session, "# 总览\n\n###### 六\n\n下划\n===")
    assert shown == "<h3>总览</h3>\n<h6>六</h6>\n<h3>下划</h3>"


async def test_formulas_keep_every_character(app: App, session: dict[str, Any]) -> None:
    """Discriminates: a_b*c as emphasis, a backslash lost, lines of a formula as a list."""
    inline = r"其中 $a_b*c$ 和 \(x*y_z*w\)，$5 and $6"
    block = "$$\nE*m*c\n- 1\n= 2\n$$"
    shown = await rendered(app, session, f"{inline}\n\n{block}\n\n*真的* 完")
    lines = "<br />\n".join(block.split("\n"))
    assert shown == f"<p>{inline}</p>\n<p>{lines}</p>\n<p><em>真的</em> 完</p>"


async def test_a_revoked_an_expired_and_a_guessed_link_open_nothing(
    app: App, session: dict[str, Any]
) -> None:
    path = f"/sessions/{session['session_id']}/shares"
    first, second = await share(app, session), await share(app, session, expire_days=1)
    listed = (await app.client.get(path, headers=ALICE)).json()["shares"]
    assert [each["share_id"] for each in listed] == [first["share_id"], second["share_id"]]
    assert not [each for each in listed if "url" in each]
    revoked = await app.client.delete(f"{path}/{first['share_id']}", headers=ALICE)
    assert revoked.json() == {"share_id": first["share_id"], "revoked": True}
    assert (await app.client.delete(f"{path}/{first['share_id']}", headers=ALICE)).status_code == 404
    assert (await opened(app, first["url"])).status_code == 404
    assert (await opened(app, second["url"])).status_code == 200
    guessed = second["url"][:-2] + ("AA" if second["url"][-2:] != "AA" else "BA")
    for url in (guessed, second["url"][:-4], f"{second['url']}AAAA", "/shared/x", "/shared/%00"):
        assert (await opened(app, url)).status_code == 404, url
    with time_machine.travel(timedelta(hours=23)):
        assert (await opened(app, second["url"])).status_code == 200
    with time_machine.travel(timedelta(days=1, minutes=1)):
        assert (await opened(app, second["url"])).status_code == 404
        assert (await app.client.get(path, headers=ALICE)).json()["shares"] == []


@pytest.mark.parametrize(
    ("accepted", "language", "words"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh", "这个链接打不开了"),
        ("en-GB,en;q=0.9", "en", "This link does not work"),
        ("fr", "en", "This link does not work"),
    ],
)
async def test_a_browser_gets_a_page_that_explains_why_a_link_opens_nothing(
    app: App, session: dict[str, Any], accepted: str, language: str, words: str
) -> None:
    """Discriminates: JSON for a browser; a page that is cached, indexed, or reveals what was shared."""
    link = await share(app, session)
    path = f"/sessions/{session['session_id']}/shares/{link['share_id']}"
    await app.client.delete(path, headers=ALICE)
    headers = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "accept-language": accepted}
    for url in (link["url"], "/shared/x"):
        page = await app.client.get(url, headers=headers)
        assert page.status_code == 404
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-robots-tag"].startswith("noindex")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert f'<html lang="{language}">' in page.text
        assert f"<h1>{words}</h1>" in page.text
        assert "walnut" not in page.text


@pytest.mark.parametrize("accepted", ["application/json", "*/*", "application/json, text/html;q=0.5"])
async def test_programs_get_json_that_explains_why_a_link_opens_nothing(app: App, accepted: str) -> None:
    reply = await app.client.get("/shared/x", headers={"accept": accepted})
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "not_found"
    assert reply.headers["cache-control"] == "no-store"


async def test_a_link_is_not_a_key(app: App, session: dict[str, Any]) -> None:
    token = (await share(app, session))["url"].rsplit("/", 1)[1]
    for headers in ({"authorization": f"Bearer {token}"}, {"x-api-key": token}):
        reply = await app.client.get(f"/sessions/{session['session_id']}/turns", headers=headers)
        assert reply.status_code == 401
    for path in ("/sessions", f"/turns/{session['left']}", f"/sessions/{session['session_id']}/shares"):
        assert (await app.client.get(path, params={"token": token})).status_code == 401
    made = await app.client.post(f"/sessions/{session['session_id']}/shares", json={}, headers=BOB)
    assert made.status_code == 404


async def test_its_token_opens_no_route(app: App, session: dict[str, Any]) -> None:
    """Every route of the description, with the ids of what is shared. Discriminates: a token that is taken
    for a key, in a header or in the address."""
    token = (await share(app, session, leaf=session["left"]))["url"].rsplit("/", 1)[1]
    ids = {"session_id": session["session_id"], "turn_id": session["left"]}
    sent: tuple[dict[str, str], ...] = ({"authorization": f"Bearer {token}"}, {"x-api-key": token}, {})
    spec = app.client._transport.app.openapi()  # type: ignore[attr-defined]
    tried = 0
    for path, operations in spec["paths"].items():
        if path.startswith("/health/"):
            continue
        at = re.sub(r"{(\w+)}", lambda match: ids.get(match[1], session["right"]), path)
        for method in operations:
            for headers in sent:
                params = {} if headers else {"token": token}
                reply = await app.client.request(method.upper(), at, headers=headers, params=params)
                assert reply.status_code == 401, (method, path, headers)
                tried += 1
    assert tried > 150
    for more in ("/turns", "/tree", f"/{session['right']}", "?leaf=" + session["right"]):
        reply = await app.client.get(f"/shared/{token}{more}")
        assert reply.status_code == 404 or "The right one?" not in reply.text


async def test_deleting_a_session_deletes_its_links(app: App, session: dict[str, Any]) -> None:
    link = await share(app, session)
    await app.client.delete(f"/sessions/{session['session_id']}", headers=ALICE)
    assert (await opened(app, link["url"])).status_code == 404


async def test_a_new_title_and_a_new_turn_keep_the_links(app: App, session: dict[str, Any]) -> None:
    """Discriminates: a session record that is overwritten completely."""
    link = await share(app, session)
    path = f"/sessions/{session['session_id']}"
    await app.client.patch(path, json={"title": "Nuts"}, headers=ALICE)
    await ask(app, "Anything else?", session_id=session["session_id"])
    page = await opened(app, link["url"])
    assert "<title>Nuts</title>" in page.text


async def test_a_link_is_closed_as_long_as_its_owners_key_is_not_configured(tmp_path: Path) -> None:
    """Discriminates: a link that outlives its key, which nobody else can list or revoke."""

    def with_keys(*keys: str, admins: tuple[str, ...] = ()) -> AbstractAsyncContextManager[App]:
        server = {"api_keys": keys, "admin_api_keys": admins}
        return open_app(make_settings(tmp_path / "data", server=server))

    async with with_keys() as app:
        locals_link = await share(app, await ask(app, "Who is here?", None), None)
        assert (await opened(app, locals_link["url"])).status_code == 200
    async with with_keys("alice", "bob") as app:
        link = await share(app, await ask(app, "What is a walnut?"), expire_days=365)
        assert (await opened(app, locals_link["url"])).status_code == 404
        never = (await opened(app, "/shared/x")).json()["error"]["message"]
    for app_without in (with_keys("bob"), with_keys()):
        async with app_without as app:
            closed = await opened(app, link["url"])
            assert (closed.status_code, closed.json()["error"]["message"]) == (404, never)
    for app_again in (with_keys("bob", "alice"), with_keys("bob", admins=("alice",))):
        async with app_again as app:
            assert "What is a walnut?" in (await opened(app, link["url"])).text
