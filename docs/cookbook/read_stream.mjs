// Print an answer as it streams: node read_stream.mjs http://127.0.0.1:8000 "What is a turn?"

// Yields [id, kind, text] of each event that arrived completely.
async function* events(body) {
  let rest = "";
  for await (const piece of body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + piece).split("\n\n");
    rest = blocks.pop();
    for (const lines of blocks.map((block) => block.split("\n"))) {
      const data = lines.filter((line) => line.startsWith("data:"));
      const [, kind, text] = /^(\w+):([^]*)/.exec(data.map((line) => line.slice(5).replace(/^ /, "")).join("\n")) ?? [];
      if (kind) yield [lines.find((line) => line.startsWith("id: ")).slice(4), kind, text];
    }
  }
}

// Whether the same request may succeed later; for a proxy's page, which does not say, by its status.
function isRetryable(status, body) {
  try {
    return JSON.parse(body).error.retryable;
  } catch {
    return [429, 502, 503, 504].includes(status);
  }
}

// Yields the answer piece by piece, without repetition, however often the connection breaks.
export async function* ask(base, question, key = "") {
  const turn_id = crypto.randomUUID();
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  const request = { method: "POST", headers, body: JSON.stringify({ question, turn_id }) };
  for (let failures = 0, last = ""; failures < 8; failures++) {
    let wait_s = Math.min(2 ** failures / 2, 10);
    try {
      const response = last // the answer continues without a reader: resume after the last event received
        ? await fetch(`${base}/turns/${turn_id}/stream`, { headers: { ...headers, "Last-Event-ID": last } })
        : await fetch(`${base}/knowledge_chat_conversation`, request);
      if (!response.ok) {
        const body = await response.text();
        if (!isRetryable(response.status, body)) throw new Error(body);
        wait_s = Number(response.headers.get("Retry-After") ?? wait_s);
      } else
        for await (const [id, kind, text] of events(response.body)) {
          [last, failures] = [id, 0];
          if (kind === "CONTENT") yield text;
          else if (kind === "ERROR") throw new Error(text);
          else if (kind === "DONE") return;
        }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // fetch throws TypeError if the connection is lost
    }
    await new Promise((resolve) => setTimeout(resolve, wait_s * 1000));
  }
  throw new Error("the server cannot be reached");
}

// As a program; other programs import `ask`.
if (globalThis.process?.argv[1]?.endsWith("read_stream.mjs")) {
  const base = process.argv[2].replace(/\/$/, "");
  for await (const piece of ask(base, process.argv[3], process.env.WENMAI_KEY)) process.stdout.write(piece);
  console.log();
}
