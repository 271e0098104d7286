"""The evaluation command on two small sets of our own, through the services and through a server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.commands.evaluate import evaluate
from scripts.commands.maintenance import invoke
from scripts.evaluation.baselines import whole_collections
from scripts.evaluation.figures import Answer
from scripts.evaluation.in_process import open_services
from scripts.evaluation.judging import Hit, Reply
from scripts.evaluation.knowledge import Target, ask, ingest_lines
from scripts.evaluation.server import open_server
from scripts.evaluation.sets import load_set
from tests.support.environment import ROOT
from tests.support.servers.app import HASHING
from tests.support.servers.commands import command
from tests.support.servers.server import running_server

SETS = ROOT / "tests" / "data" / "sets"


@pytest.fixture(autouse=True)
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDING", HASHING)
    monkeypatch.setenv("WENMAI_CONFIG", "")


def runs(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["query_id"]: row for row in rows}


def rows_of(path: Path, name: str) -> dict[str, dict[str, Any]]:
    figures = json.loads(path.read_text(encoding="utf-8"))
    return {row["name"]: row for row in figures[name]["rows"]}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Everything in the folder evaluated once: the folder of results, and the output."""
    out = tmp_path_factory.mktemp("measured")
    done = command(
        "wenmai", "evaluate", str(SETS), "--out", str(out), "--cache", str(out / "vectors"), "--by", "kind",
        "--plots", str(out / "plots"), EMBEDDING=HASHING,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.mark.full("runs commands as processes of their own")
def test_documents_are_found_through_the_real_services(measured: tuple[Path, str]) -> None:
    """By hand: q1 and q2 have two relevant lines, one document, so half of them ranks first."""
    out, _ = measured
    run = runs(out / "bakery.jsonl")
    assert run["q1"]["ranked"][:2] == run["q2"]["ranked"][:2] == ["z3", "z3-again"]
    assert (run["q3"]["ranked"][0], run["q4"]["ranked"][0]) == ("e1", "e2")
    ours = rows_of(out / "figures.json", "bakery")["wenmai"]
    assert ours["retrieval"] == {
        "questions": 4, "recall_1": 0.75, "recall_5": 1.0, "recall_10": 1.0, "ndcg_10": 1.0, "mrr_10": 1.0,
    }  # fmt: skip
    assert (ours["refusal"]["answerable"], ours["refusal"]["unanswerable"]) == (4, 2)
    assert ours["ms_p50"] > 0


@pytest.mark.full("runs commands as processes of their own")
def test_a_question_only_searches_its_scope_and_the_whole_list_is_kept(measured: tuple[Path, str]) -> None:
    """Discriminates: the same owner for all scopes, and a run cut off at the threshold."""
    run = runs(measured[0] / "bakery.jsonl")
    assert sorted(run["q5"]["ranked"]) == ["z1", "z2", "z3", "z3-again"]
    assert sorted(run["q6"]["ranked"]) == ["e1", "e2", "e3"]
    assert run["q6"]["scores"] == sorted(run["q6"]["scores"], reverse=True)
    assert all(0 <= score <= 1 for score in run["q6"]["scores"])


@pytest.mark.slow("runs a command as a process")
def test_the_table_has_our_rankings_beside_the_plain_ones_and_others(measured: tuple[Path, str]) -> None:
    out, printed = measured
    lists = rows_of(out / "figures.json", "bakery")
    assert list(lists) == ["wenmai", "dense", "sparse", "rrf", "rrf, human rewrite"]
    assert lists["rrf, human rewrite"]["retrieval"]["questions"] == 1
    assert lists["sparse"]["retrieval"]["recall_5"] == 1.0
    assert "| bakery | a published one | – | – | 0.500 | – | 0.625 |" in printed
    assert "bakery follow-up" in printed
    assert "bakery: 1 document refused: empty_file" in printed
    assert "rewrites: skipped" in printed
    assert (out / "table.md").read_text(encoding="utf-8") in printed


def test_a_conversation_is_recalled_turn_by_turn(measured: tuple[Path, str]) -> None:
    out, _ = measured
    run = runs(out / "friends.jsonl")
    assert (run["m1"]["ranked"][0], run["m2"]["ranked"][0]) == ("a1", "a3")
    assert run["m3"]["ranked"] == ["c1"]  # never another session's
    lists = rows_of(out / "figures.json", "friends")
    assert list(lists) == ["wenmai", "wenmai, shown", "dense", "sparse", "rrf"]
    assert lists["wenmai"]["retrieval"]["recall_1"] == 1.0


def test_a_set_without_unanswerable_questions_is_asked_again_without_its_answers(
    measured: tuple[Path, str],
) -> None:
    out, printed = measured
    ours = rows_of(out / "figures.json", "tea")["wenmai"]
    assert (ours["refusal"]["answerable"], ours["refusal"]["unanswerable"]) == (3, 2)
    assert ours["retrieval"]["questions"] == 2
    assert ours["ndcg_10_above"] == 1.0
    assert "tea: refusal: 2 questions asked again where their answers are not" in printed


def test_a_blank_question_is_counted_as_refused(measured: tuple[Path, str]) -> None:
    """Discriminates: a traceback, or a question left out."""
    out, printed = measured
    assert runs(out / "tea.jsonl")["b"]["ranked"] == []
    assert rows_of(out / "figures.json", "tea")["wenmai"]["refusal"]["refused_wrongly"] == pytest.approx(
        1 / 3
    )
    assert "tea: blank questions, counted as refused: 1" in printed


def test_a_folder_of_documents_is_asked_through_whole_turns(measured: tuple[Path, str]) -> None:
    """The follow-up has no fact to check; of two unanswerable questions one is blank."""
    out, printed = measured
    turns = json.loads((out / "figures.json").read_text(encoding="utf-8"))["office"]["turns"]
    figures = turns[""]
    assert (figures["answerable"], figures["unanswerable"]) == (3, 2)
    assert figures["first"] == figures["cited"] == figures["readable"] == figures["in_language"] == 1.0
    assert (figures["refused_wrongly"], figures["sure"], figures["refused_rightly"]) == (0.0, 0.0, 0.5)
    assert turns["follow-up"]["readable"] is None
    assert "| office zh | 1 |" in printed
    answers = [json.loads(line) for line in (out / "office.jsonl").read_text(encoding="utf-8").splitlines()]
    assert "nine in the morning" in answers[0]["answer"]


def test_without_documents_the_product_s_own_guide_is_asked(measured: tuple[Path, str]) -> None:
    assert "| guide | 1 | 1.000 | 1.000 | 1.000 | 1.000 | – | 0.000 | 0 |" in measured[1]


def test_the_plots_show_everything_that_was_measured(measured: tuple[Path, str]) -> None:
    plots = measured[0] / "plots"
    assert sorted(path.name for path in plots.iterdir()) == [
        "README.md", "ranking.svg", "refusal.svg", "turns.svg",
    ]  # fmt: skip
    page = (plots / "README.md").read_text(encoding="utf-8")
    assert "| bakery | wenmai | 4 |" in page
    assert "| office | 3 |" in page


@pytest.mark.full("runs commands as processes of their own")
def test_vectors_are_kept_from_run_to_run(measured: tuple[Path, str]) -> None:
    """Discriminates: a cache that is not used."""
    vectors = measured[0] / "vectors"
    first = {path.name: path.stat().st_mtime_ns for path in vectors.iterdir()}
    assert invoke(evaluate, [str(SETS), "--sets", "friends", "--cache", str(vectors)]) == 0
    assert {path.name: path.stat().st_mtime_ns for path in vectors.iterdir()} == first


def _unnamed(source: Hit) -> Hit:
    """Ids are random. Of z3 and z3-again, which have the same text, the one ingested first is shown."""
    name = "3.md" if source.file_name == "4.md" else source.file_name
    return replace(source, document_id="", file_name=name)


async def answers_of(target: Target) -> tuple[list[Answer], list[Reply]]:
    """The answers of searches, and of whole turns: one after another in its session, and a blank one."""
    parts = whole_collections(load_set(SETS / "bakery"))
    library = await ingest_lines(target, parts, lambda: None)
    answers = [answer for part in parts for answer in await ask(target, part, library, lambda: None)]
    before = [("生日蛋糕怎么买？", "要预订。")]
    replies = [
        await target.answer("那要提前多久预订？", before, parts[0].owner),
        await target.answer(" ", [], parts[0].owner),
    ]
    return answers, replies


@pytest.mark.full("runs commands as processes of their own")
async def test_a_server_answers_like_the_services() -> None:
    """Discriminates: previous questions, history or the scope's key not sent."""
    async with open_services(None) as services:
        ours, our_replies = await answers_of(services)
    owners = [part.owner for part in whole_collections(load_set(SETS / "bakery"))]
    async with open_server(owners, "", []) as server:
        served, replies = await answers_of(server)
    assert [reply.text for reply in replies] == [reply.text for reply in our_replies]
    assert [len(reply.sources) > 0 for reply in replies] == [True, False]
    for source, our_source in zip(replies[0].sources, our_replies[0].sources, strict=True):
        assert _unnamed(source) == _unnamed(our_source)
    for one, other in zip(ours, served, strict=True):
        assert [line for line, _ in one.ranked] == [line for line, _ in other.ranked]
        assert [score for _, score in one.ranked] == pytest.approx([score for _, score in other.ranked])


@pytest.mark.full("runs commands as processes of their own")
def test_a_running_server_must_be_empty_and_have_a_key_for_every_scope(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is empty again afterwards. Discriminates: documents that are left behind."""
    keys = "k-0123456789,k-9876543210"
    rest = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false", "API_KEYS": keys}
    with running_server(tmp_path / "served", **rest) as server:
        fields = [str(SETS), "--sets", "bakery", "--limit", "2", "--url", server.url]
        monkeypatch.setenv("API_KEYS", "k-0123456789")
        assert invoke(evaluate, fields) == 1
        assert "2 collections need as many API keys" in capsys.readouterr().err
        monkeypatch.setenv("WENMAI_KEY", "k-9876543210")
        assert invoke(evaluate, fields) == 0
        for key in keys.split(","):
            left = httpx.get(f"{server.url}/documents", headers={"X-API-Key": key}).json()
            assert left["documents"] == []
    assert "| bakery | wenmai | 2 |" in capsys.readouterr().out


def test_a_folder_without_sets_and_a_broken_set_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(evaluate, [str(tmp_path)]) == 2
    assert "no folder with queries.jsonl" in capsys.readouterr().err
    assert invoke(evaluate, [str(SETS), "--sets", "tea", "coffee"]) == 2
    assert "coffee" in capsys.readouterr().err
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "queries.jsonl").touch()
    assert invoke(evaluate, [str(tmp_path)]) == 2
    assert "half/corpus.jsonl cannot be read" in capsys.readouterr().err
