"""The page at `/`, the API reference at `/docs` and their files, all served from this origin, and the widget
for other sites."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path, PurePath

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

WEB = Path(__file__).parent
# The page's libraries, installed by npm; without them it shows plain text and the source of formulas.
VENDOR = {
    "marked.esm.js": WEB / "node_modules/marked/lib/marked.esm.js",
    "purify.es.mjs": WEB / "node_modules/dompurify/dist/purify.es.mjs",
    "temml.mjs": WEB / "node_modules/temml/dist/temml.mjs",
    "temml.css": WEB / "node_modules/temml/dist/Temml-Local.css",
    "Temml.woff2": WEB
    / "node_modules/temml/dist/Temml.woff2",  # script capitals, referenced by the style sheet
}
MEDIA_TYPES = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
    ".svg": "image/svg+xml", ".woff2": "font/woff2",
}  # fmt: skip
_NOTHING_FROM = (
    "frame-src", "worker-src", "media-src", "manifest-src", "object-src", "base-uri", "form-action",
    "frame-ancestors",
)  # fmt: skip
# The last two make the browser enforce that all HTML has passed through DOMPurify.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        *(f"{name} 'self'" for name in ("default-src", "script-src", "style-src", "connect-src", "font-src")),
        "img-src 'self' data:",
        *(f"{name} 'none'" for name in _NOTHING_FROM),
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
IMMUTABLE = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Files:
    """The files served to browsers, by path."""

    version: str
    contents: Mapping[str, bytes]


@cache
def files() -> Files:
    """Return the files as of the first request, so that an upgrade in progress mixes no two versions. Each
    page preloads all its modules, instead of fetching them one import after another. Addresses are relative,
    for servers below a proxy's path prefix."""
    own = (file for file in WEB.rglob("*.*") if "node_modules" not in file.parts)
    paths = {file.relative_to(WEB).as_posix(): file for file in own if file.suffix in MEDIA_TYPES}
    paths |= {f"vendor/{name}": file for name, file in VENDOR.items() if file.is_file()}
    contents = {path: paths[path].read_bytes() for path in sorted(paths)}
    version = version_of(contents)
    modules = (name for name in contents if name.startswith("js/") and name.count("/") == 2)
    links = "\n  ".join(f'<link rel="modulepreload" href="web/{name}">' for name in modules)
    for path in ("index.html", "reference/page.html"):
        html = contents[path].decode().replace("<!-- modules -->", links)
        contents[path] = html.replace('"web/', f'"web/{version}/').encode()
    return Files(version, contents)


def version_of(contents: Mapping[str, bytes]) -> str:
    """A hash of the contents, which changes with every byte."""
    return blake2b(repr(contents).encode(), digest_size=8).hexdigest()


@router.get("/")
async def page(request: Request) -> Response:
    return await _serve(request, "index.html")


@router.get("/widget.js")
async def widget(request: Request) -> Response:
    """The only file for pages of other sites; CORS_ORIGINS decides whether it may send requests there."""
    headers = {"Cache-Control": "no-cache", "Cross-Origin-Resource-Policy": "cross-origin"}
    return await _serve(request, "widget.js", headers)


@router.get("/docs")
async def reference(request: Request) -> Response:
    """A shell without content: the page loads /openapi.json, which requires a key if keys are configured."""
    return await _serve(request, "reference/page.html")


@router.get("/web/{path:path}")
async def page_file(request: Request, path: str) -> Response:
    """`path` begins with a version. Browsers cache files of the current version forever. A page of another
    version, which was loading during an upgrade, gets the current files, which must be revalidated."""
    version, _, name = path.partition("/")
    return await _serve(request, name, IMMUTABLE if version == files().version else HEADERS)


async def _serve(request: Request, name: str, headers: Mapping[str, str] = HEADERS) -> Response:
    content = files().contents.get(name)
    if content is None:
        uninstalled = "This library is not installed; the page shows plain text."
        raise HTTPException(404, uninstalled if name.startswith("vendor/") else "There is no such file.")
    headers = {**headers, "ETag": f'W/"{files().version}"', "Vary": "Accept-Encoding"}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    accepted = request.headers.get("accept-encoding", "").replace(" ", "")
    if "gzip" in accepted and "gzip;q=0" not in accepted and not name.endswith(".woff2"):
        content, headers["Content-Encoding"] = await asyncio.to_thread(_compressed, content), "gzip"
    return Response(content, headers=headers, media_type=MEDIA_TYPES[PurePath(name).suffix])


@cache
def _compressed(content: bytes) -> bytes:
    """Compressed once for all readers: at 12 kB/s the page loaded in 40 seconds instead of 70."""
    return gzip.compress(content, mtime=0)
