"""Ask twice through LangChain: python langchain_chat.py http://127.0.0.1:8000/v1 'How much leave?'"""

import os
import sys

from langchain_openai import ChatOpenAI

base_url, question = sys.argv[1:3]
model = ChatOpenAI(model="wenmai", base_url=base_url, api_key=os.environ.get("WENMAI_KEY", "none"))
messages = [("human", question)]
answer = model.invoke(messages).content
print(answer)
for piece in model.stream([*messages, ("ai", answer), ("human", "Where does it say so?")]):
    print(piece.content, end="", flush=True)
print()
