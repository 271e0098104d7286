"""The page at `/` and its files, all from this origin."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException

WEB = Path(__file__).parent / "web"
# The page's two libraries, installed by npm; without them it shows plain text.
VENDOR = {
    "marked.esm.js": WEB / "node_modules/marked/lib/marked.esm.js",
    "purify.es.mjs": WEB / "node_modules/dompurify/dist/purify.es.mjs",
}
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache"}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> FileResponse:
    return _serve(WEB / "index.html")


@router.get("/web/vendor/{name}")
async def vendor_file(name: str) -> FileResponse:
    if name not in VENDOR or not VENDOR[name].is_file():
        raise HTTPException(404, "This library is not installed; the page shows plain text.")
    return _serve(VENDOR[name])


@router.get("/web/{path:path}")
async def page_file(path: str) -> FileResponse:
    """Only files of the page itself, by type; never anything installed beside them."""
    if "\0" in path:
        raise HTTPException(404, "There is no such file.")
    file = (WEB / path).resolve()
    own = file.is_relative_to(WEB) and "node_modules" not in file.parts
    if not own or file.suffix not in MEDIA_TYPES or not file.is_file():
        raise HTTPException(404, "There is no such file.")
    return _serve(file)


def _serve(file: Path) -> FileResponse:
    return FileResponse(file, headers=HEADERS, media_type=MEDIA_TYPES[file.suffix])
