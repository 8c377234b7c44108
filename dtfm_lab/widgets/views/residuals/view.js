// Measured less predicted, row by row: a table to sort, with bars left and right of zero.
import { cleanUps, frame, h, onTraits } from "shared/dom.js";
import { roving } from "shared/roving.js";
import { seconds } from "shared/axis.js";
import { COLUMNS, sorted } from "./page/order.js";
import { axis, bar, scaleOf } from "./page/bar.js";

function render({ model, el }) {
  const cleanUp = cleanUps();
  const title = h("strong");
  const tabs = h("div", { class: "dtfm-residuals-tabs", role: "tablist" });
  const note = h("span", { class: "dtfm-residuals-note" });
  const head = h("tr");
  const body = h("tbody");
  const table = h("table", {}, h("thead", {}, head), body);
  const scroll = h("div", { class: "dtfm-residuals-scroll" }, table);
  const empty = h("div", { class: "dtfm-residuals-empty" }, "Nothing to compare yet: run the plan first.");
  const caption = h("div", { class: "dtfm-caption" });
  const root = frame("dtfm-residuals", "Residuals");
  root.removeAttribute("tabindex"); // its buttons take the focus
  root.append(h("div", { class: "dtfm-heading" }, title, tabs, h("span", { class: "dtfm-grow" }), note), scroll, empty, caption);
  el.append(root);
  const rove = roving(body, () => [...body.querySelectorAll("button")], () => 1);
  const roveTabs = roving(tabs, () => [...tabs.querySelectorAll("button")], () => 1);

  const tableNow = () => model.get("tables").find(({ key }) => key === model.get("table")) ?? model.get("tables")[0];

  function set(values) {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
  }

  function sortBy(key) {
    const again = model.get("sort_by") === key;
    set({ sort_by: key, descending: again ? !model.get("descending") : key !== "label" });
  }

  function show() {
    const found = tableNow();
    title.textContent = model.get("title");
    caption.textContent = found ? model.get("caption") : "";
    for (const part of [scroll, tabs, note]) part.hidden = !found;
    empty.hidden = !!found;
    if (!found) return;
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    tabs.replaceChildren(...model.get("tables").map(({ key, name }) => h("button", {
      type: "button", role: "tab", tabindex: key === found.key ? "0" : "-1", "data-key": `tab ${key}`,
      "aria-selected": String(key === found.key), onclick: () => set({ table: key }),
    }, name)));
    roveTabs();
    note.textContent = found.rows.length < found.count ? `the ${found.rows.length} with the largest errors of ${found.count}` : "";
    const scale = scaleOf(found.rows);
    head.replaceChildren(...COLUMNS.map((column) => headCell(column, found, scale)));
    const selected = new Set(model.get("selected"));
    body.replaceChildren(...sorted(found.rows, model.get("sort_by"), model.get("descending")).map((row) => line(row, scale, selected)));
    rove();
    if (focused) root.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    root.dataset.rows = String(found.rows.length);
  }

  function headCell({ key, name }, found, scale) {
    const here = model.get("sort_by") === key;
    const mark = here ? (model.get("descending") ? " ▾" : " ▴") : "";
    const button = h("button", { type: "button", "data-key": `head ${key}`, title: `Sort by ${name}`, onclick: () => sortBy(key) },
      `${key === "label" ? found.noun : name}${mark}`);
    return h("th", { scope: "col", class: `dtfm-residuals-${key}`, "aria-sort": here ? (model.get("descending") ? "descending" : "ascending") : "none" },
      button, key === "error_s" ? axis(scale) : null);
  }

  function line(row, scale, selected) {
    const choose = () => model.send({ kind: "choose", id: row.id });
    const name = row.selects
      ? h("button", { type: "button", tabindex: "-1", "data-key": row.id, title: `Show ${row.label} in the network`, "aria-pressed": String(selected.has(row.id)) }, row.label)
      : h("span", {}, row.label);
    return h("tr", { class: row.selects ? "dtfm-selects" : "", "data-id": row.id, onclick: row.selects ? choose : null },
      h("th", { scope: "row" }, name), h("td", {}, seconds(row.predicted_s)), h("td", {}, seconds(row.measured_s)),
      bar(row, scale), h("td", {}, relative(row.relative)));
  }

  onTraits(model, ["tables", "table", "sort_by", "descending", "selected", "title", "caption"], show, cleanUp);
  show();
  return cleanUp.run;
}

function relative(share) {
  if (share === null || !isFinite(share)) return "–";
  const size = Math.abs(share) >= 0.9995 ? (share * 100).toFixed(0) : (share * 100).toFixed(1);
  return `${share > 0 && Number(size) > 0 ? "+" : ""}${size.replace("-", "−")} %`;
}

export default { render };
