"""Print an answer and its sources: python openai_whole.py http://127.0.0.1:8000/v1 'How much leave?'"""

import os
import sys

from openai import OpenAI

base_url, question = sys.argv[1:3]
with OpenAI(base_url=base_url, api_key=os.environ.get("WENMAI_KEY", "none")) as client:
    completion = client.chat.completions.create(
        model="wenmai", messages=[{"role": "user", "content": question}]
    )
    message = completion.choices[0].message
    print(message.content)
    for source in message.citations:
        print(f"[{source['index']}] {source['file_name']}")
