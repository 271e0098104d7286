// A classic script that runs before the first paint, so that the wrong theme or language does not flash.
(() => {
  const read = (key) => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // if storage is forbidden, the browser's own preference decides
    }
  };
  const root = document.documentElement;
  // Enter or Send before the other scripts are there: they send the question once they are.
  const sendLater = (event) => {
    const isSend = event.type === "submit" || (event.key === "Enter" && !event.shiftKey && !event.altKey && !event.isComposing && event.keyCode !== 229);
    if (event.defaultPrevented || !isSend || !event.target.closest?.("#composer")) return;
    if (event.type === "keydown" && matchMedia("(pointer: coarse)").matches) return;
    event.preventDefault();
    root.dataset.early = "send";
  };
  for (const type of ["keydown", "submit"]) addEventListener(type, sendLater);
  const theme = read("wenmai.theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  const language = read("wenmai.lang") ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
  root.lang = language === "zh" ? "zh-CN" : "en";
  if (language === "zh") return;
  root.dataset.words = "waiting"; // the static page is in Chinese: hide its texts until they are translated
  addEventListener("DOMContentLoaded", () => delete root.dataset.words);
})();
