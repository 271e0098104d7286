"""The page at `/`, the API's reference at `/docs`, and their files, all from this origin; and the widget for
others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

WEB = Path(__file__).parent
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
# The last two: whatever becomes HTML went through DOMPurify, and the browser sees to it.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "frame-src 'none'",
        "worker-src 'none'",
        "media-src 'none'",
        "manifest-src 'none'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
UNUSED_FEATURES = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "geolocation", "gyroscope",
    "magnetometer", "microphone", "midi", "payment", "publickey-credentials-get", "screen-wake-lock", "usb",
    "xr-spatial-tracking",
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Permissions-Policy": ", ".join(f"{name}=()" for name in UNUSED_FEATURES),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(_page(), headers=HEADERS)


@router.get("/widget.js")
async def widget() -> Response:
    """For pages of other sites, unlike everything else here; whether it may ask there, CORS_ORIGINS says."""
    headers = {"Cache-Control": "no-cache", "Cross-Origin-Resource-Policy": "cross-origin"}
    return _serve(WEB / "widget.js", headers)


@router.get("/docs")
async def reference() -> Response:
    """A shell without content: the page reads /openapi.json, which asks for a key where there are keys."""
    return _serve(WEB / "reference" / "page.html")


@cache
def _page() -> str:
    """The page names its modules at its head: all are fetched at once, not one import after another.
    Addresses are relative: the page may lie below a proxy's prefix."""
    names = sorted(str(file.relative_to(WEB).as_posix()) for file in (WEB / "js").glob("*/*.js"))
    links = "\n  ".join(f'<link rel="modulepreload" href="web/{name}">' for name in names)
    return (WEB / "index.html").read_text("utf-8").replace("<!-- modules -->", links)


@router.get("/web/vendor/{name}")
async def vendor_file(name: str) -> Response:
    if name not in VENDOR or not VENDOR[name].is_file():
        raise HTTPException(404, "This library is not installed; the page shows plain text.")
    return _serve(VENDOR[name])


@router.get("/web/{path:path}")
async def page_file(path: str) -> Response:
    """Only files of the page itself, by type; never anything installed beside them."""
    if "\0" in path:
        raise HTTPException(404, "There is no such file.")
    file = (WEB / path).resolve()
    own = file.is_relative_to(WEB) and "node_modules" not in file.parts
    if not own or file.suffix not in MEDIA_TYPES or not file.is_file():
        raise HTTPException(404, "There is no such file.")
    return _serve(file)


def _serve(file: Path, headers: Mapping[str, str] = HEADERS) -> Response:
    """Read here and now: the page is more than a hundred small files, and handing each to a thread takes five
    times as long."""
    return Response(file.read_bytes(), headers=headers, media_type=MEDIA_TYPES[file.suffix])
