// Keys and what the page runs on.

import { openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { setting, state } from "./state.js";

/** Shows the list of keys. */
export function showHelp(keys) {
  const groups = [...new Set(keys.map(({ group }) => group))];
  const column = (names) => h("div", {}, names.map((name) => [h("h3", {}, name), h("dl", {}, keys.filter(({ group }) => group === name).map(({ shows, does }) => h("div", {}, h("dt", {}, does), h("dd", {}, shows.split(" ").map((part) => h("kbd", {}, part))))))]).flat());
  const { info } = state;
  const single = h("label", { class: "switch" }, h("span", {}, "Keys without Ctrl"), h("input", { type: "checkbox", role: "switch", checked: state.settings.keys, onchange: (event) => setting({ keys: event.target.checked }) }));
  const about = info ? h("p", { class: "about" }, `samgraph ${info.version} · ${info.model.name} at ${info.model.image_size} pixels · ${info.engine} on ${info.device}, ${info.precision}. Pictures stay on this server.`) : null;
  openDialog("Keys and help", [
    h("p", { class: "quiet" }, "Click an object: its mask appears. Click again where the mask is missing, right-click where it is too much. Drag draws a box. In a video, do this on one frame, then Track."),
    h("div", { class: "keys" }, column(groups.slice(0, 2)), column(groups.slice(2))), single, about]);
}
