// What goes on at a moment of an iteration: the rows of `DocumentView.playback`, see dtfm_lab/widgets/running/playback.py.
import { typed } from "./dom.js";
/** @import { Bytes, Computing, Kind, Travelling } from "./types.d.ts" */

const WIDTH = 5; // start_s, end_s, kind, source, target

/**
 * The kinds of a row, by their number; `kindColor` of theme.js knows them by these names.
 * @type {Kind[]}
 */
export const PLAYED = ["forward", "backward", "averaging", "step"];

/**
 * The rows of a binary trait, by start.
 * @type {(view: Bytes) => Float32Array<ArrayBuffer>}
 */
export const playbackRows = (view) => typed(view, Float32Array);

/**
 * What goes on at `t_s`: `computing` [{device, kind, share}] and `messages` [{source, target, kind, share}], with devices
 * as indices into `playback_devices` and the share of the action that is over, 0 to 1.
 * @type {(rows: Float32Array, t_s: number) => { computing: Computing[], messages: Travelling[] }}
 */
export function playbackAt(rows, t_s) {
  /** @type {Computing[]} */
  const computing = [],
    /** @type {Travelling[]} */ messages = [];
  for (let at = 0; at + WIDTH <= rows.length && rows[at] <= t_s; at += WIDTH) {
    const start = rows[at],
      end = rows[at + 1];
    if (end <= t_s) continue;
    const share = (t_s - start) / (end - start),
      kind = PLAYED[rows[at + 2]];
    const source = rows[at + 3],
      target = rows[at + 4];
    if (target < 0) computing.push({ device: source, kind, share });
    else messages.push({ source, target, kind, share });
  }
  return { computing, messages };
}
