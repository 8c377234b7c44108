// Measured minus predicted, row by row: a table to sort, the largest error first, with bars left and right of zero.
import { seconds } from "shared/axis.js";
import { onShine, shines } from "shared/bus.js";
import { cleanUps, focusedIn, frame, h, onTraits, setTraits } from "shared/dom.js";
import { roving } from "shared/roving.js";
import { inkOn, kindColor, onTheme, readTheme, stageColor } from "shared/theme.js";
import { view } from "shared/view.js";
import { bar, scaleOf, signed } from "./page/bar.js";
import { COLUMNS, sorted } from "./page/order.js";
/** @import { Pointed, Render } from "shared/types.d.ts" */
/** @import { ColumnKey, Row, Scale, Table, Traits } from "./types.d.ts" */

const NOTHING = "Nothing to compare yet: press Run first.";

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const title = h("strong");
  const hint = h("span", { class: "dtfm-residuals-note" });
  const tabs = h("div", { class: "dtfm-residuals-tabs", role: "tablist", "aria-label": "What is compared" });
  const head = h("tr");
  const body = h("tbody");
  const table = h("table", {}, h("thead", {}, head), body);
  const scroll = h("div", { class: "dtfm-residuals-scroll", tabindex: "0", role: "region", "aria-label": "Residuals" }, table);
  const empty = h("div", { class: "dtfm-residuals-empty" }, NOTHING);
  const caption = h("div", { class: "dtfm-caption" });
  const root = frame("dtfm-residuals", "Residuals");
  root.removeAttribute("tabindex"); // its buttons take the focus
  root.append(h("div", { class: "dtfm-heading" }, title, hint, h("span", { class: "dtfm-grow" }), tabs), scroll, empty, caption);
  el.append(root);
  const rove = roving(
    body,
    () => [...body.querySelectorAll("button")],
    () => 1,
  );
  const roveTabs = roving(
    tabs,
    () => [...tabs.querySelectorAll("button")],
    () => 1,
  );

  const tableNow = () => model.get("tables").find(({ key }) => key === model.get("table")) ?? model.get("tables")[0];

  /** @type {(values: Partial<Traits>) => void} */
  function set(values) {
    setTraits(model, values);
  }

  /** @type {(key: ColumnKey) => void} */
  function sortBy(key) {
    const here = model.get("sort_by") === key;
    const first = key !== "label";
    if (!here) set({ sort_by: key, descending: first });
    else if (model.get("descending") === first) set({ descending: !first });
    else set({ sort_by: "suspicion", descending: true });
  }

  function show() {
    const found = tableNow();
    title.textContent = model.get("title");
    hint.textContent = found
      ? [model.get("hint"), found.rows.length < found.count ? `first ${found.rows.length} of ${found.count}` : ""].filter(Boolean).join(" · ")
      : "";
    caption.textContent = found ? model.get("caption") : "";
    for (const part of [scroll, tabs]) part.hidden = !found;
    empty.hidden = !!found;
    empty.textContent = model.get("caption") || NOTHING; // what is being done, until there are tables
    root.classList.toggle("dtfm-residuals-fill", !model.get("height"));
    scroll.style.maxHeight = model.get("height") ? `${model.get("height")}px` : "";
    if (!found) return;
    const focused = focusedIn(root)?.dataset.key ?? null;
    tabs.replaceChildren(
      ...model.get("tables").map(({ key, name }) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            tabindex: key === found.key ? "0" : "-1",
            "data-key": `tab ${key}`,
            "aria-selected": String(key === found.key),
            onclick: () => set({ table: key }),
          },
          name,
        ),
      ),
    );
    roveTabs();
    const scale = scaleOf(found.rows),
      dark = readTheme(root).dark;
    head.replaceChildren(...COLUMNS.flatMap((column) => (column.key === "error_s" ? [barHead(found), headCell(column, found)] : [headCell(column, found)])));
    const selected = new Set(model.get("selected"));
    body.replaceChildren(...sorted(found.rows, model.get("sort_by"), model.get("descending")).map((row) => line(row, found, scale, selected, dark)));
    rove();
    if (focused) root.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    root.dataset.rows = String(found.rows.length);
  }

  /** @type {(table: Table) => HTMLElement} */
  const barHead = ({ own, second }) =>
    h(
      "th",
      { scope: "col", class: "dtfm-residuals-bars" },
      h("span", {}, h("i", { class: "dtfm-residuals-key-own" }), own),
      second ? h("span", {}, h("i", { class: "dtfm-residuals-key-second" }), second) : null,
    );

  /** @type {(column: { key: ColumnKey, name: string }, found: Table) => HTMLElement} */
  function headCell({ key, name: plain }, found) {
    const name = key === "measured_s" ? found.measured || plain : plain; // seconds of a link that is emulated were not measured
    const here = model.get("sort_by") === key;
    const mark = here ? (model.get("descending") ? " ▾" : " ▴") : "";
    const button = h(
      "button",
      { type: "button", "data-key": `head ${key}`, title: `Sort by ${name}; a third click puts the largest error first`, onclick: () => sortBy(key) },
      `${key === "label" ? found.noun : name}${mark}`,
    );
    return h(
      "th",
      { scope: "col", class: `dtfm-residuals-${key}`, "aria-sort": here ? (model.get("descending") ? "descending" : "ascending") : "none" },
      button,
    );
  }

  /**
   * The row's device, stage or link, for the other views.
   * @type {(row: Row, table: Table) => Pointed}
   */
  function what(row, { noun }) {
    if (noun === "link") return { link: row.id.split(" -> ") };
    return noun === "stage" ? { stage: row.stage } : { devices: [row.id] };
  }

  /** @type {(row: Row, dark: boolean) => HTMLElement | null} */
  function swatch(row, dark) {
    if (row.stage >= 0) {
      const color = stageColor(row.stage, model.get("n_stages"), dark);
      return h("i", { class: "dtfm-residuals-stage", style: `background:${color};color:${inkOn(color)}` }, String(row.stage));
    }
    return row.hue ? h("i", { class: "dtfm-residuals-kind", style: `background:${kindColor(row.hue, dark)}`, title: row.hue }) : null;
  }

  /** @type {(row: Row, found: Table, scale: Scale, selected: Set<string>, dark: boolean) => HTMLElement} */
  function line(row, found, scale, selected, dark) {
    const choose = () => model.send({ kind: "choose", id: row.id });
    const name = h(
      "button",
      { type: "button", tabindex: "-1", "data-key": row.id, title: `Show ${row.label} in the network`, "aria-pressed": String(selected.has(row.id)) },
      swatch(row, dark),
      h("span", {}, row.label),
    );
    const share = row.relative === null || !isFinite(row.relative) ? "–" : percent(row.relative);
    return h(
      "tr",
      {
        class: [row.suspect && "dtfm-residuals-suspect", selected.has(row.id) && "dtfm-residuals-chosen"].filter(Boolean).join(" "),
        "data-id": row.id,
        onclick: choose,
        ...shines(el, what(row, found)),
      },
      h("th", { scope: "row" }, name),
      h("td", {}, seconds(row.predicted_s)),
      h("td", {}, seconds(row.measured_s)),
      bar(row, scale),
      h("td", { class: "dtfm-residuals-longer" }, row.error_s ? signed(row.error_s) : "0"),
      h("td", {}, share),
    );
  }

  onShine(
    el,
    (pointed, isOwn) => {
      const found = tableNow();
      if (!found || isOwn) return;
      /** @type {(one: Pointed) => string} */
      const key = (one) => JSON.stringify(one);
      for (const tr of /** @type {Iterable<HTMLElement>} */ (body.children)) {
        const row = found.rows.find(({ id }) => id === tr.dataset.id);
        const lit =
          pointed && row && (key(what(row, found)) === key(pointed) || (pointed.devices && found.noun === "device" && pointed.devices.includes(row.id)));
        tr.classList.toggle("dtfm-residuals-lit", Boolean(lit));
      }
    },
    cleanUp,
  );
  onTraits(model, ["tables", "table", "sort_by", "descending", "selected", "title", "hint", "caption", "height", "n_stages"], show, cleanUp);
  onTheme(show, cleanUp);
  show();
  return cleanUp.run;
}

/** @type {(share: number) => string} */
function percent(share) {
  if (Math.abs(share) < 5e-4) return "0.0 %";
  const size = Math.abs(share) >= 0.9995 ? (share * 100).toFixed(0) : (share * 100).toFixed(1);
  return `${share > 0 ? "+" : ""}${size.replace("-", "−")} %`;
}

export default view(render);
