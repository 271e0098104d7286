"""The doctor on the models: endpoints answer, folders and files are there. No key is ever shown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from config.settings import LLMSettings, ModelSettings
from core.operations.findings import Finding, fail, ok, warn

TIMEOUT_S = 4.0
OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
HUB_CACHE = Path("~/.cache/huggingface/hub")


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    url: str


async def check_models(models: ModelSettings, llms: Mapping[str, LLMSettings]) -> list[Finding]:
    """`llms` by model id. At most `TIMEOUT_S`, whatever the endpoints do."""
    local = [_embedding_folder(models), _reranker_folder(models)]
    local += [_file(model_id, entry) for model_id, entry in llms.items()]
    asked = [_ask(endpoint) for endpoint in endpoints(models, llms)]
    findings = [finding for finding in local if finding is not None]
    return findings + list(await asyncio.gather(*asked)) or [ok("models", "none needs the network or a file")]


def endpoints(models: ModelSettings, llms: Mapping[str, LLMSettings]) -> list[Endpoint]:
    addresses = [
        Endpoint(f"model {model_id}", _llm_url(entry))
        for model_id, entry in llms.items()
        if entry.provider in ("openai", "anthropic")
    ]
    if models.embedding.partition(":")[0] == "openai":
        url = models.embedding_base_url or models.openai_base_url or OPENAI_URL
        addresses.append(Endpoint("embedding", url))
    if models.reranker.partition(":")[0] == "http" and models.reranker_url:
        addresses.append(Endpoint("reranker", models.reranker_url))
    return addresses


def _llm_url(entry: LLMSettings) -> str:
    return entry.base_url or (ANTHROPIC_URL if entry.provider == "anthropic" else OPENAI_URL)


async def _ask(endpoint: Endpoint) -> Finding:
    """Any answer will do: without a key and a question it is a refusal, and shows that somebody is there."""
    place = host_of(endpoint.url)
    try:
        async with asyncio.timeout(TIMEOUT_S), httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            response = await client.head(_bare(endpoint.url))
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
        why = (
            "does not answer in time" if _is_timeout(error) else f"cannot be reached ({type(error).__name__})"
        )
        return fail(endpoint.name, f"{place} {why}: check its address, and that it runs")
    if response.status_code >= 500 and response.status_code != 501:
        return warn(endpoint.name, f"{place} answers with status {response.status_code}: look at its log")
    return ok(endpoint.name, f"{place} answers")


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, (TimeoutError, httpx.TimeoutException))


def host_of(url: str) -> str:
    """Without what may be secret in an address: its user, its path, its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _bare(url: str) -> str:
    return f"{host_of(url)}{urlsplit(url).path}"


def _embedding_folder(models: ModelSettings) -> Finding | None:
    return _folder("embedding", models.embedding, "sentence-transformers")


def _reranker_folder(models: ModelSettings) -> Finding | None:
    return _folder("reranker", models.reranker, "cross-encoder")


def _folder(name: str, spec: str, expected: str) -> Finding | None:
    kind, _, target = spec.partition(":")
    if kind != expected:
        return None
    if Path(target).expanduser().is_dir() or _in_hub_cache(target):
        return ok(name, f"{target} is on this machine")
    return fail(name, f"{target} is neither a folder nor in the local hub cache: download it first")


def _in_hub_cache(model: str) -> bool:
    home = os.environ.get("HF_HOME")
    override = os.environ.get("HF_HUB_CACHE")
    cache = Path(override) if override else Path(home) / "hub" if home else HUB_CACHE.expanduser()
    names = {model, f"sentence-transformers/{model}"}
    return any((cache / f"models--{each.replace('/', '--')}").is_dir() for each in names)


def _file(model_id: str, entry: LLMSettings) -> Finding | None:
    if entry.provider != "gguf":
        return None
    if Path(entry.model).expanduser().is_file():
        return ok(f"model {model_id}", f"{Path(entry.model).name} is on this machine")
    return fail(f"model {model_id}", f"{entry.model} is not a file: download the model, or set its path")
