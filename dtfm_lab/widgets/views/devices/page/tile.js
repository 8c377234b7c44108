// One device: its name and place, a dot that says what it does, a bar of its time computing, and what befell it.
import { h } from "shared/dom.js";
import { stageColor } from "shared/theme.js";

export function tile(device, choose) {
  const pulse = h("i", { class: "dtfm-pulse", "aria-hidden": "true" });
  const does = h("span", { class: "dtfm-tile-does" });
  const iteration = h("span", { class: "dtfm-tile-iteration" });
  const computing = h("i");
  const share = h("span");
  const said = h("div", { class: "dtfm-tile-said" });
  const element = h("button", {
    type: "button", class: "dtfm-tile", tabindex: "-1", "data-device": device.name, "aria-haspopup": "menu", "aria-pressed": "false",
    style: `--stage:${stageColor(device.stage)}`,
    onclick: (event) => choose(device.name, event),
    onkeydown: (event) => {
      if (event.key === "Enter" || event.key === " ") event.stopPropagation(); // a click follows; the notebook need not know
    },
  },
  h("div", { class: "dtfm-tile-top" }, h("b", {}, device.name), iteration),
  h("div", { class: "dtfm-tile-middle" }, h("span", { class: "dtfm-tile-region" }, device.region), h("span", { class: "dtfm-tile-now" }, does, pulse)),
  h("div", { class: "dtfm-tile-busy" }, h("div", { class: "dtfm-tile-bar" }, computing), share),
  said);

  function show(state) {
    const known = state.busy !== undefined && state.busy !== null;
    element.dataset.condition = state.condition ?? "";
    pulse.dataset.does = state.does ?? "";
    set(does, state.waits_for ? `waits for ${state.waits_for}` : "");
    set(iteration, state.iteration === undefined || state.iteration < 0 ? "" : `iteration ${state.iteration}`);
    computing.style.width = known ? `${(state.busy * 100).toFixed(0)}%` : "0";
    set(share, known ? `${(state.busy * 100).toFixed(0)} % computing` : "");
    set(said, state.said ?? "");
    element.title = [device.name, device.region, state.said].filter(Boolean).join(" · ");
    element.setAttribute("aria-label", spoken(state));
  }

  /** Without what changes many times a second: nobody wants that read out. */
  function spoken(state) {
    const place = `stage ${device.stages}, pipeline ${device.pipeline}`;
    const condition = { lost: "being replaced" }[state.condition] ?? state.condition;
    return [device.name, place, device.region, condition || (state.does ? "running" : "")].filter(Boolean).join(", ");
  }

  return { element, show };
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
