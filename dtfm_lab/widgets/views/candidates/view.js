// A table of schedules, filled in as they are computed. A click on a row chooses one.
import { cleanUps, focusedIn, frame, h, onTraits } from "shared/dom.js";
import { seconds } from "shared/axis.js";
import { view } from "shared/view.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Row, Traits } from "./types.d.ts" */

const HEAD = ["Schedule", "Iteration", "Bubble", "Worst memory", "Fits"];

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const title = h("strong");
  const caption = h("span", { class: "dtfm-candidates-caption", "aria-live": "polite" });
  const body = h("tbody");
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...HEAD.map((text) => h("th", { scope: "col" }, text)))), body);
  const root = frame("dtfm-candidates", "Schedules");
  root.removeAttribute("tabindex"); // its buttons take the focus
  root.append(h("div", { class: "dtfm-heading" }, title, caption), h("div", { class: "dtfm-candidates-scroll" }, table));
  el.append(root);

  /** @type {(name: string) => void} */
  const choose = (name) => {
    model.set("chosen", name);
    model.save_changes();
  };

  function show() {
    const [rows, chosen, stale] = [model.get("rows"), model.get("chosen"), model.get("stale")];
    const known = rows.filter((row) => "iteration_s" in row);
    const slowest = Math.max(...known.map((row) => row.iteration_s));
    const fastest = Math.min(...known.filter((row) => row.fits).map((row) => row.iteration_s));
    const focused = focusedIn(root)?.dataset.name ?? null;
    title.textContent = model.get("title");
    caption.textContent = stale ? "of the plan or the choices before: compare again" : model.get("caption");
    root.classList.toggle("dtfm-stale", stale);
    root.setAttribute("aria-label", model.get("title"));
    body.replaceChildren(...rows.map((row) => line(row, { chosen: row.name === chosen, slowest, best: row.iteration_s === fastest && row.fits })));
    if (focused) body.querySelector(`button[data-name="${CSS.escape(focused)}"]`)?.focus();
  }

  /** @type {(row: Row, look: { chosen: boolean, slowest: number, best: boolean }) => HTMLTableRowElement} */
  function line(row, { chosen, slowest, best }) {
    const name = h(
      "th",
      { scope: "row" },
      h(
        "button",
        {
          type: "button",
          "data-name": row.name,
          "aria-pressed": String(chosen),
          title: `Show ${row.name}`,
        },
        row.name,
      ),
    );
    const onclick = () => choose(row.name);
    if (row.problem) return h("tr", { onclick }, name, h("td", { colspan: "4", class: "dtfm-problem" }, row.problem));
    if (!("iteration_s" in row)) return h("tr", { onclick, class: "dtfm-pending" }, name, h("td", { colspan: "4" }, "…"));
    const share = slowest > 0 ? row.iteration_s / slowest : 0;
    const time = h(
      "td",
      { class: "dtfm-time" },
      h("i", { class: "dtfm-length", style: `width:${(share * 100).toFixed(1)}%` }),
      h("span", {}, `${seconds(row.iteration_s)}${best ? " · fastest that fits" : ""}`),
    );
    return h(
      "tr",
      { onclick },
      name,
      time,
      h("td", {}, `${(row.bubble * 100).toFixed(1)} %`),
      h("td", {}, row.memory),
      h("td", { class: row.fits ? "" : "dtfm-no" }, row.fits ? "yes" : "\u26a0\ufe0e no"),
    );
  }

  onTraits(model, ["rows", "chosen", "title", "caption", "stale"], show, cleanUp);
  show();
  return cleanUp.run;
}

export default view(render);
