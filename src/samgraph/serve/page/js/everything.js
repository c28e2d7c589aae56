// Everything mode: all masks of the picture, from which objects are picked.

import { post, remove, request, upload } from "./api.js";
import { framePath } from "./frames.js";
import { smallestAt } from "./hover.js";
import { announce, busy, fail } from "./notices.js";
import { addMasks } from "./prompts.js";
import { set, state } from "./state.js";

let running = false;

/** Density of the point grid: coarse first, finer on request. The thresholds are the model's own. */
const SEARCHES = {
  quick: { points_per_side: 16, min_mask_region_area: 100 },
  fine: { points_per_side: 32, min_mask_region_area: 50 },
};

/** Finds all masks of the picture or frame, unless they are there already. */
export async function findEverything(search = "quick", { again = false } = {}) {
  const { medium, frame } = state;
  if (running || !medium || (!again && state.found?.medium === medium.id && state.found.frame === frame)) return;
  running = true;
  set({ found: null });
  try {
    const masks = await busy("Finding everything in the picture", ask(medium, frame, SEARCHES[search]));
    if (state.medium?.id !== medium.id) return;
    masks.sort((a, b) => b.area - a.area);
    set({ found: { masks, lit: null, medium: medium.id, frame } });
    announce(`${masks.length} masks found. Click to add one.`);
  } catch (error) {
    fail("stage-notice", error, { retry: () => findEverything(search, { again: true }) });
  } finally {
    running = false;
  }
}

async function ask(medium, frame, body) {
  if (medium.kind === "image") return (await post(`images/${medium.id}/everything`, body)).masks;
  const response = await request("GET", framePath(frame, medium.width));
  const image = await upload("images", new File([await response.blob()], `frame-${frame}.jpg`));
  try {
    return (await post(`images/${image.id}/everything`, body)).masks;
  } finally {
    remove(`images/${image.id}`).catch(() => {});
  }
}

/** Adds the mask at a position as an object. */
export function pickAt(x, y) {
  const index = smallestAt(x, y);
  if (index === null) return;
  addMasks([state.found.masks[index]]);
  announce(`Added as ${state.objects.at(-1).name}.`);
}

/** Adds every mask that was found. */
export function pickAll() {
  addMasks(state.found.masks);
  set({ tool: "point", activeId: null });
}
