/** What the server offers. */

import { readJson } from "./http.js";

export const listModels = () => readJson("/models");
export const publicSettings = () => readJson("/settings/public");
/** What a question can be limited to: [{tag, documents}] and [{source, documents}]. */
export const listTags = async () => (await readJson("/tags"))?.tags ?? [];
export const listSources = async () => (await readJson("/sources"))?.sources ?? [];
