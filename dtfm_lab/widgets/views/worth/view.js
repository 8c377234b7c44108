// What each better link or device would save: one row each, the largest saving first.
import { cleanUps, focusedIn, h, onTraits } from "shared/dom.js";
import { shines } from "shared/bus.js";
import { view } from "shared/view.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Row, Traits } from "./types.d.ts" */

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const list = h("ol", { class: "dtfm-worth-rows" });
  const caption = h("p", { class: "dtfm-worth-caption", role: "status" });
  const root = h("div", { class: "dtfm dtfm-worth dtfm-fills", "data-lm-suppress-shortcuts": "true" }, list, caption);
  el.classList.add("dtfm-fills");
  el.append(root);

  /** @type {(row: Row) => HTMLElement} */
  const line = ({ name, what, saves, share, length, devices }) =>
    h(
      "li",
      {},
      h(
        "button",
        {
          type: "button",
          class: "dtfm-worth-row",
          "data-name": `${what} ${name}`,
          title: `Select ${name} on the network`,
          onclick: () => model.send({ kind: "select", devices }),
          ...(devices.length === 1 ? shines(el, { devices }) : {}),
        },
        h("span", { class: "dtfm-worth-name" }, name, h("small", {}, what)),
        h("span", { class: "dtfm-worth-bar" }, h("i", { style: `width:${(100 * length).toFixed(1)}%` })),
        h("span", { class: "dtfm-worth-saves" }, h("b", {}, saves), h("small", {}, share)),
      ),
    );

  function show() {
    const focused = focusedIn(root)?.dataset.name ?? null;
    list.replaceChildren(...model.get("rows").map(line));
    caption.textContent = `${model.get("stale") ? "before the last edit: " : ""}${model.get("caption")}`;
    root.classList.toggle("dtfm-stale", model.get("stale"));
    if (focused) list.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  onTraits(model, ["rows", "caption", "stale"], show, cleanUp);
  show();
  return cleanUp.run;
}

export default view(render);
