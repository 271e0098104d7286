// Print an answer as it streams: node fetch.mjs http://127.0.0.1:8000/v1 "How many days of leave?"

const [base, question] = process.argv.slice(2);
const response = await fetch(`${base}/chat/completions`, {
  method: "POST",
  headers: { "Content-Type": "application/json", Authorization: `Bearer ${process.env.WENMAI_KEY ?? "none"}` },
  body: JSON.stringify({ model: "wenmai", stream: true, messages: [{ role: "user", content: question }] }),
});
if (!response.ok) throw new Error((await response.json()).error.message);

let rest = "";
for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
  const frames = (rest + piece).split("\n\n");
  rest = frames.pop();
  for (const frame of frames) {
    const data = frame.replace(/^data: /, "");
    if (!data.startsWith("{")) continue;
    const { choices, error } = JSON.parse(data);
    if (error) throw new Error(error.message);
    process.stdout.write(choices[0]?.delta.content ?? "");
  }
}
console.log();
