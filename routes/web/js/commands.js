/** Which slash command a question is, as the server reads it: its first word, in any case and width. */

const NAMES = ["help", "clear", "persona"];
const LONGEST = "/persona".length;

/** The command's name, or "" for a question. */
export function commandOf(question) {
  const [word] = question.trim().split(/\s/, 1);
  if (!/^[/\uff0f]/.test(word) || word.length > LONGEST) return "";
  const name = word.normalize("NFKC").slice(1).toLowerCase();
  return NAMES.includes(name) ? name : "";
}
