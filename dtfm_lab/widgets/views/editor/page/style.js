// Sizes on the canvas. Cytoscape needs them to know what is pressed. paint.js draws.
const [LEAST, MOST, READABLE] = [9, 40, 18]; // pixels a device is high
const BOX_WIDTH = 1.32; // of a laptop's box over its height
const REGION_PADDING = 30; // pixels around a region's devices: its label above, their names below

const HOST = { wide: 0.86, high: 0.8, most: 140, name: 21 }; // shares of the distance, pixels, pixels below for a name
export const LEAST_NAME = 44; // pixels between neighbours that have names

/**
 * Pixels on the screen for neighbours that stand `near` apart in the document: {height, width of a box, padding}, and the
 * room of a host, which has cells.
 * @type {(zoom: number, near: number) => import("../types.d.ts").Size}
 */
export function sizes(zoom, near) {
  const apart = near * zoom;
  const height = Math.max(LEAST, Math.min(MOST, Math.max(apart * 0.4, Math.min(READABLE, apart * 0.74))));
  const host = {
    width: Math.max(LEAST, Math.min(HOST.most, HOST.wide * apart)),
    height: Math.max(LEAST, Math.min(HOST.most, apart < LEAST_NAME ? HOST.high * apart : Math.min(HOST.high * apart, apart - HOST.name))),
  };
  return { height, width: Math.min(height * BOX_WIDTH, Math.max(height, apart * 0.8)), padding: Math.min(REGION_PADDING, apart * 0.62), host };
}

/**
 * How far a device's nearest neighbour is, in the document's pixels: the middle of all; 90 where there are not two.
 * @type {(devices: { x: number, y: number }[]) => number}
 */
export function nearest(devices) {
  if (devices.length < 2) return 90;
  const distances = devices.map((one) => Math.min(...devices.map((other) => (other === one ? Infinity : (one.x - other.x) ** 2 + (one.y - other.y) ** 2))));
  return Math.min(160, Math.max(30, Math.sqrt(distances.sort((one, other) => one - other)[distances.length >> 1])));
}

/** @type {(look: { zoom: number, near: number, ink: string }) => object[]} */
export function styleSheet({ zoom, near, ink }) {
  const { height, width, padding, host } = sizes(zoom, near);
  const unseen = { opacity: 0, "overlay-opacity": 0 };
  const shown = { opacity: 1, "line-color": ink, "line-style": "dashed", width: 2 / zoom, "target-arrow-shape": "none" };
  return [
    {
      selector: "core",
      style: {
        "active-bg-opacity": 0,
        "selection-box-color": ink,
        "selection-box-opacity": 0.08,
        "selection-box-border-color": ink,
        "selection-box-border-width": 1,
      },
    },
    { selector: "node, edge", style: unseen },
    { selector: "node.device", style: { shape: "ellipse", width: Math.max(14, height) / zoom, height: Math.max(14, height) / zoom } },
    { selector: "node.device[shape = 'box']", style: { shape: "round-rectangle", width: Math.max(14, width) / zoom } },
    { selector: "node.device[shape = 'host']", style: { shape: "round-rectangle", width: host.width / zoom, height: host.height / zoom } },
    { selector: "node.region", style: { shape: "round-rectangle", padding: padding / zoom } },
    { selector: "node.region.empty", style: { width: 90, height: 54 } },
    {
      selector: "edge",
      style: {
        "curve-style": "unbundled-bezier",
        "edge-distances": "node-position",
        "control-point-weights": 0.5,
        "control-point-distances": (/** @type {import("cytoscape").EdgeSingular} */ edge) => edge.data("bend") ?? 0,
        width: 7 / zoom,
      },
    },
    { selector: "edge.pair", style: { "z-compound-depth": "bottom" } },
    { selector: "edge.link", style: { "z-compound-depth": "auto", "z-index": 2 } },
    { selector: ".eh-ghost-edge, edge.eh-preview", style: { ...shown, "curve-style": "straight" } },
  ];
}
