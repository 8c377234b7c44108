// Tabs over a pane.
import { cleanUps, focusedIn, h, onTraits } from "shared/dom.js";
import { view } from "shared/view.js";
import { keyOf } from "./page/keys.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Traits } from "./types.d.ts" */

/** @type {Record<string, string>} */
const SAID = { stale: "before the last edit", busy: "at work" };

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = h("div", { class: "dtfm dtfm-tabs", role: "tablist", "aria-label": model.get("label"), "data-lm-suppress-shortcuts": "true" });
  if (model.get("numbered")) root.classList.add("dtfm-effect-head");
  el.append(root);

  /** @type {(name: string, focus?: boolean) => void} */
  function choose(name, focus = false) {
    model.set("value", name);
    model.save_changes();
    if (focus) root.querySelector(`[data-name="${name}"]`)?.focus({ preventScroll: true });
  }

  function show() {
    const value = model.get("value"),
      numbered = model.get("numbered");
    const focused = focusedIn(root)?.dataset.name ?? null;
    root.replaceChildren(
      ...model.get("tabs").map(({ name, title, kind = "", words = "" }, at) => {
        const key = numbered ? keyOf(at) : null;
        return h(
          "button",
          {
            type: "button",
            role: "tab",
            class: "dtfm-tab",
            "data-name": name,
            "data-kind": kind,
            "aria-selected": String(name === value),
            tabindex: name === value ? "0" : "-1",
            "aria-keyshortcuts": key,
            title: [words, SAID[kind], key && `key ${key}`].filter(Boolean).join(" · "),
            onclick: () => choose(name),
          },
          title,
          SAID[kind] ? h("i", { "aria-label": SAID[kind], role: "img" }) : null,
        );
      }),
    );
    const chosen = root.querySelector("[aria-selected=true]"),
      row = root.closest(".dtfm-head");
    if (focused) chosen?.focus({ preventScroll: true });
    if (chosen && row) row.scrollLeft = Math.max(0, chosen.offsetLeft + chosen.offsetWidth / 2 - row.clientWidth / 2); // a phone's row is longer than its screen
  }

  root.addEventListener("keydown", (event) => {
    const names = model.get("tabs").map(({ name }) => name);
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    choose(names[(names.indexOf(model.get("value")) + step + names.length) % names.length], true);
  });
  onTraits(model, ["tabs", "value"], show, cleanUp);
  show();
  return cleanUp.run;
}

export default view(render);
