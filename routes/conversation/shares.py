"""Links to a branch, for its owner, and the page they open, for anyone who has one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, Response

from api.sessions.shares import SharedBranch
from core.conversation.turns import Turn
from core.errors import NotFoundError
from core.knowledge import Citation
from core.operations.erasure import ERASED_ID
from core.text import Language, is_mostly_chinese
from routes.conversation.replies import begun
from routes.dependencies import ContainerDep, Owner, accepted_language, json_body
from routes.errors import error_response
from routes.openapi import WireRoute, errors
from routes.wire import sessions as wire
from routes.wire.fields import text_of

if TYPE_CHECKING:
    from markdown_it.parser_inline import RuleFuncInlineType
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

router = APIRouter(tags=["sessions"], route_class=WireRoute)
page_router = APIRouter(include_in_schema=False)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Cache-Control": "no-store",
}
STYLE = (
    ":root{color-scheme:light dark}body{max-width:46rem;margin:2rem auto;padding:0 1rem;"
    "font:1rem/1.6 system-ui,sans-serif;overflow-wrap:anywhere}section{margin:2rem 0}"
    "h2{font-size:1.15rem;white-space:pre-wrap}h3,h4,h5,h6{margin:1.2rem 0 .4rem;font-size:1rem}"
    "section>h3{margin:1.5rem 0 .5rem;font-size:.9rem}"
    "blockquote{margin:0;padding-left:1rem;border-left:3px solid #999}li>blockquote{white-space:pre-wrap}"
    "pre,table{overflow:auto}table{display:block;border-collapse:collapse}"
    "th,td{min-width:3em;padding:.2rem .6rem;border:1px solid #999;overflow-wrap:normal}"
    "section>ol{font-size:.9rem}h2,p,li,td{unicode-bidi:plaintext}"
)
END = "</body></html>"
QUESTION_LEVEL = 2  # heading level of a question
EASTERN = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fff\u3001-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe10-\ufe1f\ufe30-\ufe6f"
    "\uff01-\uffee\U00020000-\U0003ffff]"
)
# As in routes/web/js/answer/formulas.js, but here formulas are shown as written.
_DISPLAY = r"\$\$[^$]{1,2000}\$\$|\\\[(?:(?!\\[\[\]])[\s\S]){1,2000}\\\]"
_INLINE = (
    r"\$(?![\s$])(?:[^$\n\\]|\\[^\n]){0,400}?(?:[^$\s\\]|\\[^\s])\$(?![A-Za-z0-9_$])"
    r"|\\\((?:(?!\\[()])[\s\S]){1,400}\\\)"
)
MATHS = re.compile(f"{_DISPLAY}|{_INLINE}")
MATHS_BLOCK = re.compile(rf"(?:{_DISPLAY})[ \t]*$", re.MULTILINE)
SOURCES: dict[Language, str] = {"zh": "来源", "en": "Sources"}
HIDDEN: dict[Language, str] = {
    "zh": "方括号里的数字是来源的编号；这个链接不含来源。",
    "en": "The numbers in brackets are sources, which this link does not show.",
}
IMAGES: dict[Language, str] = {"zh": "附图片 {} 张，这里不显示", "en": "Images: {}, not shown here"}
ERASED: dict[Language, str] = {"zh": "文档已删除", "en": "Document deleted"}
NOWHERE: dict[Language, tuple[str, str]] = {
    "zh": ("这个链接打不开了", "它已过期、已被撤销，或没有复制完整。请向给你链接的人再要一个。"),
    "en": (
        "This link does not work",
        "It has expired, was revoked, or was not copied completely. Ask whoever gave it to you for a new "
        "one.",
    ),
}


@router.post(
    "/sessions/{session_id}/shares", status_code=201, responses=errors(400, 401, 404, 409, 413, 415, 422, 503)
)
async def create_share(
    session_id: UUID,
    request: Request,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[wire.ShareBody, Depends(json_body(wire.ShareBody))],
) -> wire.CreatedShare:
    """Create a link that lets anyone read one branch as it is now: later questions are not shared. Its
    address is shown only once."""
    share, token = await container.shares.create(
        str(session_id), owner, text_of(body.leaf), body.expire_days, passages=body.passages
    )
    url = f"{request.base_url}shared/{token}"
    return wire.CreatedShare(**asdict(share), url=url)


@router.get("/sessions/{session_id}/shares", responses=errors(401, 404, 422, 503))
async def list_shares(session_id: UUID, container: ContainerDep, owner: Owner) -> wire.ShareList:
    """The links that still open, without their addresses."""
    return wire.ShareList(shares=await container.shares.listed(str(session_id), owner))


@router.delete("/sessions/{session_id}/shares/{share_id}", responses=errors(401, 404, 422, 503))
async def revoke_share(
    session_id: UUID, share_id: UUID, container: ContainerDep, owner: Owner
) -> wire.RevokedShare:
    """Revoke a link: it no longer opens anything."""
    await container.shares.revoke(str(session_id), owner, str(share_id))
    return wire.RevokedShare(share_id=str(share_id), revoked=True)


@page_router.get("/shared/{token}", response_class=HTMLResponse)
async def shared_branch(token: str, request: Request, container: ContainerDep) -> Response:
    """Show a shared branch to anyone with its link; nothing else can be reached from it."""
    try:
        branch = await container.shares.open(token)
    except NotFoundError as error:
        refusal = error_response(request, 404, error.code, str(error), headers=HEADERS)
        return _nowhere(request) if _is_browser(request) else refusal
    return await begun(_pieces(branch), "text/html", HEADERS)


def _is_browser(request: Request) -> bool:
    """Browsers list HTML first in Accept."""
    return request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip() == "text/html"


def _nowhere(request: Request) -> HTMLResponse:
    language = accepted_language(request.headers.get("accept-language", "")) or "en"
    title, advice = NOWHERE[language]
    page = f"{_head(language, title)}<p>{advice}</p>{END}"
    return HTMLResponse(page, status_code=404, headers=HEADERS)


async def _pieces(branch: SharedBranch) -> AsyncIterator[str]:
    """Yield the page a few turns at a time, rendered in a thread: a long branch takes seconds."""
    title, passages = branch.session.title, branch.share.passages
    language: Language = "zh" if is_mostly_chinese(title) else "en"
    before, hides_sources = _head(language, escape(title)), False
    async for turns in branch.turns:
        yield before + await asyncio.to_thread(_sections, turns, language, passages=passages)
        before = ""
        hides_sources |= not passages and any(source.cited for turn in turns for source in turn.sources)
    hidden = f"<p><small>{HIDDEN[language]}</small></p>" if hides_sources else ""
    yield before + hidden + END


def _head(language: Language, title: str) -> str:
    """Return the page up to its body; `title` is HTML."""
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="robots" content="noindex"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    )


def _sections(turns: Sequence[Turn], language: Language, *, passages: bool) -> str:
    return "".join([_section(turn, language, passages=passages) for turn in turns])


def _section(turn: Turn, language: Language, *, passages: bool) -> str:
    sources = ""
    if passages and turn.sources:
        items = "".join(_source(source, language) for source in turn.sources)
        sources = f"<h3>{SOURCES[language]}</h3><ol>{items}</ol>"
    images = f"<p><em>{IMAGES[language].format(len(turn.images))}</em></p>" if turn.images else ""
    question = f"<h2>{escape(turn.question)}</h2>{images}"
    return f"<section>{question}<div>{_rendered(turn.answer)}</div>{sources}</section>"


def _source(source: Citation, language: Language) -> str:
    """Of an erased document only the number is left."""
    if source.document_id == ERASED_ID:
        return f'<li value="{source.index}">{ERASED[language]}</li>'
    passage = escape(source.key_passage or source.text)
    return f'<li value="{source.index}">{escape(source.file_name)}<blockquote>{passage}</blockquote></li>'


def _rendered(answer: str) -> str:
    """Render without raw HTML or images, so that nothing is fetched. As on the page, headings are nested
    below the question's, and maths is shown as written."""
    from markdown_it import MarkdownIt  # imported only when a link is opened
    from markdown_it.rules_inline import emphasis, strikethrough

    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True})
    markdown.enable(["table", "strikethrough"]).disable("image")
    markdown.block.ruler.before("list", "maths", _maths_block, {"alt": ["paragraph"]})
    inline = markdown.inline.ruler
    inline.before("escape", "maths", _maths)
    inline.at("emphasis", _beside_eastern(emphasis.tokenize))
    inline.at("strikethrough", _beside_eastern(strikethrough.tokenize))
    tokens = markdown.parse(answer)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(6, int(token.tag[1]) + QUESTION_LEVEL)}"
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _beside_eastern(tokenize: RuleFuncInlineType) -> RuleFuncInlineType:
    """Let `**` or `~~` next to a Chinese, Japanese or Korean character open and close emphasis, whatever is
    on its other side: routes/web/js/answer/emphasis.js, which has the same rule, says why."""

    def tokenized(state: StateInline, silent: bool) -> bool:
        start, earlier = state.pos, len(state.delimiters)
        if not tokenize(state, silent):
            return False
        sides = state.src[max(0, start - 1) : start], state.src[state.pos : state.pos + 1]
        is_mark = state.src.startswith(("**", "~~"), start)
        if is_mark and all(side.strip() for side in sides) and EASTERN.search("".join(sides)):
            for delimiter in state.delimiters[earlier:]:
                delimiter.open = delimiter.close = True
        return True

    return tokenized


def _maths(state: StateInline, silent: bool) -> bool:
    formula = MATHS.match(state.src, state.pos, state.posMax)
    if formula is None:
        return False
    for number, line in enumerate(() if silent else formula[0].split("\n")):
        if number:
            state.push("softbreak", "br", 0)
        state.push("text", "", 0).content = line
    state.pos = formula.end()
    return True


def _maths_block(state: StateBlock, line: int, end_line: int, silent: bool) -> bool:
    """Match a formula whose lines would be a list or a heading, except in a list or a quotation."""
    start = state.bMarks[line] + state.tShift[line]
    formula = MATHS_BLOCK.match(state.src, start, state.eMarks[end_line - 1])
    if formula is None or state.level or state.is_code_block(line):
        return False
    if not silent:
        state.line = line + formula[0].count("\n") + 1
        state.push("paragraph_open", "p", 1).map = [line, state.line]
        inline = state.push("inline", "", 0)
        inline.content, inline.children, inline.map = formula[0].strip(), [], [line, state.line]
        state.push("paragraph_close", "p", -1)
    return True
