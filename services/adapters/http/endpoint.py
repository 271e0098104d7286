"""Where a model's requests go, with which headers, and through which proxy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from core.errors import StartRefusedError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`proxy` is the environment's for this address; the headers hold keys."""

    url: URL
    headers: Mapping[str, str] = field(repr=False)
    proxy: URL | None = None
    proxy_headers: Mapping[str, str] | None = field(default=None, repr=False)


def endpoint(base_url: str, path: str, headers: Mapping[str, str]) -> Endpoint:
    """`path` under `base_url`, whose query stays; a user named in it is sent as basic authorization.

    The environment's proxies are looked up here and not by aiohttp's `trust_env`, which would also read
    .netrc for every request, and fail where that names the host of a key. Raises StartRefusedError.
    """
    try:
        base = URL(base_url)
    except ValueError as error:
        raise StartRefusedError(f"base_url of a model is not an address: {error}.") from error
    url = (base / path).with_query(base.query).with_user(None)
    sent = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "wenmai"}
    sent |= headers
    if base.user:
        sent["Authorization"] = aiohttp.encode_basic_auth(base.user, base.password or "")
    return _through_proxy(Endpoint(url, sent))


def _through_proxy(direct: Endpoint) -> Endpoint:
    proxy = getproxies().get(direct.url.scheme)
    if not proxy or proxy_bypass(direct.url.host or ""):
        return direct
    via = URL(proxy if "://" in proxy else f"http://{proxy}")
    login = aiohttp.encode_basic_auth(via.user, via.password or "") if via.user else None
    known = {"Proxy-Authorization": login} if login else {}
    if direct.url.scheme == "http":  # there is no CONNECT that could carry it
        return Endpoint(direct.url, {**direct.headers, **known}, via.with_user(None))
    return Endpoint(direct.url, direct.headers, via.with_user(None), known or None)
