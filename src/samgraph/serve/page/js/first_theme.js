// Runs before the first paint, so that a chosen theme does not flash.
(() => {
  let chosen = null;
  try { chosen = JSON.parse(localStorage.getItem("samgraph.settings") || "{}").theme; } catch { /* private window */ }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = chosen || (dark ? "dark" : "light");
})();
