// What stands around the drawing: the legend, the start of a blank canvas, the line below.
import { h } from "shared/dom.js";
import { gpuShape } from "shared/gpus.js";
import { MANY_LINKS } from "./scene.js";
/** @import { Document } from "shared/types.d.ts" */

/**
 * Every GPU that is drawn, by its shape: a button that hands the names of its devices to `choose`; and what lines may mean.
 * @type {(document: Document, gpus: string[], filled: boolean, choose: (names: string[]) => void) => HTMLElement[]}
 */
export function legendEntries(document, gpus, filled, choose) {
  const used = [...new Set(document.devices.map((device) => device.gpu))].sort((a, b) => gpus.indexOf(a) - gpus.indexOf(b));
  /** @type {HTMLElement[]} */
  const entries = used.map((gpu) => {
    const hosts = hostsOf(document, gpu);
    const select = () => choose(document.devices.filter((device) => device.gpu === gpu).map((device) => device.name));
    return h(
      "button",
      { type: "button", class: "dtfm-key", title: `Select every ${gpu || "device without a GPU"}`, onclick: select },
      h("i", { class: `dtfm-swatch dtfm-${hosts ? "box" : gpuShape(gpu)}` }),
      `${hosts}${gpu || "no GPU"}`,
    );
  });
  if (filled) entries.push(h("span", {}, "≈ by distance"));
  const links = document.links.length;
  if (links > MANY_LINKS) entries.push(h("span", {}, `${links.toLocaleString("en-US")} links: point at a device to see its own`));
  return entries;
}

/**
 * "hosts of 8 × " where what has this GPU stands for several each.
 * @type {(document: Document, gpu: string) => string}
 */
function hostsOf({ devices }, gpu) {
  const sizes = [...new Set(devices.filter((device) => device.gpu === gpu).map(({ members }) => members?.length ?? 1))].sort((a, b) => a - b);
  if (sizes.at(-1) === 1) return "";
  return `hosts of ${sizes.length > 1 ? `${sizes[0]} to ${sizes.at(-1)}` : sizes[0]} × `;
}

/**
 * A sentence, why, and one action.
 * @type {(add: () => void) => HTMLElement}
 */
export function emptyState(add) {
  return h(
    "div",
    { class: "dtfm-empty" },
    h(
      "div",
      { class: "dtfm-start" },
      h("strong", {}, "No device yet"),
      h("p", {}, "A plan needs devices, and links between them. Double-click where you want one, or drop a network file here (YAML, JSON, CSV or npz)."),
      h("button", { type: "button", class: "dtfm-first", onclick: add }, "Add a device"),
    ),
  );
}

/**
 * "8 devices, 2 regions, 1 link"
 * @type {(document: Document) => string}
 */
export function inventory({ devices, regions, links }) {
  /** @type {(n: number, what: string) => string} */
  const count = (n, what) => `${n.toLocaleString("en-US")} ${what}${n === 1 ? "" : "s"}`;
  const total = devices.reduce((sum, { members }) => sum + (members?.length ?? 1), 0);
  return [count(total, "device"), count(regions.length, "region"), count(links.length, "link")].join(", ");
}
