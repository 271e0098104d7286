"""Ask twice through LlamaIndex: python llama_index_like.py http://127.0.0.1:8000/v1 'How much leave?'"""

import os
import sys

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

base_url, question = sys.argv[1:3]
key = os.environ.get("WENMAI_KEY", "none")
model = OpenAILike(model="wenmai", api_base=base_url, api_key=key, is_chat_model=True, max_retries=0)
messages = [ChatMessage(role="user", content=question)]
answer = model.chat(messages).message
print(answer.content)
follow_up = ChatMessage(role="user", content="Where does it say so?")
for piece in model.stream_chat([*messages, answer, follow_up]):
    print(piece.delta, end="", flush=True)
print()
