"""Exports of other products, in their published formats: one conversation each, with a branch, an image, a
tool message, a file and a deleted node, as far as the product has them."""

from __future__ import annotations

from typing import Any

T0 = 1_700_000_000


def _gpt(node: str, parent: str | None, role: str = "", *parts: Any, **message: Any) -> dict[str, Any]:
    content = {"content_type": message.pop("content_type", "text"), "parts": list(parts)}
    body = {
        "id": node,
        "author": {"role": role},
        "content": content,
        "create_time": T0 + len(node),
        "metadata": {},
    }
    return {"id": node, "parent": parent, "children": [], "message": {**body, **message} if role else None}


def chatgpt() -> list[dict[str, Any]]:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    model = {"metadata": {"model_slug": "gpt-4o"}}
    files = {"metadata": {"attachments": [{"id": "f", "name": "plan.pdf"}]}}
    nodes = [
        _gpt("root", None),
        _gpt("sys", "root", "system", ""),
        _gpt("q1", "sys", "user", "What is a lineage?", **files),
        _gpt("a1", "q1", "assistant", "A line of descent.", **model),
        _gpt("a1b", "q1", "assistant", "A chain of ancestors.", **model),
        _gpt("q2", "a1b", "user", image, "And this?", content_type="multimodal_text"),
        _gpt("call", "q2", "assistant", "search()", content_type="code"),
        _gpt("tool", "call", "tool", "results"),
        _gpt("gone", "tool"),
        _gpt("a2", "gone", "assistant", "A tree.", **model),
    ]
    mapping = {node["id"]: node for node in nodes}
    return [
        {
            "title": "Lineage",
            "create_time": T0,
            "mapping": mapping,
            "current_node": "a2",
            "conversation_id": "c1",
        }
    ]


def claude() -> list[dict[str, Any]]:
    def said(uuid: str, sender: str, text: str, parent: str, **more: Any) -> dict[str, Any]:
        content = [{"type": "text", "text": text}, {"type": "tool_use", "name": "search"}]
        time = "2025-03-01T10:00:00.000000Z"
        return {"uuid": uuid, "sender": sender, "text": text, "content": content, "created_at": time,
                "parent_message_uuid": parent, "attachments": [], "files": [], **more}  # fmt: skip

    root = "00000000-0000-4000-8000-000000000000"
    messages = [
        said("q1", "human", "What is a lineage?", root, attachments=[{"file_name": "plan.pdf"}]),
        said("a1", "assistant", "A line of descent.", "q1"),
        said("q2", "human", "And this?", "a1"),
        said("a2", "assistant", "A tree.", "q2"),
        said("q2b", "human", "And that?", "a1"),
        said("a2b", "assistant", "A bush.", "q2b"),
    ]
    return [
        {"uuid": "c1", "name": "Lineage", "created_at": "2025-03-01T10:00:00Z", "chat_messages": messages}
    ]


def open_webui() -> list[dict[str, Any]]:
    def said(node: str, parent: str | None, role: str, content: str, **more: Any) -> dict[str, Any]:
        return {"id": node, "parentId": parent, "childrenIds": [], "role": role, "content": content,
                "timestamp": T0, **more}  # fmt: skip

    nodes = [
        said("q1", None, "user", "What is a lineage?", files=[{"type": "image", "name": "plan.png"}]),
        said("a1", "q1", "assistant", "A line of descent.", model="llama3"),
        said("a1b", "q1", "assistant", "A chain of ancestors.", model="qwen3"),
        said("q2", "a1b", "user", "And this?"),
    ]
    history = {"messages": {node["id"]: node for node in nodes}, "currentId": "q2"}
    chat = {
        "title": "Lineage",
        "system": "Be brief.",
        "models": ["llama3"],
        "history": history,
        "messages": [],
    }
    return [{"id": "c1", "title": "Lineage", "chat": chat, "created_at": T0, "updated_at": T0}]


def librechat() -> dict[str, Any]:
    def said(node: str, parent: str, text: str, *, user: bool) -> dict[str, Any]:
        return {"messageId": node, "parentMessageId": parent, "text": text, "isCreatedByUser": user,
                "sender": "User" if user else "GPT", "createdAt": "2025-03-01T10:00:00.000Z"}  # fmt: skip

    root = "00000000-0000-0000-0000-000000000000"
    messages = [
        said("q1", root, "What is a lineage?", user=True),
        said("a1", "q1", "A line of descent.", user=False),
        said("a1b", "q1", "A chain of ancestors.", user=False),
        said("q2", "a1b", "And this?", user=True),
        said("a2", "q2", "A tree.", user=False),
    ]
    options = {"model": "gpt-4o", "promptPrefix": "Be brief."}
    return {"conversationId": "c1", "title": "Lineage", "options": options, "messages": messages}


def openai() -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is a lineage?"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]},
        {"role": "tool", "content": "results", "tool_call_id": "x"},
        {"role": "assistant", "content": "A line of descent."},
        {"role": "user", "content": "And this?"},
    ]


def many(product: str, count: int) -> Any:
    """Return an export of the product with one conversation of `count` messages, in which every tenth
    question has two answers."""
    nodes: list[tuple[str, str | None, str]] = []
    parent: str | None = None
    for pair in range(count):
        nodes += [(f"q{pair}", parent, "user"), (f"a{pair}", f"q{pair}", "assistant")]
        if pair % 10 == 0:
            nodes.append((f"b{pair}", f"q{pair}", "assistant"))
        parent = f"a{pair}"
        if len(nodes) >= count:
            break
    return _MANY[product](nodes)


def _many_chatgpt(nodes: list[tuple[str, str | None, str]]) -> Any:
    listed = [_gpt(node, parent, role, f"Text {node}") for node, parent, role in nodes]
    return [{"title": "Many", "conversation_id": "m", "mapping": {node["id"]: node for node in listed}}]


def _many_claude(nodes: list[tuple[str, str | None, str]]) -> Any:
    root = "00000000-0000-4000-8000-000000000000"
    names = {"user": "human", "assistant": "assistant"}
    messages = [
        {"uuid": node, "sender": names[role], "text": f"Text {node}", "parent_message_uuid": parent or root}
        for node, parent, role in nodes
    ]
    return [{"uuid": "m", "name": "Many", "chat_messages": messages}]


def _many_open_webui(nodes: list[tuple[str, str | None, str]]) -> Any:
    messages = {
        node: {"id": node, "parentId": parent, "role": role, "content": f"Text {node}"}
        for node, parent, role in nodes
    }
    return [{"id": "m", "title": "Many", "chat": {"title": "Many", "history": {"messages": messages}}}]


def _many_librechat(nodes: list[tuple[str, str | None, str]]) -> Any:
    root = "00000000-0000-0000-0000-000000000000"
    messages = [
        {"messageId": node, "parentMessageId": parent or root, "text": f"Text {node}",
         "isCreatedByUser": role == "user"}
        for node, parent, role in nodes
    ]  # fmt: skip
    return {"conversationId": "m", "title": "Many", "messages": messages}


def _many_openai(nodes: list[tuple[str, str | None, str]]) -> Any:
    """A list has no branches."""
    return [{"role": role, "content": f"Text {node}"} for node, _, role in nodes if node[0] != "b"]


_MANY = {
    "ChatGPT": _many_chatgpt,
    "Claude": _many_claude,
    "Open WebUI": _many_open_webui,
    "LibreChat": _many_librechat,
    "OpenAI": _many_openai,
}
EXPORTS = {
    "ChatGPT": chatgpt,
    "Claude": claude,
    "Open WebUI": open_webui,
    "LibreChat": librechat,
    "OpenAI": openai,
}
