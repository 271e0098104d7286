/** Takes limits away that nothing meets any more, and says so: of deleted documents, and of tags that none has. */

import { ApiError } from "../api/http.js";
import { readFileName } from "../api/persona.js";
import { hear } from "../base/bus.js";
import { language } from "../base/i18n.js";

const MOST_TAGS = 200; // that the server lists; of so many, one that is missing may be there

export class GoneLimits {
  #there = null; // ids of documents; null until their list was read

  /** `say(key, vars)` tells the reader. */
  constructor(filters, say) {
    Object.assign(this, { filters, say });
    hear("document-gone", ({ document_id: id }) => this.#gone(id));
    hear("documents-read", ({ document_ids: ids }) => {
      this.#there = new Set(ids);
      this.look();
    });
    hear("tags-read", ({ tags }) => this.#keepTags(tags));
  }

  /** To be called when other limits are shown. The list may have more documents than were read: the server is asked. */
  async look() {
    const unseen = this.#there && this.filters.now.documents.filter(({ id }) => !this.#there.has(id));
    const asked = await Promise.all((unseen ?? []).map(async ({ id }) => ((await isGone(id)) ? id : this.#there.add(id) && "")));
    this.#dropDocuments(asked.filter(Boolean));
  }

  #gone(id) {
    this.#there?.delete(id);
    this.#dropDocuments([id]);
  }

  #dropDocuments(ids) {
    const { documents } = this.filters.now;
    const gone = documents.filter(({ id }) => ids.includes(id));
    if (!gone.length) return;
    this.filters.change({ documents: documents.filter((one) => !gone.includes(one)) });
    this.#tell("documentLimitGone", gone.map(({ id, name }) => name || id));
  }

  #keepTags(all) {
    const { tags } = this.filters.now;
    const gone = all.length < MOST_TAGS ? tags.filter((tag) => !all.includes(tag)) : [];
    if (!gone.length) return;
    this.filters.change({ tags: tags.filter((tag) => !gone.includes(tag)) });
    this.#tell("tagLimitGone", gone);
  }

  /** That everything is searched now must be said. */
  #tell(key, names) {
    const named = names.join(language() === "zh" ? "”、“" : "”, “");
    this.say(this.filters.empty ? `${key}All` : key, { n: names.length, names: named });
  }
}

/** Not reached is not gone. */
async function isGone(documentId) {
  try {
    await readFileName(documentId);
    return false;
  } catch (error) {
    return error instanceof ApiError && error.status === 404;
  }
}
