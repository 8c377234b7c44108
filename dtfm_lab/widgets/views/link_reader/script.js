// Reads a link of the lab: what it holds becomes the traits of a page's views, once all of it is known to be sound.
// It is no view: `still_page` puts it on the page of the project's site that opens links.
import { iterationOf } from "./page/iteration.js";
import { outlined } from "./page/outline.js";
import { DAMAGED, LinkError, VIEWS, isRecord, wanted, words } from "./page/shapes.js";
/** @import { Linked, Traits } from "./types.d.ts" */

export { LinkError };
export const MARK = "#dtfm-lab=";
export const MOST_CHARACTERS = 100_000;
const MOST_BYTES = 4_000_000; // a short link could unpack to gigabytes
const FORMAT = 1;

/**
 * What the link of an address holds. Rejects with a LinkError, whose message is one line.
 * @type {(hash: string, defaults: Record<string, Traits>) => Promise<Linked>}
 */
export async function readLink(hash, defaults) {
  const packed = hash.slice(hash.indexOf(MARK) + MARK.length);
  wanted(hash.includes(MARK) && packed, "No link yet.");
  wanted(packed.length <= MOST_CHARACTERS, `The link has ${packed.length.toLocaleString("en-US")} characters; the lab makes none over 100,000.`);
  wanted(/^[\w-]+(\.[\w-]+)?$/.test(packed));
  const [state, picture] = packed.split(".");
  return picture ? pictured(await inflated(picture), defaults) : outlined(parsed(await inflated(state)), defaults);
}

/**
 * Unpacked no further than MOST_BYTES.
 * @type {(coded: string) => Promise<Uint8Array<ArrayBuffer>>}
 */
async function inflated(coded) {
  /** @type {Uint8Array[]} */
  const parts = [];
  let length = 0;
  try {
    const bytes = Uint8Array.from(atob(coded.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
    for (let read = await reader.read(); !read.done && length <= MOST_BYTES; read = await reader.read()) {
      parts.push(read.value);
      length += read.value.length;
    }
    if (length > MOST_BYTES) reader.cancel().catch(() => {});
  } catch {
    throw new LinkError(DAMAGED);
  }
  wanted(length <= MOST_BYTES, "The link unpacks to more than 4 MB; the lab makes none so large.");
  const all = new Uint8Array(length);
  for (let at = 0, part = 0; part < parts.length; at += parts[part++].length) all.set(parts[part], at);
  return all;
}

/** @type {(bytes: Uint8Array) => any} JSON of anybody, which is checked before it is used */
function parsed(bytes) {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw new LinkError(DAMAGED);
  }
}

/**
 * What the lab wrote for this page: the views' traits, and an iteration in columns.
 * @type {(bytes: Uint8Array<ArrayBuffer>, defaults: Record<string, Traits>) => Linked}
 */
function pictured(bytes, defaults) {
  wanted(bytes.length > 4);
  const end = 4 + new DataView(bytes.buffer).getUint32(0, true);
  wanted(end <= bytes.length);
  const data = parsed(bytes.subarray(4, end));
  wanted(isRecord(data));
  wanted(data.format === FORMAT, "The link is of another release of the lab than this page: open it with dtfm-lab open LINK.");
  wanted(words(data.title) && words(data.made) && isRecord(data.views));
  /** @type {Record<string, Traits>} */
  const views = {};
  for (const [view, traits] of Object.entries(data.views)) {
    wanted(Object.hasOwn(VIEWS, view) && isRecord(traits));
    for (const [trait, value] of Object.entries(traits)) wanted(Object.hasOwn(VIEWS[view], trait) && VIEWS[view][trait](value));
    views[view] = { ...traits };
  }
  wanted(views.map?.document);
  if (data.counts !== undefined) {
    const gantt = { ...defaults.gantt, ...views.gantt },
      drawn = iterationOf(data, bytes.subarray(end), gantt.kinds, gantt.rows.length);
    wanted(gantt.devices.length === gantt.rows.length && (views.map.playback_devices ?? []).length * 2 === gantt.rows.length);
    views.gantt = { ...views.gantt, ...drawn.gantt };
    views.map.playback = drawn.playback;
    views.player = { ...views.player, length_s: drawn.length_s, known_s: drawn.length_s };
  }
  return { title: data.title, made: data.made, views };
}
