"""Print an answer as it streams: python read_stream.py http://127.0.0.1:8000 'What is a turn?'"""

import http.client
import json
import os
import sys
import time
import urllib.error
import uuid
from urllib.request import Request, urlopen


def events(response):
    """Yield (id, kind, text) of each event that arrived completely."""
    event_id, data = "", []
    for line in (raw.decode(errors="replace").rstrip("\n") for raw in response):
        if line.startswith("id: "):
            event_id = line[4:]
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            kind, _, text = "\n".join(data).partition(":")
            yield event_id, kind, text
            data = []


def refusal(error):
    """Return the error's body, and whether a retry may succeed (for a proxy's page, by its status)."""
    body = ""
    try:
        body = error.read().decode(errors="replace")
        return body, json.loads(body)["error"]["retryable"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return body, error.code in (429, 502, 503, 504)


def ask(base, question, key=""):
    """Yield the answer piece by piece, without repetition, however often the connection breaks."""
    turn_id, last, failures = str(uuid.uuid4()), "", 0
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    body = json.dumps({"question": question, "turn_id": turn_id}).encode()
    while failures < 8:
        request = Request(f"{base}/knowledge_chat_conversation", body, headers)
        if last:  # the answer continues without a reader: resume after the last event received
            request = Request(f"{base}/turns/{turn_id}/stream", headers=headers | {"Last-Event-ID": last})
        wait_s = min(2**failures / 2, 10)
        try:
            with urlopen(request, timeout=60) as response:
                for event_id, kind, text in events(response):
                    last, failures = event_id, 0
                    if kind == "CONTENT":
                        yield text
                    elif kind == "ERROR":
                        raise RuntimeError(text)
                    elif kind == "DONE":
                        return
        except urllib.error.HTTPError as error:
            message, retryable = refusal(error)
            if not retryable:
                raise RuntimeError(message) from None
            wait_s = float(error.headers.get("Retry-After", wait_s))
        except (OSError, http.client.HTTPException):
            pass  # the connection was lost or could not be opened
        failures += 1
        time.sleep(wait_s)
    raise RuntimeError("the server cannot be reached")


if __name__ == "__main__":
    for piece in ask(sys.argv[1].rstrip("/"), sys.argv[2], os.environ.get("WENMAI_KEY", "")):
        print(piece, end="", flush=True)
    print()
