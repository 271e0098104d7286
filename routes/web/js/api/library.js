/** The library over HTTP: modules of batches of items. */

import { id, readJson } from "./http.js";

/** {modules, problems}: a line for each file that could not be read. */
export const listModules = () => readJson("/library");
export const listBatches = async (module) => (await readJson(`/library/${id(module)}`)).batches;
/** {items, next}: from `after` on. */
export const listItems = (module, batch, after = 0) => readJson(`/library/${id(module)}/${id(batch)}?after=${after}`);
/** Those whose title has these words in it. */
export const listTemplates = async (words) => (await readJson(`/templates?q=${id(words)}`)).templates;
