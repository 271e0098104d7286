/** The slash commands, parsed as the server does: the first word of a question, in any case and width. */

import { language } from "../base/i18n.js";

/** `text`: what completion inserts (`english`: on an English page); `argument`: the text key of the argument to type. */
const COMMANDS = [
  { text: "/help", does: "commandHelp" },
  { text: "/clear", does: "commandClear" },
  { text: "/persona", does: "commandPersona" },
  { text: "/persona ", argument: "commandPersonaText", does: "commandPersonaSet" },
  { text: "/persona clear", does: "commandPersonaClear" },
  { text: "/模块", english: "/library", does: "commandLibrary", opens: true }, // handled by the page, never sent
  { text: "/remember ", argument: "commandPersonaText", does: "commandRemember" },
  { text: "/forget ", argument: "commandForgetWords", does: "commandForget" },
  { text: "/memories", does: "commandMemories" },
];
const NAMES = ["help", "clear", "persona", "remember", "forget", "memories"];
const LONGEST_NAME = "/remember".length;
const LONGEST = "/persona clear".length;

/** The command's name, or "" for a question. */
export function commandOf(question) {
  const [word] = question.trim().split(/\s/, 1);
  if (!/^[/\uff0f]/.test(word) || word.length > LONGEST_NAME) return "";
  const name = word.normalize("NFKC").slice(1).toLowerCase();
  return NAMES.includes(name) ? name : "";
}

/** The commands that begin with `text`; none if it is not a command, or if only the argument is missing. */
export function completions(text) {
  if (!/^[/\uff0f]/.test(text) || text.length > LONGEST) return [];
  const begun = text.normalize("NFKC").toLowerCase();
  if (["/persona ", "/remember ", "/forget "].includes(begun)) return [];
  return COMMANDS.filter(({ text: own, english = own }) => own.startsWith(begun) || english.startsWith(begun)).map(inLanguage);
}

const inLanguage = ({ english, ...command }) => (english && language() === "en" ? { ...command, text: english } : command);
