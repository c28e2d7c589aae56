// One tab stop per toolbar, tabs, hints on hover and focus.

import { $, h } from "./dom.js";
import { cover } from "./view.js";

const ARROWS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: "first", End: "last" };

const items = (bar) => [...bar.querySelectorAll("button")].filter((button) => !button.disabled && button.offsetParent !== null);

/** In an element marked `data-roving` the arrow keys move the focus; Tab leaves it. */
export function startRoving() {
  document.addEventListener("keydown", (event) => {
    const bar = event.target.closest?.("[data-roving]");
    if (!bar || !(event.key in ARROWS) || event.ctrlKey || event.altKey || event.metaKey) return;
    const all = items(bar), move = ARROWS[event.key];
    const at = all.indexOf(event.target);
    if (at < 0) return;
    const next = move === "first" ? all[0] : move === "last" ? all.at(-1) : all[(at + move + all.length) % all.length];
    event.preventDefault();
    event.stopPropagation();
    next.focus();
    if (next.matches("[role=radio], [role=tab]")) next.click();
  }, true);
  document.addEventListener("focusin", (event) => {
    const bar = event.target.closest?.("[data-roving]");
    if (bar && event.target.matches("button")) for (const button of bar.querySelectorAll("button")) button.tabIndex = button === event.target ? 0 : -1;
  });
  for (const bar of document.querySelectorAll("[data-roving]")) {
    const all = [...bar.querySelectorAll("button")];
    const first = all.find((button) => button.matches("[aria-pressed=true], [aria-selected=true]")) ?? all[0];
    for (const button of all) button.tabIndex = button === first || button.id === "undo" ? 0 : -1;
  }
}

/** The tabs of the panel; `onShow` gets the tab shown. */
export function startTabs(onShow) {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  for (const tab of tabs) {
    tab.addEventListener("click", () => {
      for (const other of tabs) {
        other.setAttribute("aria-selected", String(other === tab));
        $(other.getAttribute("aria-controls")).hidden = other !== tab;
      }
      onShow(tab.id);
    });
  }
}

/** On a phone the panel is a sheet. */
export function startSheet() {
  const show = (open) => {
    $("panel").classList.toggle("open", open);
    $("panel-toggle").setAttribute("aria-expanded", String(open));
    cover(open ? Math.max(0, $("stage").getBoundingClientRect().bottom - $("panel").getBoundingClientRect().top) : 0);
  };
  const toggle = (open) => {
    show(open);
    if (open) $("panel").querySelector("[aria-selected=true]").focus();
    else $("panel-toggle").focus();
  };
  $("panel-toggle").addEventListener("click", () => toggle(!$("panel").classList.contains("open")));
  $("panel-close").addEventListener("click", () => toggle(false));
  $("panel").addEventListener("keydown", (event) => { if (event.key === "Escape" && $("panel").classList.contains("open")) toggle(false); });
  $("view").addEventListener("pointerdown", () => { if ($("panel").classList.contains("open")) show(false); });
}

/** What a button does, shown beside it after a short rest of the pointer, or at once on focus by keyboard. */
export function startHints() {
  const hint = $("hint");
  let timer = 0, shown = null;
  const hide = () => { clearTimeout(timer); hint.hidden = true; shown = null; };
  const show = (target) => {
    if (!target.checkVisibility()) return; // gone, or hidden meanwhile
    shown = target;
    const keys = (target.dataset.key ?? "").split(" ").filter(Boolean).map((key) => h("kbd", {}, key));
    hint.replaceChildren(h("span", {}, target.dataset.hint), ...keys);
    hint.hidden = false;
    const box = target.getBoundingClientRect(), own = hint.getBoundingClientRect();
    const beside = target.closest(".tools");
    const x = beside ? box.right + 10 : box.left + box.width / 2 - own.width / 2;
    const below = box.bottom + 8 + own.height < innerHeight;
    const y = beside ? box.top + box.height / 2 - own.height / 2 : below ? box.bottom + 8 : box.top - own.height - 8;
    Object.assign(hint.style, { left: `${Math.max(6, Math.min(innerWidth - own.width - 6, x))}px`, top: `${y}px` });
  };
  document.addEventListener("pointerover", (event) => {
    const target = event.target.closest?.("[data-hint]");
    if (target === shown) return;
    hide();
    if (target && event.pointerType !== "touch") timer = setTimeout(() => show(target), 350);
  });
  for (const event of ["pointerdown", "click"]) document.addEventListener(event, () => { hide(); });
  document.addEventListener("focusin", (event) => { hide(); if (event.target.matches?.("[data-hint]:focus-visible")) show(event.target); });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}
