// How devices, regions and links look.
import { CATEGORIES, inkOn, stageColor, VERMILLION, GREEN, GREY } from "shared/theme.js";
import { MANY_LINKS } from "./elements.js";

const SHAPES = ["ellipse", "round-rectangle", "triangle", "diamond"];
const CROWDED_REGIONS = 8; // above, a region says its name only, and the rest when it is pointed at
const CROWDED_LINES = 20; // drawn lines; above, labels show only on what is pointed at or selected
const TANGLED_LINES = MANY_LINKS; // they fade to a tint, what is pointed at or chosen stands out

const BESIDE_DEVICES = 130; // a region's label may be so much wider than its devices stand apart, before it covers others
const SMALLEST_TEXT = 8.2; // pixels on screen; what would be smaller shows when it is pointed at

/** A GPU's colour and shape; shape tells apart what must share a colour. */
export function gpuLook(gpu, gpus) {
  const at = gpus.indexOf(gpu);
  if (at < 0) return { color: GREY, shape: "ellipse" };
  return { color: CATEGORIES[at % CATEGORIES.length], shape: SHAPES[Math.floor(at / CATEGORIES.length) % SHAPES.length] };
}

/** Wide is fast: a pixel and a half for each factor of ten, 0.1 Gbit/s being thin. */
const lineWidth = (gbps) => Math.min(8, Math.max(1, 2 + 1.6 * Math.log10(Math.max(gbps, 1e-3) / 0.1)));

/** Grows what is read as the view zooms out, though less than it shrinks. */
export const textScale = (zoom) => Math.min(3, Math.max(0.45, zoom ** -0.75));

/** How crowded a drawing is, as far as its look depends on it. */
export const crowding = (nLines, nRegions) => ({ manyLines: nLines > CROWDED_LINES, tangled: nLines > TANGLED_LINES, manyRegions: nRegions > CROWDED_REGIONS });

export function styleSheet({ theme, zoom, gpus, stages, manyLines, tangled, manyRegions }) {
  const scale = textScale(zoom);
  const dot = Math.max(1, 1 / zoom); // a pixel on the screen, at least
  const nameSize = 11 * Math.min(scale, 1.3);
  const wide = (text) => 0.6 * 13 * scale * text.length;
  const readable = (fontSize) => fontSize * zoom >= SMALLEST_TEXT;
  const look = (node) => gpuLook(node.data("gpu"), gpus);
  const stage = (node) => stages[node.data("name")];
  const hasStage = (node) => Number.isInteger(stage(node));
  const halo = { "text-background-color": theme.surface, "text-background-opacity": 0.9, "text-background-padding": 2 * scale, "text-background-shape": "round-rectangle" };
  const outline = { "text-outline-color": theme.surface, "text-outline-width": 2, "text-outline-opacity": 0.85 };
  return [
    { selector: "core", style: { "active-bg-opacity": 0, "selection-box-color": VERMILLION, "selection-box-opacity": 0.15, "selection-box-border-color": VERMILLION } },
    { selector: "node, edge", style: { "overlay-opacity": 0, color: theme.text, "font-family": "system-ui, DejaVu Sans, sans-serif" } },
    { selector: "node.device", style: {
      label: readable(nameSize) ? "data(label)" : "", "font-size": nameSize, "text-valign": "bottom", "text-margin-y": 4,
      width: 26, height: 26, shape: (node) => look(node).shape, "background-color": (node) => look(node).color,
      "border-width": 1, "border-color": theme.surface, ...outline,
    } },
    { selector: "node.device.staged", style: {
      "outline-width": 4, "outline-offset": 2, "outline-color": (node) => (hasStage(node) ? stageColor(stage(node)) : theme.surface),
      "background-image": (node) => (hasStage(node) ? badge(stage(node), look(node).color) : "none"),
      "background-width": "100%", "background-height": "100%", "text-margin-y": 9,
    } },
    { selector: "node.region", style: {
      label: (node) => node.data(manyRegions || wide(node.data("label")) > node.data("width") + BESIDE_DEVICES ? "name" : "label"), shape: "round-rectangle", "background-color": theme.softText, "background-opacity": 0.06,
      "border-color": theme.softText, "border-opacity": 0.4, "border-width": 1, padding: 22, "font-size": 13 * scale, "font-weight": 600,
      "text-valign": "top", "text-margin-y": -4 * scale, ...outline,
    } },
    { selector: "node.region.pointed, node.region:selected", style: { label: "data(label)" } },
    { selector: "node.region.empty", style: { width: 90, height: 54, "border-style": "dashed" } },
    { selector: "edge", style: {
      "curve-style": "straight", "line-color": theme.softText, "line-opacity": tangled ? 0.1 : 0.75,
      width: (edge) => (tangled ? 1 : lineWidth(edge.data("gbps"))),
      label: !manyLines && readable(11 * scale) ? "data(label)" : "", "font-size": 11 * scale, "text-margin-y": -10 * scale, ...halo,
    } },
    { selector: "edge.pair", style: { "line-color": theme.softText, "line-opacity": manyLines ? 0.4 : 0.6, "line-cap": "round", "z-compound-depth": "bottom" } },
    { selector: "edge.slow", style: { width: 1, "line-style": "dashed" } },
    { selector: "edge.one-way", style: { "curve-style": tangled ? "straight" : "bezier", "control-point-step-size": 34, "target-arrow-shape": tangled ? "none" : "triangle", "target-arrow-color": theme.softText, "arrow-scale": 1.1 } },
    { selector: "edge.filled", style: { "line-style": "dashed", "line-dash-pattern": [dot, 5 * dot], "line-cap": "round", "line-opacity": 0.5, width: 2 * dot } },
    { selector: "edge.peek", style: { "line-color": VERMILLION, "line-style": "dashed", "line-dash-pattern": [4 * dot, 4 * dot], width: 2 * dot, "line-opacity": 1, label: "", "z-compound-depth": "top" } },
    { selector: "node.device.found", style: { "underlay-color": GREEN, "underlay-opacity": 0.45, "underlay-padding": 7, "underlay-shape": "ellipse" } },
    { selector: "node.device.pointed", style: { label: "data(label)", "font-size": Math.max(nameSize, 12 / zoom), "z-index": 40 } },
    { selector: "edge.pointed", style: { label: "data(label)", "line-opacity": 1, "z-compound-depth": "auto", "z-index": 20 } },
    { selector: "edge:selected", style: { label: "data(label)", "line-color": VERMILLION, "target-arrow-color": VERMILLION, "line-opacity": 1, "z-compound-depth": "auto", "z-index": 30 } },
    { selector: "node:selected", style: { "border-color": VERMILLION, "border-width": 3, "border-opacity": 1 } },
    { selector: ".eh-ghost-edge, edge.eh-preview", style: { label: "", "line-style": "dashed", "line-color": VERMILLION, width: 2, "line-opacity": 1 } },
    { selector: "node.eh-source, node.eh-target, node.aimed", style: { "border-width": 3, "border-color": GREEN, "border-opacity": 1 } },
  ];
}

/** "S3" on the device itself; cytoscape gives a node one label, and that is its name. */
function badge(stage, fill) {
  const text = `<text x="13" y="17" text-anchor="middle" font-family="sans-serif" font-size="11" font-weight="bold" fill="${inkOn(fill)}">S${stage}</text>`;
  return `data:image/svg+xml;utf8,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" width="26" height="26">${text}</svg>`)}`;
}
