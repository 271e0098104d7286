/** The API reference, rendered from /openapi.json with text nodes only: no library, no third-party requests. */

import { address, isSendable, saveKey, readKey } from "../js/api/http.js";

const ZH = {
  summary: "由 /openapi.json 生成，客户端生成器也可以用它。",
  key: "访问密钥：",
  send: "打开",
  refused: "需要访问密钥。",
  failed: "读不到 /openapi.json：",
  parameters: "参数",
  body: "请求体",
  responses: "响应",
  fields: "字段",
  example: "例子",
  schemas: "数据结构",
  required: "必填",
};
const EN = {
  summary: "Generated from /openapi.json, which client generators can use, too.",
  key: "Access key:",
  send: "Open",
  refused: "An access key is needed.",
  failed: "/openapi.json cannot be read:",
  parameters: "Parameters",
  body: "Request body",
  responses: "Responses",
  fields: "Fields",
  example: "Example",
  schemas: "Schemas",
  required: "required",
};
const WORDS = document.documentElement.lang.startsWith("zh") ? ZH : EN;
const METHODS = ["get", "post", "put", "patch", "delete"];
const byId = (id) => document.getElementById(id);

/** An element with its children; a string becomes text. */
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

const nameOf = (reference) => reference.split("/").at(-1);

/** A short description of a schema's type; a reference becomes a link to its schema. */
function typeOf(schema = {}) {
  if (schema.$ref) return [element("a", { href: `#${nameOf(schema.$ref)}` }, nameOf(schema.$ref))];
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.flatMap((each, at) => [...(at ? [" | "] : []), ...typeOf(each)]);
  if (schema.const !== undefined) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((each) => JSON.stringify(each)).join(" | ")];
  if (schema.type === "array") return ["[", ...typeOf(schema.items), "]"];
  const values = schema.additionalProperties;
  if (values && values !== true) return ["{…: ", ...typeOf(values), "}"];
  if (schema.contentSchema) return ["text/event-stream: ", ...typeOf(schema.contentSchema)];
  return [[schema.type ?? "any", schema.format && `(${schema.format})`].filter(Boolean).join(" ")];
}

/** A table of rows [name, type, text]; each cell is text or nodes. */
function table(title, rows) {
  if (!rows.length) return [];
  const made = rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, ...[cell].flat()))));
  return [element("h4", {}, title), element("table", {}, element("tbody", {}, ...made))];
}

const marked = (name, required) => [element("code", {}, name), required ? ` (${WORDS.required})` : ""];

const parametersOf = (operation) =>
  table(
    WORDS.parameters,
    (operation.parameters ?? []).map((each) => [
      [...marked(each.name, each.required), ` ${each.in}`],
      typeOf(each.schema),
      each.description ?? "",
    ]),
  );

const contentRows = (content = {}) =>
  Object.entries(content).map(([type, { schema }]) => [type, typeOf(schema), schema?.description ?? ""]);

const responsesOf = (operation) =>
  table(
    WORDS.responses,
    Object.entries(operation.responses).map(([status, response]) => [
      element("code", {}, status),
      Object.values(response.content ?? {}).flatMap(({ schema }, at) => [at ? ", " : "", ...typeOf(schema)]),
      response.description ?? "",
    ]),
  );

function operationOf(method, path, operation) {
  const head = element("summary", {}, element("code", {}, `${method.toUpperCase()} ${path}`));
  return element(
    "details",
    { id: operation.operationId },
    head,
    element("p", {}, operation.description ?? ""),
    ...parametersOf(operation),
    ...table(WORDS.body, contentRows(operation.requestBody?.content)),
    ...responsesOf(operation),
  );
}

function tagOf(tag, spec) {
  const operations = Object.entries(spec.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]?.tags?.includes(tag.name)).map((method) =>
      operationOf(method, path, methods[method]),
    ),
  );
  return [element("h2", { id: `tag-${tag.name}` }, tag.name), element("p", {}, tag.description), ...operations];
}

function schemaOf(name, schema) {
  const required = new Set(schema.required);
  const rows = Object.entries(schema.properties ?? {}).map(([field, each]) => [
    marked(field, required.has(field)),
    typeOf(each),
    each.description ?? "",
  ]);
  const examples = (schema.examples ?? []).flatMap((each) => [
    element("h4", {}, WORDS.example),
    element("pre", {}, JSON.stringify(each, null, 2)),
  ]);
  return element(
    "details",
    { id: name },
    element("summary", {}, element("code", {}, name)),
    element("p", {}, schema.description ?? "", ...(schema.properties ? [] : [" ", ...typeOf(schema)])),
    ...table(WORDS.fields, rows),
    ...examples,
  );
}

function show(spec) {
  byId("tags").replaceChildren(
    ...spec.tags.map((tag) => element("a", { href: `#tag-${tag.name}` }, tag.name)),
    element("a", { href: "#schemas" }, WORDS.schemas),
  );
  byId("operations").replaceChildren(...spec.tags.flatMap((tag) => tagOf(tag, spec)));
  const schemas = Object.entries(spec.components.schemas).sort(([one], [other]) => one.localeCompare(other));
  byId("schemas").replaceChildren(
    element("h2", {}, WORDS.schemas),
    ...schemas.map(([name, schema]) => schemaOf(name, schema)),
  );
}

/** Expands and scrolls to the target of the link. */
function openTarget() {
  const target = byId(decodeURIComponent(location.hash.slice(1)));
  if (target?.localName === "details") target.open = true;
  target?.scrollIntoView();
}

function complain(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

async function load() {
  const key = readKey();
  const response = await fetch(address("/openapi.json"), { headers: key ? { Authorization: `Bearer ${key}` } : {} });
  byId("key").hidden = response.status !== 401;
  if (response.status === 401) return complain(WORDS.refused);
  if (!response.ok) return complain(`${WORDS.failed} HTTP ${response.status}`);
  complain("");
  show(await response.json());
  openTarget();
}

const start = () => load().catch((error) => complain(`${WORDS.failed} ${error.message}`));

byId("summary").textContent = WORDS.summary;
byId("key-label").textContent = WORDS.key;
byId("key-send").textContent = WORDS.send;
byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key-input").value.trim();
  if (isSendable(key)) saveKey(key);
  start();
});
addEventListener("hashchange", openTarget);
start();
