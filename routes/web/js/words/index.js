/** All texts of the page. Each key is in exactly one file. */

import * as branches from "./branches.js";
import * as composer from "./composer.js";
import * as documents from "./documents.js";
import * as errors from "./errors.js";
import * as memory from "./memory.js";
import * as page from "./page.js";
import * as prompt from "./prompt.js";
import * as sessions from "./sessions.js";
import * as sources from "./sources.js";
import * as turn from "./turn.js";
import * as uploads from "./uploads.js";

const all = [branches, composer, documents, errors, memory, page, prompt, sessions, sources, turn, uploads];

export const zh = Object.assign({}, ...all.map((words) => words.zh));
export const en = Object.assign({}, ...all.map((words) => words.en));
