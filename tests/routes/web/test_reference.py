"""The API's reference at /docs."""

from __future__ import annotations

import re

from routes.web.page import WEB
from tests.support.servers.app import App


async def test_it_requests_nothing_from_another_origin(app: App) -> None:
    """Discriminates: FastAPI's own page, whose script is from another site."""
    response = await app.client.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'self'" in response.headers["content-security-policy"]
    files = [response.text, *(file.read_text("utf-8") for file in (WEB / "reference").glob("page.*"))]
    assert not [text for text in files if re.search("https?:|//[a-z]+[.][a-z]", text)]
    linked = re.findall(r'(?:src|href)="([^"]+)"', response.text)
    assert linked
    for path in linked:
        assert (await app.client.get(path)).status_code == 200, path


async def test_it_needs_no_key_and_contains_nothing_that_needs_one(app: App) -> None:
    assert "/sessions" not in (await app.client.get("/docs")).text
