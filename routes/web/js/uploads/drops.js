/** Accepts files dropped anywhere on the page, including the files in dropped folders. */

const carriesFiles = (event) => Boolean(event.dataTransfer?.types.includes("Files"));

const LEFT_MS = 100; // WebKit may not tell the next element from the outside of the window, but a dragover follows there

/**
 * `onOver(true, areImages)` is called when files are dragged over the page, `onFiles(files)` when they are dropped,
 * `onLeft()` when they have left without that.
 */
export function acceptDrops({ onOver, onFiles, onLeft }) {
  let isOver = false;
  let leaving = 0;
  const over = (now, areImages) => {
    clearTimeout(leaving);
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
  const left = () => {
    over(false);
    onLeft();
  };
  addEventListener("dragleave", (event) => {
    clearTimeout(leaving);
    if (isOver && !event.relatedTarget) leaving = setTimeout(left, LEFT_MS);
  });
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
