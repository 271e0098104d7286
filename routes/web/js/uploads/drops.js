/** Accepts files dropped anywhere on the page, including the files in dropped folders. */

const carriesFiles = (event) => Boolean(event.dataTransfer?.types.includes("Files"));

/** `onOver(true, areImages)` is called when files are dragged over the page, `onFiles(files)` when they are dropped. */
export function acceptDrops({ onOver, onFiles }) {
  let isOver = false;
  const over = (now, areImages) => {
    if (now !== isOver) onOver(now, areImages);
    isOver = now;
  };
  const enter = (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    over(true, [...event.dataTransfer.items].every(({ type }) => type.startsWith("image/")));
  };
  addEventListener("dragenter", enter);
  addEventListener("dragover", enter);
  addEventListener("dragleave", (event) => !event.relatedTarget && over(false));
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    over(false);
    filesOf(event.dataTransfer).then(onFiles);
  });
}

/** The entries must be read during the event; the contents of folders can be read later. */
async function filesOf({ items, files }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return [...files];
  return (await Promise.all(entries.map(inEntry))).flat();
}

/** Skips hidden files and entries that cannot be opened. */
async function inEntry(entry) {
  if (entry.name.startsWith(".")) return [];
  if (entry.isFile) return new Promise((resolve) => entry.file((file) => resolve([file]), () => resolve([])));
  const reader = entry.createReader();
  const entries = [];
  let some;
  do {
    some = await new Promise((resolve) => reader.readEntries(resolve, () => resolve([])));
    entries.push(...some);
  } while (some.length);
  return (await Promise.all(entries.map(inEntry))).flat();
}
