"""Stream an answer, then ask a follow-up: python openai_stream.py http://127.0.0.1:8000/v1 'How much leave?'

The history sent with the follow-up is matched to the stored conversation automatically."""

import asyncio
import os
import sys

from openai import AsyncOpenAI


async def say(client, messages):
    """Return the answer; print it as it streams."""
    stream = await client.chat.completions.create(model="wenmai", messages=messages, stream=True)
    pieces = []
    async for chunk in stream:
        if chunk.choices and (piece := chunk.choices[0].delta.content):
            print(piece, end="", flush=True)
            pieces.append(piece)
    print()
    return "".join(pieces)


async def main(base_url, question):
    async with AsyncOpenAI(base_url=base_url, api_key=os.environ.get("WENMAI_KEY", "none")) as client:
        messages = [{"role": "user", "content": question}]
        messages.append({"role": "assistant", "content": await say(client, messages)})
        messages.append({"role": "user", "content": "Where does it say so?"})
        await say(client, messages)


asyncio.run(main(*sys.argv[1:3]))
