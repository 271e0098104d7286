/** HTTP calls for the library: modules contain batches, batches contain items. */

import { id, readJson } from "./http.js";

/** {modules, problems}; `problems` has a line for each unreadable file. */
export const listModules = () => readJson("/library");
export const listBatches = async (module) => (await readJson(`/library/${id(module)}`)).batches;
/** {items, next}, from `after` on. */
export const listItems = (module, batch, after = 0) => readJson(`/library/${id(module)}/${id(batch)}?after=${after}`);
/** The templates whose title contains these words. */
export const listTemplates = async (words) => (await readJson(`/templates?q=${id(words)}`)).templates;
