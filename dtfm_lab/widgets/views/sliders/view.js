// Large sliders over named stops. The value under the finger is shown at once, the kernel computes the rest.
import { cleanUps, h, onTraits } from "shared/dom.js";
import { there } from "shared/there.js";
import { view } from "shared/view.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Row, Slider, Traits } from "./types.d.ts" */

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = h("div", { class: "dtfm dtfm-big-sliders", role: "group", "aria-label": "What is changed", "data-lm-suppress-shortcuts": "true" });
  /** @type {Map<string, Row>} */
  const rows = new Map(); // key -> {input, output, note, name}
  el.append(root);
  // a notebook takes these keys for its cells
  root.addEventListener("keydown", (event) => {
    if (/^(Arrow|Home|End|Page)/.test(event.key)) event.stopPropagation();
  });

  /** @type {(key: string) => Slider} */
  const entry = (key) => there(model.get("sliders").find((slider) => slider.key === key));
  /** @type {(key: string) => number} */
  const at = (key) => model.get("values")[key] ?? entry(key).neutral;

  /** @type {(key: string, stop: number) => void} */
  function move(key, stop) {
    model.set("values", { ...model.get("values"), [key]: stop });
    model.save_changes();
    write(key);
  }

  /** @type {(key: string) => Row} */
  function make(key) {
    const name = h("span", { class: "name" });
    const output = h("output", { "aria-hidden": "true" });
    const input = h("input", { type: "range", min: "0", step: "1" });
    const note = h("div", { class: "note" });
    input.addEventListener("input", () => move(key, Number(input.value)));
    input.addEventListener("dblclick", () => move(key, entry(key).neutral));
    const box = h("div", { class: "slider" }, h("label", {}, h("span", { class: "head" }, name, output), input), note);
    return { box, name, output, input, note };
  }

  function draw() {
    const sliders = model.get("sliders");
    const keys = sliders.map(({ key }) => key);
    if (keys.join() !== [...rows.keys()].join()) {
      rows.clear();
      for (const key of keys) rows.set(key, make(key));
      root.replaceChildren(...[...rows.values()].map(({ box }) => box));
    }
    for (const { key, label, rest, texts, note, why_not: why, neutral } of sliders) {
      const row = there(rows.get(key));
      row.name.replaceChildren(label, h("span", { class: "rest" }, rest ? ` ${rest}` : ""));
      row.note.textContent = note;
      row.input.max = String(Math.max(1, texts.length - 1));
      row.input.disabled = Boolean(why);
      row.box.title = why || "";
      row.box.style.setProperty("--neutral", String(texts.length > 1 ? neutral / (texts.length - 1) : 0));
      write(key);
    }
  }

  /** @type {(key: string) => void} */
  function write(key) {
    const { texts, neutral, label, rest } = entry(key);
    const { input, output, box } = there(rows.get(key));
    const stop = at(key);
    if (input.value !== String(stop)) input.value = String(stop);
    output.textContent = texts[stop] ?? "–";
    input.setAttribute("aria-label", rest ? `${label} ${rest}` : label);
    input.setAttribute("aria-valuetext", texts[stop] ?? "");
    box.classList.toggle("moved", stop !== neutral);
  }

  onTraits(model, ["sliders"], draw, cleanUp);
  onTraits(
    model,
    ["values"],
    () => {
      for (const key of rows.keys()) write(key);
    },
    cleanUp,
  );
  draw();
  return cleanUp.run;
}

export default view(render);
