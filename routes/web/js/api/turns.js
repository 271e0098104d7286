/** Questions and turns over HTTP, and what the server offers for them. */

import { dataUrl } from "../base/dom.js";
import { id, readJson, send, withJson } from "./http.js";

export const askQuestion = (body, signal) =>
  send("/knowledge_chat_conversation", { ...withJson("POST", body), signal });
export const resumeTurn = (turnId, after, signal) =>
  send(`/turns/${id(turnId)}/stream?after=${after}`, { signal });
export const stopTurn = (turnId) => send(`/turns/${id(turnId)}/stop`, { method: "POST" });
/** A person's word on a call of a tool; whether it was taken. */
export const decideCall = async (turnId, callId, approve) =>
  (await send(`/turns/${id(turnId)}/tools/${id(callId)}`, withJson("POST", { approve })).catch(() => null)) !== null;
/** The text alone, or the parts; an image is {url}, or {turnId, number} where a turn has it. */
export const questionOf = (text, images) =>
  images.length ? [...(text ? [{ type: "text", text }] : []), ...images.map(imagePart)] : text;
const imagePart = ({ url, turnId, number }) =>
  url ? { type: "image_url", image_url: { url } } : { type: "image", turn_id: turnId, number };
/** Resolves to an address that an image can have. */
export const readImage = async (turnId, number) =>
  dataUrl(await (await send(`/turns/${id(turnId)}/images/${number}`)).blob());
export const readTurn = (turnId) => readJson(`/turns/${id(turnId)}`);
/** Refused when there is none, or no key for it, which is not asked for then. */
export const hasTurn = (turnId) => send(`/turns/${id(turnId)}`, {}, false);
/** `rating` is "up", "down" or null; null without a `comment` takes it away. */
export const rateTurn = (turnId, { rating, comment }) =>
  send(`/turns/${id(turnId)}/feedback`, withJson("PUT", { rating, comment }));
export const readPrompt = (turnId) => readJson(`/turns/${id(turnId)}/prompt`);

export const listModels = () => readJson("/models");
export const publicSettings = () => readJson("/settings/public");
