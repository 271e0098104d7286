"""python library_chat.py langchain|llama_index BASE_URL FACT ASKS: the conversation of `test_lineage`, by a
library that keeps messages but no ids; every second answer is streamed. It waits for a line before the last
question."""

from __future__ import annotations

import sys
from collections.abc import Callable

Messages = list[tuple[str, str]]
FACT, ASKS = sys.argv[3:5]


def langchain(base_url: str) -> Callable[[Messages, bool], str]:
    from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]

    model = ChatOpenAI(model="wenmai", base_url=base_url, api_key="none", max_retries=0)

    def answer(messages: Messages, streamed: bool) -> str:
        if streamed:
            return "".join(piece.content for piece in model.stream(messages))
        return str(model.invoke(messages).content)

    return answer


def llama_index(base_url: str) -> Callable[[Messages, bool], str]:
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike  # type: ignore[import-untyped]

    model = OpenAILike(model="wenmai", api_base=base_url, api_key="none", is_chat_model=True, max_retries=0)

    def answer(messages: Messages, streamed: bool) -> str:
        sent = [ChatMessage(role=role, content=text) for role, text in messages]
        if streamed:
            return "".join(piece.delta or "" for piece in model.stream_chat(sent))
        return str(model.chat(sent).message.content)

    return answer


def main() -> None:
    answer = {"langchain": langchain, "llama_index": llama_index}[sys.argv[1]](sys.argv[2])
    messages: Messages = []

    def send(text: str) -> None:
        messages.append(("user", text))
        messages.append(("assistant", answer(messages, len(messages) % 4 == 1)))

    send(FACT)
    for number in range(2, 13):
        send(f"Note {number} of the old trunk: the kettle number {number} is blue.")
    asked_12 = messages[22][1]
    del messages[22:]
    send(asked_12)
    del messages[12:]
    send("Note 7, edited: the lamp is green.")
    for number in range(8, 20):
        send(f"Note {number} after the edit: the lamp number {number} is green.")
    print("waiting", flush=True)
    sys.stdin.readline()
    send(ASKS)
    for role, text in messages:
        print(role, text)


if __name__ == "__main__":
    main()
