// Modal dialogs: the browser's own, so that focus stays inside and returns afterwards.

import { h, iconButton } from "./dom.js";

/** Opens a dialog with a title, content and a footer; gives the element. It is removed when closed. */
export function openDialog(title, content, footer = null) {
  const id = `dialog-${title.toLowerCase().replace(/\W+/g, "-")}`;
  document.querySelector("dialog[open]")?.close();
  const dialog = h("dialog", { "aria-labelledby": `${id}-title`, id },
    h("header", {}, h("h2", { id: `${id}-title` }, title), iconButton("close", "Close", () => dialog.close(), { class: "small" })),
    h("div", { class: "body" }, content), footer ? h("footer", {}, footer) : null);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
