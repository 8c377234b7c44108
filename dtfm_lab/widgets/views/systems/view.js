// One bar per system, the fastest first, with the causes of its iteration time. A click on a row chooses one.
import { cleanUps, focusedIn, frame, h, onTraits } from "shared/dom.js";
import { figures, seconds } from "shared/axis.js";
import { roving } from "shared/roving.js";
import { view } from "shared/view.js";
import { allCauses } from "./page/causes.js";
/** @import { Child, Render } from "shared/types.d.ts" */
/** @import { Cause, Row, Traits } from "./types.d.ts" */

/** @type {(share: number) => string} */
const percent = (share) => `${Math.round(share * 100)} %`;
/** @type {(value: number) => string} */
const times = (value) => `${value < 9.995 ? value.toFixed(2) : figures(Math.round(value))} ×`;

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const root = frame("dtfm-systems", "Systems");
  root.removeAttribute("tabindex"); // its rows take the focus
  const key = h("div", { class: "dtfm-legend dtfm-systems-key" });
  const caption = h("div", { class: "dtfm-systems-caption", role: "status" });
  const list = h("div", { class: "dtfm-systems-rows", role: "group" });
  const empty = h("div", { class: "dtfm-systems-empty" });
  const others = h("details", { class: "dtfm-systems-others" });
  root.append(caption, empty, key, list, others);
  el.append(root);
  const rove = roving(
    list,
    () => [...list.querySelectorAll("button")],
    () => 1,
  );

  let shownChosen = "";

  /** @type {(name: string) => void} */
  function choose(name) {
    model.set("chosen", model.get("chosen") === name ? "" : name);
    model.save_changes();
  }

  function show() {
    const [rows, chosen, stale] = [model.get("rows"), model.get("chosen"), model.get("stale")];
    const known = rows.filter((row) => row.seconds);
    const causes = allCauses(model.get("causes"), known);
    const focused = focusedIn(list)?.dataset.name ?? null;
    root.setAttribute("aria-label", model.get("title"));
    list.setAttribute("aria-label", model.get("title"));
    root.classList.toggle("dtfm-stale", Boolean(stale));
    root.dataset.known = String(known.length);
    caption.textContent = [stale && `before the last edit: ${stale}`, model.get("caption")].filter(Boolean).join(" · ");
    caption.hidden = !caption.textContent;
    empty.textContent = model.get("empty_words");
    empty.hidden = rows.length > 0;
    key.hidden = !known.length;
    const used = causes.filter(({ name }) => known.some(({ parts }) => parts.some(([cause, s]) => cause === name && s > 0)));
    key.replaceChildren(
      ...used.map(({ name, color, word }) =>
        h("span", { "data-word": word || null, tabindex: word ? "0" : null }, h("i", { class: "dtfm-swatch", style: `color:${color}` }), name),
      ),
    );
    list.replaceChildren(...rows.map((row) => line(row, { chosen: row.name === chosen, causes })));
    rove();
    if (focused) list.querySelector(`button[data-name="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    if (chosen !== shownChosen) setTimeout(() => list.querySelector("[aria-pressed=true]")?.scrollIntoView({ block: "nearest" }), 150); // the list is lower by then
    shownChosen = chosen;
    showOthers();
  }

  /** @type {(row: Row, look: { chosen: boolean, causes: Cause[] }) => HTMLElement} */
  function line(row, { chosen, causes }) {
    const { name, title, parts = [], length, cut, mathematics, reason, shape, ours, taken } = row;
    const mark = model.get("changes");
    const tags = [ours ? "ours" : "", taken ? "the lab's plan" : ""].filter(Boolean);
    const label = h("span", { class: "dtfm-systems-name" }, h("b", {}, mathematics ? `${title} ${mark}` : title), ...tags.map((text) => h("i", {}, text)));
    /** @type {(words: string, ...children: Child[]) => HTMLElement} */
    const button = (words, ...children) =>
      h(
        "button",
        {
          type: "button",
          "data-name": name,
          "aria-pressed": String(chosen),
          "aria-label": words,
          tabindex: "-1",
          class: ours ? "dtfm-ours" : "",
          onclick: () => choose(name),
        },
        label,
        ...children,
      );
    const named = [title, ...tags].join(", ");
    if (reason) return button(`${named}: no plan, ${reason}`, h("span", { class: "dtfm-systems-reason" }, `no plan: ${reason}`));
    if (!row.seconds) return button(`${named}: not computed yet`, h("span", { class: "dtfm-systems-reason" }, "…"));
    const drawn = causes
      .map((cause) => ({ ...cause, s: parts.filter(([one]) => one === cause.name).reduce((sum, [, s]) => sum + s, 0) }))
      .filter(({ s }) => s > 0);
    const told = drawn.map(({ name: what, s }) => `${what} ${percent(s / row.seconds)}`).join(", ");
    const bar = h(
      "span",
      { class: `dtfm-systems-bar${cut ? " dtfm-cut" : ""}`, style: `width:${(100 * length).toFixed(2)}%` },
      ...drawn.map(({ name: what, color, s }) =>
        h("i", { style: `flex-grow:${s};background:${color}`, title: `${what}: ${seconds(s)}, ${percent(s / row.seconds)}` }),
      ),
    );
    const ratio = row.beside ?? (row.times > 1.0005 ? times(row.times) : "fastest");
    const result = row.told ?? seconds(row.seconds);
    const compared = row.told ? `${row.told}, ${ratio}` : `${result} an iteration, ${row.times > 1.0005 ? `${ratio} the fastest` : ratio}`;
    const said = `${named}: ${compared}; ${told}; ${shape}${mathematics ? `; ${mathematics}` : ""}${cut ? "; its bar is cut" : ""}`;
    return button(
      said,
      h("span", { class: "dtfm-systems-track" }, bar),
      h("span", { class: "dtfm-systems-seconds" }, result),
      h("span", { class: "dtfm-systems-times" }, ratio),
      h("span", { class: "dtfm-systems-shape" }, shape),
      mathematics ? h("span", { class: "dtfm-systems-mathematics" }, `${mark} ${mathematics}`) : null,
    );
  }

  function showOthers() {
    const entries = Object.entries(model.get("not_modelled"));
    others.hidden = !entries.length;
    const list = h("dl", {}, ...entries.flatMap(([name, why]) => [h("dt", {}, name), h("dd", {}, why)]));
    others.replaceChildren(h("summary", {}, `${entries.length} more system${entries.length === 1 ? " has" : "s have"} no model here, and why`), list);
  }

  onTraits(model, ["rows", "chosen", "causes", "title", "caption", "stale", "not_modelled", "empty_words"], show, cleanUp);
  show();
  return cleanUp.run;
}

export default view(render);
