// What stands around the drawing: the legend, the start of a blank canvas, the line below.
import { h } from "shared/dom.js";
import { MANY_LINKS } from "./elements.js";
import { gpuLook } from "./style.js";

/** Every GPU that is drawn, a button that hands the names of its devices to `choose`; and what lines may mean. */
export function legendEntries(document, gpus, { slow, filled }, choose) {
  const used = [...new Set(document.devices.map((device) => device.gpu))].sort((a, b) => gpus.indexOf(a) - gpus.indexOf(b));
  const entries = used.map((gpu) => {
    const { color, shape } = gpuLook(gpu, gpus);
    const select = () => choose(document.devices.filter((device) => device.gpu === gpu).map((device) => device.name));
    return h("button", { type: "button", class: "dtfm-key", title: `Select every ${gpu || "device without a GPU"}`, onclick: select },
      h("i", { class: `dtfm-swatch dtfm-${shape}`, style: `color:${color}` }), gpu || "no GPU");
  });
  const line = (look, text) => h("span", {}, h("i", { class: look }), text);
  if (slow) entries.push(line("dtfm-dash", "under a tenth of the median bandwidth"));
  if (filled) entries.push(line("dtfm-dots", "≈ by distance"));
  const links = document.links.length;
  if (links > MANY_LINKS) entries.push(h("span", {}, `${links.toLocaleString("en-US")} links, drawn for what is selected or pointed at`));
  return entries;
}

export function emptyState() {
  const key = (name, text) => h("li", {}, h("kbd", {}, name), text);
  return h("div", { class: "dtfm-empty" }, h("div", { class: "dtfm-start" },
    h("strong", {}, "A blank canvas"),
    h("ul", {}, key("D", "Press D and click to add a device"), key("L", "drag from one to another: a link"), key("G", "make a region of the selected ones")),
    h("p", {}, "Or drop a network's file here: YAML, JSON, CSV, npz or GraphML.")));
}

/** "8 devices, 2 regions, 1 link" */
export function inventory({ devices, regions, links }) {
  const count = (n, what) => `${n.toLocaleString("en-US")} ${what}${n === 1 ? "" : "s"}`;
  return [count(devices.length, "device"), count(regions.length, "region"), count(links.length, "link")].join(", ");
}
