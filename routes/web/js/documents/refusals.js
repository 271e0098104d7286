/** What need not be sent: the server would not read it. */

import { formatBytes } from "./facts.js";

const FORM_BYTES = 2_000; // what the form adds to the file
// What people have and the server cannot read: the format that their own program can save it as.
const SAVE_AS = new Map(Object.entries({
  DOCX: "doc docm dot dotx wps rtf odt pages",
  XLSX: "xls xlsb xlt xltx et ods numbers",
  PPTX: "ppt pptm pps ppsx pot potx dps odp key",
  EPUB: "mobi azw azw3",
  EML: "msg",
  PDF: "caj ofd djvu ps",
}).flatMap(([better, endings]) => endings.split(" ").map((ending) => [`.${ending}`, better])));

/**
 * Why a file is not sent, as [key, vars]; null when it may go. `limits`: `maxBytes`, and `formats`, the
 * endings that are read; undefined where the server did not tell. A name without an ending promises nothing.
 */
export function refusalOf({ name, size }, { maxBytes, formats }) {
  const ending = /.\.[^./\\]*$/.exec(name)?.[0].slice(1).toLowerCase() ?? "";
  if (maxBytes && size + FORM_BYTES > maxBytes) {
    return ["docFileTooLarge", { size: formatBytes(size), most: formatBytes(maxBytes) }];
  }
  if (size === 0) return ["docWhyEmpty"];
  if (!formats || ending.length < 2 || formats.includes(ending)) return null;
  const better = SAVE_AS.get(ending);
  return better ? ["docFileSaveAs", { ending, better }] : ["docFileKind", { ending }];
}
