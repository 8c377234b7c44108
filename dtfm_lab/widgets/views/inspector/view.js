// The inspector below the network: one pipeline, a device, a stage, or a link with its sliders.
import { cleanUps, h, oncePerFrame, onTraits, stopsIn } from "shared/dom.js";
import { inkOn, onTheme, readTheme, stageColor } from "shared/theme.js";
import { short } from "shared/links.js";
import { shines } from "shared/bus.js";
import { fitting } from "shared/text.js";
import { view } from "shared/view.js";
import { logSlider } from "./page/slider.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Facts, Field, Traits } from "./types.d.ts" */

const NARROWEST = 54; // pixels of a stage in the row of a pipeline; where there is less, some are left out
const EDGES = 8; // pixels beside the name of a place

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = h("section", { class: "dtfm dtfm-inspector", "aria-label": "Inspector", "data-lm-suppress-shortcuts": "true" });
  el.append(root);
  let theme = readTheme(el);
  let dragging = false;
  const letters = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));

  /** @type {(stage: number, n: number) => HTMLElement} */
  const chip = (stage, n) => {
    const color = stageColor(stage, n, theme.dark);
    return h("b", { class: "dtfm-stage-chip", style: `background:${color};color:${inkOn(color)}` }, String(stage));
  };
  /** @type {(what: object) => void} */
  const select = (what) => model.send({ kind: "select", ...what });
  /** @type {(facts: Facts, ...more: (Node | string)[]) => HTMLElement} */
  const head = (facts, ...more) =>
    h(
      "div",
      { class: "dtfm-inspector-head" },
      facts.stage >= 0 ? chip(facts.stage, facts.n_stages) : null,
      h("h3", {}, facts.title),
      h("span", { class: "dtfm-soft" }, facts.hint),
      h("span", { class: "dtfm-grow" }),
      ...more,
    );
  const close = () => h("button", { type: "button", class: "dtfm-let-go", title: "Clear the selection (Esc)", onclick: () => select({}) }, "Close");

  /** @type {(facts: Facts) => HTMLElement[]} */
  function pipeline(facts) {
    const { stages, hops, n_stages: n } = facts;
    const width = el.clientWidth - 32;
    const fits = Math.max(2, Math.floor(width / NARROWEST));
    const wide = width / Math.min(stages.length, fits) - EDGES;
    /** @type {(name: string) => string} */
    const place = (name) => fitting(letters, name, wide);
    const shown = stages.length <= fits ? stages : [...stages.slice(0, Math.ceil(fits / 2)), null, ...stages.slice(-Math.floor(fits / 2))];
    const slowest = Math.max(...hops.map(({ seconds }) => seconds), 0);
    /** @type {HTMLElement[]} */
    const parts = [];
    for (const one of shown) {
      if (!one) {
        parts.push(h("span", { class: "dtfm-left-out" }, "…"));
        continue;
      }
      parts.push(
        h(
          "button",
          {
            type: "button",
            class: "dtfm-pipeline-stage",
            title: `Stage ${one.stage}, ${one.layers}, ${one.name}`,
            onclick: () => select({ stage: one.stage }),
            ...shines(el, { stage: one.stage }),
          },
          chip(one.stage, n),
          h("span", {}, place(one.name)),
          h("small", {}, one.layers.replace(/layers? /, "").replace(" to ", "–")),
        ),
      );
      const hop = hops[one.stage];
      if (hop && one !== shown.at(-1))
        parts.push(
          h(
            "span",
            { class: "dtfm-hop", title: `hop from stage ${one.stage} to ${one.stage + 1}: ${hop.text}` },
            hop.text,
            h("i", { style: `height:${slowest ? 1 + (3 * hop.seconds) / slowest : 1}px` }),
          ),
        );
    }
    const sum = facts.total.flatMap(([value, words]) => [h("b", {}, value), ` ${words} `]);
    return [
      head(facts, h("span", { class: "dtfm-soft dtfm-keep" }, "nothing selected")),
      h("div", { class: "dtfm-pipeline" }, ...parts),
      h("p", {}, ...sum, h("span", { class: "dtfm-soft" }, "· click a device, stage or link")),
    ];
  }

  /** @type {(facts: Facts) => HTMLElement} */
  const rows = (facts) =>
    h(
      "dl",
      {},
      ...facts.rows.flatMap(([name, text, stage]) => [h("dt", {}, name), h("dd", {}, stage >= 0 && facts.n_stages ? chip(stage, facts.n_stages) : null, text)]),
    );

  /** @type {(key: string, text?: string) => void} */
  const edit = (key, text = "") => model.send({ kind: "edit", key, text });
  const why = () => h("button", { type: "button", class: "dtfm-let-go", onclick: () => edit("why") }, "Why here?");
  /** @type {(field: Field) => HTMLElement} */
  const field = ({ key, label, value, placeholder = "", options }) =>
    h(
      "label",
      {},
      h("span", {}, label),
      options
        ? h(
            "select",
            { onchange: ({ target }) => edit(key, /** @type {HTMLSelectElement} */ (target).value) },
            ...options.map((name) => h("option", { value: name, selected: name === value }, name)),
          )
        : h("input", {
            type: "text",
            inputmode: "decimal",
            autocomplete: "off",
            value,
            placeholder,
            onchange: ({ target }) => edit(key, /** @type {HTMLInputElement} */ (target).value),
          }),
    );
  /** @type {(facts: Facts) => HTMLElement[]} */
  const device = (facts) => [
    head(facts, ...(facts.can_explain ? [why()] : []), close()),
    ...(facts.fields?.length ? [h("div", { class: "dtfm-inspector-fields" }, ...facts.fields.map(field))] : []),
    rows(facts),
  ];

  /** @type {(facts: Facts) => HTMLElement[]} */
  function link(facts) {
    const now = { gbps: facts.gbps, ms: facts.ms };
    /** @type {(phase: "begin" | "move" | "end") => void} */
    const send = (phase) => model.send({ kind: "link", ends: facts.ends, ...now, phase });
    const soon = oncePerFrame(() => send("move"), cleanUp);
    /** @type {(key: "gbps" | "ms", label: string, unit: string, low: number, high: number) => HTMLElement} */
    const of = (key, label, unit, low, high) =>
      logSlider({
        label,
        unit,
        low,
        high,
        value: facts[key],
        format: short,
        begin: () => {
          dragging = true;
          send("begin");
        },
        move: (value) => {
          now[key] = value;
          soon();
        },
        end: () => {
          send("move");
          send("end");
          dragging = false;
        },
      });
    return [
      head(facts, close()),
      h("div", { class: "dtfm-sliders" }, of("gbps", "Bandwidth", "Gbit/s", 0.01, 100), of("ms", "Latency", "ms", 0.1, 500)),
      rows(facts),
    ];
  }

  function show() {
    if (dragging) return; // the slider in the hand stays
    theme = readTheme(el);
    letters.font = `12px ${getComputedStyle(root).fontFamily}`;
    const facts = model.get("facts");
    const { kind } = facts;
    const parts =
      kind === "pipeline"
        ? pipeline(facts)
        : kind === "link"
          ? link(facts)
          : kind === "device"
            ? device(facts)
            : kind === "stage"
              ? [head(facts, close()), rows(facts)]
              : null;
    root.dataset.kind = facts.kind ?? "";
    const focused = stopsIn(root).indexOf(/** @type {HTMLElement} */ (document.activeElement));
    root.replaceChildren(...(parts ?? [head(facts)]));
    if (focused >= 0) (stopsIn(root)[focused] ?? stopsIn(root)[0])?.focus({ preventScroll: true });
  }

  const later = oncePerFrame(show, cleanUp);
  onTraits(model, ["facts"], later, cleanUp);
  onTheme(show, cleanUp);
  const observer = new ResizeObserver(later);
  observer.observe(el);
  cleanUp.add(() => observer.disconnect());
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || model.get("facts").kind === "pipeline") return;
    event.preventDefault(); // something was selected
    select({});
  });
  show();
  return cleanUp.run;
}

export default view(render);
