/** HTTP calls for questions and turns, and for the models and settings they depend on. */

import { dataUrl } from "../base/dom.js";
import { id, readJson, send, withJson } from "./http.js";

export const askQuestion = (body, signal) =>
  send("/knowledge_chat_conversation", { ...withJson("POST", body), signal });
export const resumeTurn = (turnId, after, signal) =>
  send(`/turns/${id(turnId)}/stream?after=${after}`, { signal });
export const stopTurn = (turnId) => send(`/turns/${id(turnId)}/stop`, { method: "POST" });
/** Approves or refuses a tool call; returns whether the server accepted the decision. */
export const decideCall = async (turnId, callId, approve) =>
  (await send(`/turns/${id(turnId)}/tools/${id(callId)}`, withJson("POST", { approve })).catch(() => null)) !== null;
/** The text, or a list of parts if there are images; an image is {url}, or {turnId, number} for one stored with a turn. */
export const questionOf = (text, images) =>
  images.length ? [...(text ? [{ type: "text", text }] : []), ...images.map(imagePart)] : text;
const imagePart = ({ url, turnId, number }) =>
  url ? { type: "image_url", image_url: { url } } : { type: "image", turn_id: turnId, number };
/** Resolves to a data URL. */
export const readImage = async (turnId, number) =>
  dataUrl(await (await send(`/turns/${id(turnId)}/images/${number}`)).blob());
export const readTurn = (turnId) => readJson(`/turns/${id(turnId)}`);
/** Rejects if the turn does not exist or the key gives no access; does not ask for a key. */
export const hasTurn = (turnId) => send(`/turns/${id(turnId)}`, {}, false);
/** `rating` is "up", "down" or null; null without a `comment` removes the feedback. */
export const rateTurn = (turnId, { rating, comment }) =>
  send(`/turns/${id(turnId)}/feedback`, withJson("PUT", { rating, comment }));
export const readPrompt = (turnId) => readJson(`/turns/${id(turnId)}/prompt`);

export const listModels = () => readJson("/models");
export const publicSettings = () => readJson("/settings/public");
