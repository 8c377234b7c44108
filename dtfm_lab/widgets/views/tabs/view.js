// Tabs over a pane, and the pages of the tab that is chosen. They switch without waiting for Python.
import { cleanUps, focusedIn, h, onTraits } from "shared/dom.js";
import { view } from "shared/view.js";
import { grouped, kindOf, pageOf } from "./page/grouped.js";
import { keyOf } from "./page/keys.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Tab, Traits } from "./types.d.ts" */

/** @type {Record<string, string>} */
const SAID = { stale: "before the last edit", busy: "at work" };
const REST_MS = 2000; // until the other panes are put on the page: the first one comes first

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const numbered = model.get("numbered");
  const row = h("div", { class: "dtfm-tab-row", role: "tablist", "aria-label": model.get("label") });
  const pages = h("div", { class: "dtfm-pages", role: "tablist" });
  const root = h("div", { class: "dtfm dtfm-tabs", "data-lm-suppress-shortcuts": "true" }, row, pages);
  if (numbered) {
    root.classList.add("dtfm-effect-head");
    row.classList.add("dtfm-numbered");
  }
  el.append(root);
  /** @type {Map<string, string>} */
  const last = new Map(); // the page of each tab that was shown last

  /** @type {(name: string) => void} */
  function choose(name) {
    const before = model.get("value");
    if (name === before) return;
    if (model.get("second")) model.set("second", before);
    model.set("value", name);
    model.save_changes();
  }

  function show() {
    const value = model.get("value");
    root.dataset.panes = [value, model.get("second")].join(" ").trim();
    root.dataset.second = model.get("second");
    const tabs = grouped(model.get("tabs"));
    const chosen = tabs.find((tab) => tab.pages.some(({ name }) => name === value));
    if (chosen) last.set(chosen.title, value);
    const focused = [row, pages].find(focusedIn);
    row.replaceChildren(...tabs.map((tab, at) => tabButton(tab, value, numbered ? keyOf(at) : null)));
    const several = numbered && chosen && chosen.pages.length > 1 ? chosen.pages : [];
    pages.hidden = !several.length;
    pages.setAttribute("aria-label", `Pages of ${chosen?.title}`);
    pages.replaceChildren(...several.map(({ name, title, kind = "", words = "" }) => button("dtfm-page", name, title, name === value, kind, words, null)));
    const of = focused === pages && several.length ? pages : row;
    if (focused) of.querySelector("[aria-selected=true]")?.focus({ preventScroll: true });
    const mark = row.querySelector("[aria-selected=true]"),
      head = root.closest(".dtfm-head");
    if (mark && head) head.scrollLeft = Math.max(0, mark.offsetLeft + mark.offsetWidth / 2 - head.clientWidth / 2); // a phone's row is longer than its screen
  }

  /** @type {(tab: Tab, value: string, key: string | null) => HTMLElement} */
  function tabButton(tab, value, key) {
    const page = pageOf(tab, value, last);
    const words = tab.pages.find(({ name }) => name === page)?.words ?? "";
    return button("dtfm-tab", page, tab.title, page === value, kindOf(tab, page), words, key);
  }

  /** @type {(css: string, name: string, title: string, isChosen: boolean, kind: string, words: string, key: string | null) => HTMLElement} */
  const button = (css, name, title, isChosen, kind, words, key) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        class: css,
        "data-name": name,
        "data-kind": kind,
        "aria-selected": String(isChosen),
        tabindex: isChosen ? "0" : "-1",
        "aria-keyshortcuts": key,
        title: [words, SAID[kind], key && `key ${key}`].filter(Boolean).join(" · "),
        onclick: () => choose(name),
      },
      title,
      SAID[kind] ? h("i", { "aria-label": SAID[kind], role: "img" }) : null,
    );

  /** @type {(box: HTMLElement) => void} */
  const moveBy = (box) =>
    box.addEventListener("keydown", (event) => {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const all = [.../** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll("[role=tab]"))];
      const next = all[(all.findIndex((one) => one.getAttribute("aria-selected") === "true") + step + all.length) % all.length];
      next.focus({ preventScroll: true });
      next.click();
    });
  moveBy(row);
  moveBy(pages);
  onTraits(model, ["tabs", "value", "second"], show, cleanUp);
  const rest = setTimeout(() => {
    try {
      model.send({ kind: "rendered" });
    } catch {
      // the kernel is gone, and with it the panes that it would put on the page
    }
  }, REST_MS);
  cleanUp.add(() => clearTimeout(rest));
  show();
  return cleanUp.run;
}

export default view(render);
