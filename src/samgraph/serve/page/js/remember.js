// The prompts of videos, kept by the browser: after a reload a click adds to them and does not replace them.

const KEY = "samgraph.prompts.";
const MOST_VIDEOS = 12;
const LONGEST = 1_000_000; // characters

/** Keeps the prompts of a video: {object of the server: {frame: Prompt}}. */
export function rememberPrompts(id, prompts) {
  try {
    const text = JSON.stringify({ used: Date.now(), prompts });
    if (text.length <= LONGEST) localStorage.setItem(KEY + id, text);
    const known = Object.keys(localStorage).filter((key) => key.startsWith(KEY)).map((key) => [JSON.parse(localStorage.getItem(key)).used, key]);
    known.sort(([a], [b]) => b - a).slice(MOST_VIDEOS).forEach(([, key]) => localStorage.removeItem(key));
  } catch { /* private window, or no space: a reload then shows marks without their points */ }
}

/** What was kept of a video; empty where nothing was. */
export function recallPrompts(id) {
  try { return JSON.parse(localStorage.getItem(KEY + id) ?? "{}").prompts ?? {}; } catch { return {}; }
}
