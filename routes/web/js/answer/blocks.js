/**
 * Splits growing Markdown into top-level blocks, so that each finished block is rendered only once.
 *
 * The splits depend on the text alone, not on how it arrived: a streamed answer and a stored one get the same
 * blocks. A block that exceeds its cap is cut at a line break (a code block is closed and reopened, list items
 * move to the margin), which bounds the cost of re-rendering the block that is still growing.
 */
const CAP = 6000;
const LIST_CAP = 3000; // lists are the most expensive to render
const CODE_CAP = 30_000; // code is cheap to render, and a cut in it is visible
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})/;
const HEADING = /^ {0,3}#{1,6}(?:[ \t]|$)/;
const TABLE_HEAD = /^[^\n]*\|[^\n]*\n {0,3}(?=[^\n]*-)(?=[^\n]*\|)[|:\- \t]+\n/;
const ANY_ITEM = /^\s*(?:[-*+]|\d{1,9}[.)])[ \t]/;
const SENTENCE_END = /[\u3002\uff01\uff1f!?\uff1b;](?:\s?\[[^\]\n]{1,12}\])*|[.\uff0c,]\s?|\s/g;
const LOOK_BACK = 800; // how far before the cap an overlong line may be cut
const NUMBERED = /^(\d{1,9})(?=[.)](?:[ \t]|$))/; // at the margin
const LIST_ITEM = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)/;

export class BlockSplitter {
  #rest = "";
  #block = "";
  #blank = false;
  #list = false;
  #indent = 0; // removed from the remaining lines of a nested list that was cut
  #number = null; // shown by the last item at the margin, if the list is numbered
  #fence = null;
  #head = ""; // repeated after a cut table; not a block by itself
  #finished = [];

  /** The unfinished text: the growing block plus the growing line, or the two separately if the line starts a new block. */
  get open() {
    const [block, rest] = [this.#block, this.#rest];
    const apart = block && rest.trim() && !this.#fence && this.#startsNew(rest);
    return apart ? [block, rest] : [block + this.#dedented(rest)];
  }

  get inCode() {
    return this.#fence !== null;
  }

  /** @returns {string[]} the blocks completed by `text` */
  feed(text) {
    const source = this.#rest + text;
    let at = 0;
    for (let end = lineEnd(source, at); end > at; end = lineEnd(source, at)) {
      this.#line(source.slice(at, end));
      at = end;
    }
    this.#rest = source.slice(at);
    return this.#take();
  }

  end() {
    if (this.#rest) this.#line(this.#rest);
    this.#rest = "";
    this.#emit();
    this.#fence = null;
    return this.#take();
  }

  #take() {
    return this.#finished.splice(0);
  }

  #line(line) {
    if (this.#fence) return this.#fenced(line);
    if (line.trim() === "") {
      this.#blank = true;
      if (this.#block) this.#block += line;
      return;
    }
    if (this.#startsNew(line)) this.#emit();
    else if (this.#list && this.#block.length >= LIST_CAP) line = this.#cutList(line);
    this.#blank = false;
    this.#count(line);
    const fence = this.#block ? null : FENCE.exec(line.trimEnd());
    if (fence) this.#fence = { open: line, mark: fence[1] };
    if (LIST_ITEM.test(line)) this.#list = true;
    this.#block += this.#dedented(line);
    if (fence) return;
    if (HEADING.test(line)) this.#emit();
    else if (this.#block.length >= CAP && !this.#list) this.#cut();
  }

  /**
   * Cuts a long list: preferably between its own items, else between nested items, else at any line.
   *
   * @returns {string} the line, renumbered as it would appear without the cut
   */
  #cutList(line) {
    const nested = this.#block.length >= 1.5 * LIST_CAP && ANY_ITEM.test(line);
    if (!LIST_ITEM.test(line) && !nested && this.#block.length < CAP) return line;
    const next = this.#number === null ? null : this.#number + 1;
    this.#emit();
    this.#list = ANY_ITEM.test(line);
    this.#indent = this.#list ? indentOf(line) : 0;
    return next === null ? line : line.replace(NUMBERED, String(next));
  }

  /** As in Markdown, a list counts up from its first number, whatever numbers its other items have. */
  #count(line) {
    const number = NUMBERED.exec(line)?.[1];
    if (number) this.#number = this.#number === null ? Number(number) : this.#number + 1;
    else if (LIST_ITEM.test(line) && indentOf(line) === 0) this.#number = null;
  }

  #dedented(line) {
    return this.#indent ? line.slice(Math.min(this.#indent, indentOf(line))) : line;
  }

  /** The rest of a long table repeats the table's header. */
  #cut() {
    const head = TABLE_HEAD.exec(this.#block)?.[0] ?? "";
    this.#emit();
    this.#block = this.#head = head.length < CAP / 4 ? head : "";
  }

  #startsNew(line) {
    if (HEADING.test(line)) return true;
    if (!this.#list && FENCE.test(line.trimEnd())) return true;
    if (this.#list && /^(?:`{3}|~{3})/.test(line)) return true;
    if (!this.#blank) return false;
    const belongs = this.#list ? LIST_ITEM.test(line) || /^(?: {2}|\t)/.test(line) : /^(?: {4}|\t)/.test(line);
    return !(belongs && (this.#list || /^(?: {4}|\t)/.test(this.#block)));
  }

  #fenced(line) {
    this.#block += line;
    const { open, mark } = this.#fence;
    const body = line.trimEnd().replace(/^ {0,3}/, "");
    if (body.length >= mark.length && body === mark[0].repeat(body.length)) {
      this.#fence = null;
      this.#emit();
    } else if (this.#block.length >= CODE_CAP) {
      this.#block += (this.#block.endsWith("\n") ? "" : "\n") + mark;
      this.#emit();
      this.#block = open;
    }
  }

  #emit() {
    if (this.#block.trimEnd() !== this.#head.trimEnd()) this.#finished.push(this.#block);
    this.#block = this.#head = "";
    this.#blank = false;
    this.#list = false;
    this.#indent = 0;
    this.#number = null;
  }
}

const indentOf = (line) => /^[ \t]*/.exec(line)[0].length;

/** The end of the next line of `source`, or `at` if that line is incomplete. A line longer than CAP ends near CAP. */
function lineEnd(source, at) {
  const newline = source.indexOf("\n", at);
  if (newline >= 0 && newline - at < CAP) return newline + 1;
  if (source.length - at < CAP) return at;
  const last = [...source.slice(at + CAP - LOOK_BACK, at + CAP).matchAll(SENTENCE_END)].findLast(fits);
  if (last) return at + CAP - LOOK_BACK + last.index + last[0].length;
  const high = (source.charCodeAt(at + CAP - 1) & 0xfc00) === 0xd800;
  return at + CAP - (high ? 1 : 0);
}

/** A citation after a sentence belongs to it, so there must be room to see it whole. */
const fits = (match) => match.index + match[0].length < LOOK_BACK - 20;
