"""Links to a branch, for its owner; and the page that they lead to, for whoever has one."""

from __future__ import annotations

from html import escape
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, Response

from api.sessions.shares import SharedBranch
from core.conversation.sessions import Share
from core.conversation.turns import Turn
from core.dates import rfc3339
from core.errors import NotFoundError
from core.knowledge import Citation
from core.operations.erasure import ERASED_ID
from core.text import Language, is_mostly_chinese
from routes.dependencies import ContainerDep, Owner, accepted_language, body_schema, json_body
from routes.errors import error_response
from routes.openapi import WireRoute, errors
from routes.wire import sessions as wire
from routes.wire.fields import text_of

router = APIRouter(tags=["sessions"], route_class=WireRoute)
beside = APIRouter(include_in_schema=False)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Cache-Control": "no-store",
}
STYLE = (
    ":root{color-scheme:light dark}body{max-width:46rem;margin:2rem auto;padding:0 1rem;"
    "font:1rem/1.6 system-ui,sans-serif;overflow-wrap:anywhere}section{margin:2rem 0}"
    "h2{font-size:1rem;white-space:pre-wrap}h3{margin:1.5rem 0 .5rem;font-size:.9rem}"
    "blockquote{margin:0;padding-left:1rem;border-left:3px solid #999}li>blockquote{white-space:pre-wrap}"
    "pre{overflow:auto}table{border-collapse:collapse}th,td{padding:.2rem .6rem;border:1px solid #999}"
    "ol{font-size:.9rem}"
)
SOURCES: dict[Language, str] = {"zh": "来源", "en": "Sources"}
ERASED: dict[Language, str] = {"zh": "文档已删除", "en": "Document deleted"}
NOWHERE: dict[Language, tuple[str, str]] = {
    "zh": ("这个链接打不开了", "它已过期、被收回，或没有复制完整。请向给你链接的人再要一个。"),
    "en": (
        "This link leads nowhere",
        "It has expired, was taken back, or was not copied whole. Ask whoever gave it to you for a new one.",
    ),
}


@router.post(
    "/sessions/{session_id}/shares",
    status_code=201,
    openapi_extra=body_schema(wire.ShareBody),
    responses=errors(400, 401, 404, 409, 413, 415, 422, 503),
)
async def create_share(
    session_id: UUID,
    request: Request,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[wire.ShareBody, Depends(json_body(wire.ShareBody))],
) -> wire.CreatedShare:
    """Make a link by which anybody reads one branch, as it is now: what is asked later is not shared. Its
    address is shown once."""
    share, token = await container.shares.create(
        str(session_id), owner, text_of(body.leaf), body.expire_days, passages=body.passages
    )
    url = f"{request.base_url}shared/{token}"
    return wire.CreatedShare(**_reply(share).model_dump(), url=url)


@router.get("/sessions/{session_id}/shares", responses=errors(401, 404, 422, 503))
async def list_shares(session_id: UUID, container: ContainerDep, owner: Owner) -> wire.ShareList:
    """The links that still open, without their addresses."""
    shares = await container.shares.listed(str(session_id), owner)
    return wire.ShareList(shares=[_reply(share) for share in shares])


@router.delete("/sessions/{session_id}/shares/{share_id}", responses=errors(401, 404, 422, 503))
async def revoke_share(
    session_id: UUID, share_id: UUID, container: ContainerDep, owner: Owner
) -> wire.RevokedShare:
    """Take a link back: it opens nothing any more."""
    await container.shares.revoke(str(session_id), owner, str(share_id))
    return wire.RevokedShare(share_id=str(share_id), revoked=True)


@beside.get("/shared/{token}", response_class=HTMLResponse)
async def shared_branch(token: str, request: Request, container: ContainerDep) -> Response:
    """A shared branch, for whoever has its link; nothing else can be reached from there."""
    try:
        branch = await container.shares.open(token)
    except NotFoundError as error:
        refusal = error_response(request, 404, error.code, str(error), headers=HEADERS)
        return _nowhere(request) if _is_browser(request) else refusal
    return HTMLResponse(_page(branch), headers=HEADERS)


def _is_browser(request: Request) -> bool:
    """Browsers ask for HTML before anything else."""
    return request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip() == "text/html"


def _nowhere(request: Request) -> HTMLResponse:
    language = accepted_language(request.headers.get("accept-language", "")) or "en"
    title, advice = NOWHERE[language]
    return HTMLResponse(_document(language, title, f"<p>{advice}</p>"), status_code=404, headers=HEADERS)


def _reply(share: Share) -> wire.Share:
    return wire.Share(
        share_id=share.share_id,
        leaf=share.leaf,
        created_at=rfc3339(share.created_us),
        expires_at=rfc3339(share.expires_us),
        passages=share.passages,
    )


def _page(branch: SharedBranch) -> str:
    title = branch.session.title
    language: Language = "zh" if is_mostly_chinese(title) else "en"
    sections = (_section(turn, language, passages=branch.share.passages) for turn in branch.turns)
    return _document(language, escape(title), "".join(sections))


def _document(language: Language, title: str, body: str) -> str:
    """`title` and `body` are HTML."""
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="robots" content="noindex"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>"
    )


def _section(turn: Turn, language: Language, *, passages: bool) -> str:
    sources = ""
    if passages and turn.sources:
        items = "".join(_source(source, language) for source in turn.sources)
        sources = f"<h3>{SOURCES[language]}</h3><ol>{items}</ol>"
    return f"<section><h2>{escape(turn.question)}</h2>{_rendered(turn.answer)}{sources}</section>"


def _source(source: Citation, language: Language) -> str:
    """Of an erased document nothing is left but the number."""
    if source.document_id == ERASED_ID:
        return f'<li value="{source.index}">{ERASED[language]}</li>'
    passage = escape(source.key_passage or source.text)
    return f'<li value="{source.index}">{escape(source.file_name)}<blockquote>{passage}</blockquote></li>'


def _rendered(answer: str) -> str:
    """Without HTML of its own and without images: nothing is fetched from anywhere."""
    from markdown_it import MarkdownIt  # only who opens a link waits for it

    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True})
    return str(markdown.enable(["table", "strikethrough"]).disable("image").render(answer))
