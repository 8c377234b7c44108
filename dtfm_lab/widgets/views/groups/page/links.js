// Step (a): links on a canvas behind the devices, faint by their strength; those between regions bundled.
import { linkWords } from "./words.js";
/** @import { Context, Point, Theme } from "shared/types.d.ts" */
/** @import { Ground, Link, Network, Placed } from "../types.d.ts" */

/**
 * [{from, to, strength, words}] in pixels, weakest first.
 * @type {(network: Network, placed: Placed) => Link[]}
 */
export function linksIn(network, { devices, regions }) {
  if (!network.devices) return [];
  const names = network.devices.map(({ name }) => name);
  const single = (network.links ?? []).map((link) => ({
    from: devices.a.get(names[link[0]]),
    to: devices.a.get(names[link[1]]),
    strength: link[2],
    bundle: false,
    words: linkWords(link, names[link[0]], names[link[1]], false),
  }));
  const bundles = regions.length
    ? (network.bundles ?? []).map((link) => {
        const [a, b] = [regions[link[0]], regions[link[1]]];
        /** @type {(region: Ground) => string} */
        const name = (region) => region.name || "no region";
        return { from: rim(a, b), to: rim(b, a), strength: link[2], bundle: true, words: linkWords(link, name(a), name(b), true) };
      })
    : [];
  return [...single, ...bundles]
    .filter(/** @type {(link: Partial<Link>) => link is Link} */ (({ from, to }) => Boolean(from && to)))
    .sort((one, other) => one.strength - other.strength);
}

/**
 * Where a bundle leaves its region.
 * @type {(region: Ground, other: Point) => Point}
 */
function rim(region, other) {
  const [dx, dy] = [other.x - region.x, other.y - region.y];
  const length = Math.hypot(dx, dy) || 1;
  const share = region.round ? region.half[0] / length : Math.min(region.half[0] / (Math.abs(dx) || 1e-9), region.half[1] / (Math.abs(dy) || 1e-9));
  return share < 0.5 ? { x: region.x + dx * share, y: region.y + dy * share } : { x: region.x, y: region.y };
}

/** @type {(context: Context, links: Link[], theme: Theme) => void} */
export function paintLinks(context, links, theme) {
  context.strokeStyle = theme.text;
  context.lineCap = "round";
  const crowd = links.length > 300 ? 0.6 : 1;
  for (const { from, to, strength, bundle } of links) {
    context.globalAlpha = (bundle ? 0.16 + 0.18 * strength : 0.1 + 0.25 * strength) * crowd;
    context.lineWidth = bundle ? 1.5 + 6 * strength : links.length > 150 ? 0.7 + strength : 0.8 + 4 * strength;
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    context.stroke();
  }
  context.globalAlpha = 1;
}

/**
 * The link under a point, within a few pixels.
 * @type {(links: Link[], x: number, y: number) => Link | null}
 */
export function linkUnder(links, x, y) {
  let /** @type {Link | null} */ best = null,
    nearest = 5;
  for (const link of links) {
    const { from, to } = link;
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const along = Math.min(1, Math.max(0, ((x - from.x) * dx + (y - from.y) * dy) / (dx * dx + dy * dy || 1)));
    const away = Math.hypot(x - from.x - along * dx, y - from.y - along * dy);
    if (away < nearest) [best, nearest] = [link, away];
  }
  return best;
}
