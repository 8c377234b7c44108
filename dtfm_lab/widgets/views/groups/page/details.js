// What the side lists: the matching behind an edge, the devices of a group, or one device.
import { h } from "shared/dom.js";
import { seconds } from "shared/axis.js";
import { counted, letterOf } from "./words.js";
/** @import { Actions, Choose, Group, Pair, Places, Step } from "../types.d.ts" */

/** @type {Record<Step, string>} */
const HINTS = {
  a: "Click a device to select it here, on the map and in the chart. Point at a line to read both directions.",
  b: "Click a device or a group. Drag a device over another group to see what the move would cost, and drop it to make the move.",
  c: "Click a node to list its devices. Devices can be dragged here as well.",
  d: "Click an edge to see which pair it waits for. Heavy edges are thick.",
  e: "Click a hop of the path to see its matching, a node to list its devices. Drag a device to move it.",
};
const MATRIX_HINT = "Click a cell to see the matching behind it, one on the diagonal to list a group. Outlined cells are hops of the path.";
/** @type {Partial<Record<Step, string>>} */
const STILL = {
  b: "Click a device or a group to select it.",
  c: "Click a node to list its devices.",
  e: "Click a hop of the path to see its matching, a node to list its devices.",
};

/** @type {(side: HTMLElement, look: { step: Step, isMatrix: boolean, canMove: boolean }) => void} */
export function showHint(side, { step, isMatrix, canMove }) {
  side.replaceChildren(h("h4", {}, "Nothing selected"), h("p", {}, isMatrix ? MATRIX_HINT : (!canMove && STILL[step]) || HINTS[step]));
}

/** @type {(side: HTMLElement, look: { groups: Group[], group: number, step: Step }, actions: Actions) => void} */
export function showGroup(side, { groups, group, step }, { choose }) {
  const { devices, cost_s, device_s } = groups[group];
  const order = devices.map((name, index) => ({ name, own: device_s?.[index] }));
  if (device_s) order.sort((one, other) => (other.own ?? 0) - (one.own ?? 0));
  side.replaceChildren(
    h("h4", {}, `${titleOf(groups[group], step)} · ${counted(devices.length, "device")}`),
    h("p", {}, `Synchronising its gradients takes ${seconds(cost_s)}${device_s && devices.length > 1 ? ": as long as its slowest device" : ""}.`),
    h(
      "ul",
      {},
      ...order.map(({ name, own }) =>
        h(
          "li",
          {},
          nameButton(name, choose),
          own === undefined ? null : h("span", { class: own >= cost_s * (1 - 1e-9) && devices.length > 1 ? "time slow" : "time" }, seconds(own)),
        ),
      ),
    ),
  );
}

/**
 * Two columns of devices, slowest pair first and in bold; each pair with the seconds there and back.
 * @type {(side: HTMLElement, look: { groups: Group[], edge: number[] | null, pairs: Pair[], weight: number | undefined, step: Step }, actions: Actions) => void}
 */
export function showEdge(side, { groups, edge, pairs, weight, step }, { choose, point }) {
  const [a, b] = edge ?? [];
  const sorted = [...pairs].sort((one, other) => other[2] - one[2]);
  const slowest = sorted[0]?.[2];
  const both = sorted.some((pair) => pair.length > 4);
  const rows = sorted.map(([source, target, time, there, back]) => {
    const mark = time === slowest ? " bottleneck" : "";
    const row = h(
      "div",
      { class: `pair${mark}` },
      h("div", { class: `device${mark}` }, nameButton(source, choose)),
      h("div", { class: `line${mark}` }, h("span", {}, seconds(time))),
      h("div", { class: `device${mark}` }, nameButton(target, choose)),
      there === undefined || back === undefined ? null : h("div", { class: "ways" }, `→ ${seconds(there)}   ← ${seconds(back)}`),
    );
    row.addEventListener("pointerenter", () => point([source, target]));
    row.addEventListener("pointerleave", () => point(null));
    row.addEventListener("focusin", () => point([source, target]));
    row.addEventListener("focusout", () => point(null));
    return row;
  });
  const hop = Math.abs(a - b) === 1;
  side.replaceChildren(
    h("h4", {}, `${titleOf(groups[a], step)} to ${inSentence(groups[b], step)}${weight !== undefined && isFinite(weight) ? ` · ${seconds(weight)}` : ""}`),
    h(
      "p",
      {},
      !sorted.length
        ? "No matching is known for this edge."
        : `${hop ? "The hop waits for its slowest pair, in bold" : "Not a hop of the path. The slowest pair of its best matching, in bold, is its weight"}${both ? "; → there, ← back" : ""}.`,
    ),
    h("div", { class: "dtfm-matching" }, ...rows),
  );
}

/** @type {(side: HTMLElement, look: { selected: string[], groups: Group[], places: Places }, actions: Actions) => void} */
export function showDevices(side, { selected, groups, places }, { choose }) {
  if (selected.length > 1) {
    side.replaceChildren(
      h("h4", {}, counted(selected.length, "device")),
      h(
        "ul",
        {},
        ...selected.map((name) => {
          const place = places.get(name);
          return h("li", {}, nameButton(name, choose), h("span", { class: "time" }, place ? `stage ${place.stage}` : "idle"));
        }),
      ),
    );
    return;
  }
  const [name] = selected;
  const place = places.get(name);
  const title = h("h4", {}, name);
  if (!place) return side.replaceChildren(title, h("p", {}, "Idle: the plan leaves it out."));
  const own = groups[place.stage].device_s?.[place.replica];
  side.replaceChildren(
    title,
    h(
      "p",
      {},
      `Stage ${groups[place.stage].stage}${groups[place.stage].letter ? ` (group ${groups[place.stage].letter})` : ""}, pipeline ${place.replica}${own === undefined ? "" : `; it synchronises in ${seconds(own)}`}.`,
    ),
    h("p", {}, "Its pipeline, stage by stage:"),
    h(
      "ol",
      { start: "0" },
      ...groups.map(({ devices }, stage) => h("li", { class: stage === place.stage ? "here" : false }, nameButton(devices[place.replica], choose))),
    ),
  );
}

/**
 * Groups have letters until the path, in step (e), gives them their stages.
 * @type {(group: Group, step: Step) => string}
 */
const inSentence = (group, step) => (group.letter && step !== "e" ? `group ${letterOf(group)}` : `stage ${group.stage}`);

/** @type {(group: Group, step: Step) => string} */
function titleOf(group, step) {
  const name = inSentence(group, step);
  return name[0].toUpperCase() + name.slice(1);
}

/** @type {(name: string, choose: Choose) => HTMLElement} */
function nameButton(name, choose) {
  const button = h("button", { class: "dtfm-name", type: "button", title: name }, name);
  button.addEventListener("click", (event) => choose(name, event.shiftKey || event.ctrlKey || event.metaKey));
  return button;
}
