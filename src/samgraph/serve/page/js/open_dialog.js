// The dialog that opens files, samples and earlier sessions; and dropping files anywhere.

import { get } from "./api.js";
import { openDialog } from "./dialog.js";
import { $, bytes, h, icon } from "./dom.js";
import { fail } from "./notices.js";
import { openFiles, openSample, reopen } from "./opening.js";
import { state } from "./state.js";

/** Listens to the button, to drops and to pasted pictures. */
export function startOpening() {
  $("open").addEventListener("click", showOpen);
  $("files").addEventListener("change", (event) => { openFiles(event.target.files); event.target.value = ""; });
  let inside = 0;
  const isFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => { if (isFile(event)) { inside += 1; $("drop").hidden = false; event.preventDefault(); } });
  addEventListener("dragover", (event) => { if (isFile(event)) event.preventDefault(); });
  addEventListener("dragleave", () => { inside = Math.max(0, inside - 1); if (!inside) $("drop").hidden = true; });
  addEventListener("drop", (event) => {
    inside = 0;
    $("drop").hidden = true;
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    document.querySelector("dialog[open]")?.close();
    openFiles(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => { if (event.clipboardData?.files.length) openFiles(event.clipboardData.files); });
}

/** Shows the dialog. */
export function showOpen() {
  const limit = state.info?.limits.max_upload_bytes;
  const choose = h("button", { type: "button", class: "choose", autofocus: true, onclick: () => { dialog.close(); $("files").click(); } },
    icon("open"), h("strong", {}, "Choose a file, or drop it on the page"), h("span", {}, `Picture or video${limit ? `, up to ${bytes(limit)}` : ""}; a video together with its session file goes on where you left it`));
  const samples = (state.info?.samples ?? []).map((sample) => h("button", { type: "button", class: "sample", "data-sample": sample.id, onclick: () => { dialog.close(); openSample(sample); } },
    h("img", { src: sample.thumbnail, alt: "" }), h("span", {}, icon(sample.kind === "video" ? "film" : "picture"), sample.title)));
  const earlier = h("div", {});
  const dialog = openDialog("Open", [choose, samples.length ? h("h3", {}, "Samples") : null, h("div", { class: "samples" }, samples), earlier]);
  listSessions(earlier, dialog);
}

async function listSessions(host, dialog) {
  try {
    const sessions = (await get("sessions")).filter(({ id }) => id !== state.medium?.id).slice(0, 8);
    if (!sessions.length) return;
    host.append(h("h3", {}, "Still on the server"), h("div", { class: "sessions" }, sessions.map((session) => h("button", {
      type: "button",
      onclick: async () => {
        dialog.close();
        try { await reopen(session.kind, session.id); } catch (error) { fail("stage-notice", error); }
      },
    }, icon(session.kind === "video" ? "film" : "picture"), h("span", { class: "button-name" }, session.name), h("span", { class: "quiet" }, when(session.used), " · ", bytes(session.bytes))))));
  } catch { /* the list is an offer */ }
}

function when(seconds) {
  const ago = Date.now() / 1000 - seconds;
  if (ago < 90) return "just now";
  if (ago < 5400) return `${Math.round(ago / 60)} min ago`;
  return ago < 129600 ? `${Math.round(ago / 3600)} h ago` : `${Math.round(ago / 86400)} days ago`;
}
