"""Conversations: `wenmai sessions` lists them, `wenmai prompt` shows what a model received, `wenmai import`
imports those of other products and of Wenmai."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from core.text import counted
from routes.wire.imports import ForeignImport, ImportedConversation, PlannedConversation
from routes.wire.server import PublicSettings
from routes.wire.sessions import Session, SessionPage
from routes.wire.turns import Branch, Prompt, PromptPart, PromptRequest
from scripts.commands.ask import BOLD, DIM, PLAIN, RED
from scripts.commands.maintenance import (
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    print_result,
    run,
    shown,
)
from scripts.commands.server import ServerClient, at_server, at_url, checked

if TYPE_CHECKING:
    from config.settings import Settings

TIMEOUT_S = 60


@click.command("sessions")
@click.argument("session_id", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, help="How many, newest first (default: 20)."
)
@as_json
@at_url
def sessions(**options: Any) -> int:
    """List the conversations, or show the turns of one. 列出会话，或显示某一会话的各轮。"""
    return run(_sessions, Options(**options))


async def _sessions(settings: Settings, options: Options) -> int:
    async def work(client: ServerClient) -> int:
        if options.session_id:
            branch = await client.send("GET", f"/sessions/{options.session_id}/turns", Branch)
            print_result(branch, options, _print_turns)
        else:
            page = await client.send("GET", "/sessions", SessionPage, limit=options.limit)
            print_result(page, options, _print_sessions)
        return EXIT_OK

    return await at_server(settings, options, work, TIMEOUT_S)


def _print_sessions(page: SessionPage) -> None:
    for each in page.sessions:
        turns = counted(each.turn_count, "turn")
        print(shown(f"{each.session_id}  {each.updated_at[:16]}  {turns:>10}  {each.title}"))
    if page.next is not None:
        print(f"The newest {len(page.sessions)}; --limit shows more.", file=sys.stderr)


def _print_turns(branch: Branch) -> None:
    for turn in branch.turns:
        print(shown(f"{turn.turn_id}  {turn.timestamp[:16]}  {turn.status}"))
        print(shown(f"? {turn.question}"))
        print(shown(turn.answer))
        print()


@click.command("prompt")
@click.argument("turn_id")
@click.option("--request", is_flag=True, help="Also show the request as it was sent.")
@as_json
@at_url
def prompt(**options: Any) -> int:
    """Show what the model received for this TURN_ID, part by part. 显示某一轮发给模型的提示词。"""
    return run(_prompt, Options(**options))


async def _prompt(settings: Settings, options: Options) -> int:
    async def work(client: ServerClient) -> int:
        sent = await client.send("GET", f"/turns/{options.turn_id}/prompt", Prompt)
        print_result(sent, options, print_prompt)
        return EXIT_OK

    def print_prompt(sent: Prompt) -> None:
        for colour, line in lines(sent, with_request=options.request):
            print(f"{colour}{line}{PLAIN}" if colour and sys.stdout.isatty() else line)

    return await at_server(settings, options, work, TIMEOUT_S)


def lines(prompt: Prompt, *, with_request: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (colour, line), part by part."""
    yield BOLD, f"turn {prompt.turn_id}"
    if prompt.parts is None:
        yield "", f"model {prompt.model_id}: no record of the prompt is kept for this turn (PROMPT_KEEP_DAYS)"
        return
    yield "", f"model {prompt.model_id} · layout {prompt.layout or '?'} · {_tokens(prompt)}"
    for part in prompt.parts:
        if part.kept or not part.chunk_id:
            yield "", ""
            yield from _part_lines(part)
    passed_over = Counter(part.reason for part in prompt.parts if not part.kept and part.chunk_id)
    if passed_over:
        reasons = ", ".join(f"{count} {reason}" for reason, count in passed_over.most_common())
        yield "", ""
        yield DIM, f"- passages left out: {reasons}"
    yield "", ""
    yield DIM, f"request: {_request(prompt.request)}"
    if prompt.response:
        yield DIM, f"response: {json.dumps(prompt.response, ensure_ascii=False)}"
    if with_request and prompt.request is not None and prompt.request.body is not None:
        yield "", ""
        yield "", prompt.request.body


def _tokens(prompt: Prompt) -> str:
    room = f" of a window of {prompt.window}, {prompt.answer_tokens} for the answer" if prompt.window else ""
    return f"{prompt.prompt_tokens} tokens{room}"


def _part_lines(part: PromptPart) -> Iterator[tuple[str, str]]:
    ids = [f"turn {part.turn_id}"] if part.turn_id else []
    ids += [f"chunk {part.chunk_id}"] if part.chunk_id else []
    reason = f"({part.reason})" if part.reason else ""
    head = " · ".join([part.part, part.role, f"{part.tokens} tokens", *ids])
    if not part.kept:
        yield DIM, f"- {head} · left out {reason}".rstrip()
        return
    yield BOLD, f"+ {head} {reason}".rstrip()
    if part.removed:
        yield RED, "  erased since"
    for line in part.text.split("\n") if part.text else ():
        yield "", f"  {shown(line)}".rstrip()


def _request(request: PromptRequest | None) -> str:
    if request is None or not request.sha256:
        return "nothing was sent"
    digest = f"sha256 {request.sha256}"
    if request.exact:
        return f"exact, {digest}"
    why = "parts of it were erased since" if request.body is None else "reassembled, not byte for byte"
    return f"{why}; what was sent had {digest}"


IMPORT_PATH, OWN_PATH = "/sessions/import/file", "/sessions/import"
OWN = "Wenmai"
MAX_SHOWN = 50
HELD = "They are put on hold, and do not expire until you release them."
EXPIRING = "Turns older than CONVERSATION_EXPIRE_DAYS go at the next clean-up, unless it is on hold."
TOO_LARGE = "the file has {size} bytes, and the server accepts {most}: raise MAX_UPLOAD_BYTES and restart it"
STORED = "This conversation is already stored. To replace it, erase it first: wenmai erase --session ID"
IMPORT_DESCRIPTION = """Import conversations exported by other products: ChatGPT, Claude, Open WebUI,
LibreChat, or lists of OpenAI messages; or one that Wenmai exported as JSON. Without --apply it only shows
what would be imported. 导入对话：其他产品导出的，或 Wenmai 导出的 JSON；不加 --apply 只显示会导入什么。"""


@click.command("import", help=IMPORT_DESCRIPTION)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--apply", is_flag=True, help="Import them.")
@as_json
@at_url
def import_(**options: Any) -> int:
    """Exit codes: 0 done or shown, 1 the server does not answer, 2 refused."""
    return run(_import, Options(**options))


async def _import(settings: Settings, options: Options) -> int:
    content = options.file.read_bytes()

    async def work(client: ServerClient) -> int:
        await _check_size(client, len(content))
        own = _own_export(content)
        plan = await (
            _import_own(client, own, content, options) if own else _import_foreign(client, content, options)
        )
        print_result(plan, options, _print_plan)
        return EXIT_OK

    return await at_server(settings, options, work)


async def _check_size(client: ServerClient, size_bytes: int) -> None:
    """Raises CommandError: a server that refuses a large body closes the connection before it is sent."""
    most = (await client.send("GET", "/settings/public", PublicSettings)).max_upload_bytes
    if size_bytes > most:
        raise CommandError(TOO_LARGE.format(size=size_bytes, most=most), EXIT_REFUSED)


async def _import_foreign(client: ServerClient, content: bytes, options: Options) -> ForeignImport:
    response = await client.request(
        "POST",
        IMPORT_PATH,
        params={"apply": str(options.apply).lower()},
        content=content,
        headers={"Content-Type": "application/octet-stream"},
    )
    return checked(response, ForeignImport)


def _own_export(content: bytes) -> dict[str, Any]:
    """Parse a conversation exported by Wenmai; empty for other files, which the server may know."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    turns = value.get("turns") if isinstance(value, dict) else None
    is_own = isinstance(turns, list) and turns and all(isinstance(turn, dict) for turn in turns)
    return value if is_own else {}


async def _import_own(
    client: ServerClient, own: dict[str, Any], content: bytes, options: Options
) -> ForeignImport:
    """Import all or nothing: a session that exists already has nothing new, and is not sent again."""
    turns, session_id = own["turns"], str(own.get("session_id") or "")
    exists = bool(session_id) and await _exists(client, session_id)
    if options.apply and not exists:
        headers = {"Content-Type": "application/json"}
        response = await client.request("POST", OWN_PATH, content=content, headers=headers)
        session_id = checked(response, ImportedConversation).session_id
    parents = {str(turn.get("parent_turn_id")) for turn in turns}
    plan = PlannedConversation(
        session_id=session_id,
        title=str(own.get("title") or ""),
        turns=len(turns),
        fresh=0 if exists else len(turns),
        branches=max(1, sum(str(turn.get("turn_id")) not in parents for turn in turns)),
        persona=bool(own.get("persona")),
        attachments=0,
        orphans=0,
        left_out=0,
    )
    return ForeignImport(product=OWN, applied=options.apply and not exists, conversations=[plan])


async def _exists(client: ServerClient, session_id: str) -> bool:
    response = await client.request("GET", f"/sessions/{quote(session_id, safe='')}")
    return response.status_code not in (404, 422) and bool(checked(response, Session))


def _print_plan(plan: ForeignImport) -> None:
    for each in plan.conversations[:MAX_SHOWN]:
        print(shown(f"{each.title or each.session_id}: {_figures(each)}"))
    if len(plan.conversations) > MAX_SHOWN:
        print(f"… and {len(plan.conversations) - MAX_SHOWN} more")
    fresh = sum(each.fresh for each in plan.conversations)
    if not fresh:
        print(STORED if plan.product == OWN else f"{plan.product}: everything in it is already stored.")
        return
    done = "imported" if plan.applied else "would be imported (--apply does it)"
    conversations = counted(len(plan.conversations), "conversation")
    print(f"{plan.product}: {conversations}, {counted(fresh, 'new turn')} {done}")
    print(EXPIRING if plan.product == OWN else HELD)


def _figures(each: PlannedConversation) -> str:
    parts = [counted(each.turns, "turn"), f"{each.fresh} new", counted(each.branches, "branch", "branches")]
    notes = {
        "files not included in the export": each.attachments,
        "messages without their parent": each.orphans,
        "messages in a cycle, left out": each.left_out,
    }
    return ", ".join([*parts, *(f"{number} {what}" for what, number in notes.items() if number)])
