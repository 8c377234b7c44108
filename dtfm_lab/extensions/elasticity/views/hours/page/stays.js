// Stays of devices: move one end of a stay.
/** @import { End, Stay } from "../types.d.ts" */

const LEAST = 1 / 2000; // minimum length of a stay, as a share of the hours

/**
 * Return the stay with one end at another time, limited by the neighbouring stays of the same device.
 * @type {(stays: Stay[], end: Pick<End, "index" | "device" | "leaves">, t_s: number, hours_s: number) => Stay}
 */
export function moved(stays, { index, device, leaves }, t_s, hours_s) {
  const [, begin_s, end_s] = stays[index],
    least = hours_s * LEAST;
  const before = stays[index - 1]?.[0] === device ? stays[index - 1][2] : 0,
    after = stays[index + 1]?.[0] === device ? stays[index + 1][1] : hours_s;
  return leaves ? [device, begin_s, Math.min(after, Math.max(begin_s + least, t_s))] : [device, Math.max(before, Math.min(end_s - least, t_s)), end_s];
}
