// The legend at the foot of the lab.
import { cleanUps, h, onTraits, svg } from "shared/dom.js";
import { inkOn, kindColor, onTheme, readTheme, stageColor } from "shared/theme.js";
import { shines } from "shared/bus.js";
import { view } from "shared/view.js";
/** @import { Kind, Render } from "shared/types.d.ts" */
/** @import { Legend } from "shared/traits.d.ts" */

const MOST_CHIPS = 16;

/** @type {Render<Legend>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = h("div", { class: "dtfm dtfm-lab-foot", role: "note", "aria-label": "Legend" });
  el.append(root);

  /** @type {(n: number, dark: boolean) => HTMLElement} */
  function chips(n, dark) {
    const shown = n <= MOST_CHIPS ? [...Array(n).keys()] : [0, 1, 2, -1, n - 3, n - 2, n - 1];
    return h(
      "span",
      {},
      "stage",
      h(
        "span",
        { class: "dtfm-chips" },
        ...shown.map((stage) => {
          if (stage < 0) return h("span", {}, "…");
          const color = stageColor(stage, n, dark);
          return h(
            "b",
            {
              style: `background:${color};color:${inkOn(color)}`,
              ...shines(el, { stage }),
            },
            String(stage),
          );
        }),
      ),
    );
  }

  /** @type {(name: Kind, dark: boolean, words?: string) => HTMLElement} */
  const kind = (name, dark, words = name) => h("span", {}, h("i", { class: "dtfm-kind", style: `background:${kindColor(name, dark)}` }), words);

  /** @type {(color: string) => SVGSVGElement} */
  function hatch(color) {
    const lines = [...Array(6).keys()].map((at) => svg("line", { x1: at * 4 - 6, y1: 10, x2: at * 4 + 4, y2: 0, stroke: color, "stroke-width": 1.2 }));
    return svg("svg", { width: 15, height: 10, viewBox: "0 0 15 10", "aria-hidden": "true" }, ...lines);
  }

  function show() {
    const theme = readTheme(el),
      n = model.get("n_stages");
    root.replaceChildren(
      ...(n ? [chips(n, theme.dark)] : []),
      kind("forward", theme.dark),
      kind("backward", theme.dark),
      kind("averaging", theme.dark),
      kind("step", theme.dark, "optimiser"),
      h("span", {}, hatch(theme.softText), "waits"),
      h("span", { class: "dtfm-lab-foot-links" }, "link: width is bandwidth, dashes are latency"),
      h("span", { class: "dtfm-grow" }),
      h("span", { class: "dtfm-lab-foot-keys" }, model.get("shortcuts")),
    );
  }
  onTraits(model, ["n_stages", "shortcuts"], show, cleanUp);
  onTheme(show, cleanUp);
  show();
  return cleanUp.run;
}

export default view(render);
