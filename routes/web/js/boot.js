// Runs before the first paint (a classic script, so the choice of theme and language does not flash).
(() => {
  const read = (key) => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage may be forbidden: the browser's own preference then decides
    }
  };
  const root = document.documentElement;
  const theme = read("wenmai.theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  const language = read("wenmai.lang") ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
  root.lang = language === "zh" ? "zh-CN" : "en";
  if (language === "zh") return;
  root.dataset.words = "waiting"; // the page is written in Chinese: its words wait for their translation
  addEventListener("DOMContentLoaded", () => delete root.dataset.words);
})();
