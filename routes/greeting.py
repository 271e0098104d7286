"""What the terminal shows, in the operator's language: that the server is ready, how to ask it a question
that the store can answer, and what it waits for when stopping."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath

from api.container import Container
from core.errors import WenmaiError
from core.knowledge import SHARED_OWNER, DocumentFilter, DocumentStatus
from core.owners import KEY_VARIABLE, LOCAL_OWNER
from core.text import Language

LOOK_S = 2.0  # for looking into the store; a start waits no longer for an example
MAX_TITLE_CHARS = 60

TEXTS: dict[str, tuple[str, str]] = {
    "ready": ("Wenmai 问脉已就绪：{url}", "Wenmai 问脉 is ready: {url}"),
    "reading": (
        "正在读入示例文档，约需一分钟；现在就可以提问，已读入的部分可以检索。",
        "The sample guide is being read, which takes about a minute; you can already ask about what has "
        "been read.",
    ),
    "empty": (
        "还没有文档：先在网页上传，或运行 wenmai ingest 文件夹。",
        "No documents yet: add some in the page, or run wenmai ingest FOLDER.",
    ),
    "key": (
        "先把 {key} 设为 {names} 中的一个密钥：提的问题、加入的文档都归这个密钥。",
        "First set {key} to one of your {names}: what you ask and add belongs to that key.",
    ),
    "about_sample": ("问脉不联网能用吗？", "Can Wenmai run without a network?"),
    "about_title": ("“{title}”讲了什么？", "What does “{title}” say?"),
    "about_itself": ("你能做什么？", "What can you do?"),
    "stopping": (
        "正在停止：等待 {running} 个回答完成，最多 {at_most_s:g} 秒；再按一次 Ctrl-C 立即停止。",
        "Stopping: waiting up to {at_most_s:g} s for answers to finish: {running}. Press Ctrl-C again to "
        "stop at once.",
    ),
    "closing": ("正在停止：没有正在进行的回答。", "Stopping: no answer is running."),
}


def reader_language(environment: Mapping[str, str]) -> Language:
    """Return the locale's language, by POSIX's precedence of variables."""
    names = (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next(filter(None, names), "").startswith("zh") else "en"


def tell(name: str, language: Language, **values: object) -> str:
    return TEXTS[name][language == "en"].format(**values)


def show(text: str) -> None:
    """Print, escaping what the terminal's encoding lacks; do nothing if the terminal is gone."""
    encoding = sys.stdout.encoding
    with suppress(OSError):
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


async def greeting(container: Container, url: str, summary: str, language: Language) -> str:
    """`summary` describes in one line what runs here."""
    server = container.settings.server
    keys = "API_KEYS" if server.api_keys else "ADMIN_API_KEYS" if server.admin_api_keys else ""
    question, hint = await _question(
        container, language, (SHARED_OWNER,) if keys else (LOCAL_OWNER, SHARED_OWNER)
    )
    hints = [hint, keys and tell("key", language, key=KEY_VARIABLE, names=keys)]
    lines = [tell("ready", language, url=url), *[f"  {line}" for line in (summary, *hints) if line]]
    return "\n".join(["", *lines, "", curl(url, question, with_key=bool(keys)), ""])


def curl(url: str, question: str, *, with_key: bool) -> str:
    """Return a command that is safe to paste into a shell, whatever the question contains."""
    address = shlex.quote(f"{url}/knowledge_chat_conversation")
    body = shlex.quote(json.dumps({"question": question}, ensure_ascii=False))
    key = [f'-H "Authorization: Bearer ${KEY_VARIABLE}"'] if with_key else []
    parts = [f"  curl -N {address}", "-H 'Content-Type: application/json'", *key, f"-d {body}"]
    return " \\\n    ".join(parts)


async def _question(container: Container, language: Language, owners: Sequence[str]) -> tuple[str, str]:
    """Return a question that the store can answer, and a hint about it."""
    if container.knowledge.jobs.sample_pending:
        return tell("about_sample", language), tell("reading", language)
    with suppress(WenmaiError, TimeoutError):  # the log reports an unavailable store
        async with asyncio.timeout(LOOK_S):
            if await container.knowledge.documents.sample_ids():
                return tell("about_sample", language), ""
            if title := await _title(container, owners):
                return tell("about_title", language, title=title), ""
            return tell("about_itself", language), tell("empty", language)
    return tell("about_itself", language), ""


async def _title(container: Container, owners: Sequence[str]) -> str:
    """Return the newest document's first heading, else its name; "" if these owners have none."""
    ready = DocumentFilter(status=DocumentStatus.READY)
    for document in (await container.knowledge.documents.page(owners, 1, None, ready)).documents:
        page = await container.knowledge.chunks(document.document_id, owners, 1)
        heading = page.chunks[0].heading.partition(" > ")[0] if page.chunks else ""
        title = heading or PurePath(document.file_name).stem
        return "".join(filter(str.isprintable, title))[:MAX_TITLE_CHARS]
    return ""
