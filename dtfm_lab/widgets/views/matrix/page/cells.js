// Values as a bitmap with one pixel per cell, coloured once by the logarithm, and the scale next to it.
import { figures, logTicks } from "shared/axis.js";
import { rampColor } from "shared/theme.js";
/** @import { Context, Theme } from "shared/types.d.ts" */
/** @import { Bitmap } from "../types.d.ts" */

const SHADES = 256;
const SHADE = Array.from({ length: SHADES }, (_, at) => rampColor(at / (SHADES - 1)));
const CHANNELS = SHADE.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));

/**
 * {image, low, high, share(value)} of (n, n) values; `lowIsLight` for what is dear when it is high.
 * @type {(values: Float32Array, n: number, lowIsLight: boolean) => Bitmap}
 */
export function bitmap(values, n, lowIsLight) {
  let [low, high] = [Infinity, 0];
  for (let at = 0; at < values.length; at++) {
    if (at % (n + 1) === 0 || !(values[at] > 0)) continue;
    low = Math.min(low, values[at]);
    high = Math.max(high, values[at]);
  }
  if (!high) [low, high] = [1, 1];
  const span = Math.log(high / low) || 1;
  /** @type {(value: number) => number} */
  const share = (value) => {
    const up = Math.min(1, Math.max(0, Math.log(Math.max(value, low) / low) / span));
    return lowIsLight ? up : 1 - up;
  };
  const image = document.createElement("canvas");
  image.width = image.height = n;
  const context = /** @type {Context} */ (image.getContext("2d"));
  const pixels = context.createImageData(n, n);
  for (let at = 0; at < values.length; at++) {
    if (at % (n + 1) === 0) continue; // a device with itself stays clear
    const [red, green, blue] = CHANNELS[Math.round(share(values[at]) * (SHADES - 1))];
    pixels.data.set([red, green, blue, 255], 4 * at);
  }
  context.putImageData(pixels, 0, 0);
  return { image, low, high, share };
}

/** @type {(share: number) => string} */
export const shadeOf = (share) => SHADE[Math.round(share * (SHADES - 1))];

/**
 * The colour bar at x, from top to bottom, highest value above.
 * @type {(context: Context, map: Bitmap, x: number, top: number, bottom: number, unit: string, theme: Theme) => void}
 */
export function paintScale(context, { low, high, share }, x, top, bottom, unit, theme) {
  const wide = 12;
  /** @type {(value: number) => number} */
  const y = (value) => bottom - (Math.log(value / low) / (Math.log(high / low) || 1)) * (bottom - top);
  for (let at = top; at < bottom; at++) {
    const value = low * (high / low) ** ((bottom - at) / (bottom - top));
    context.fillStyle = shadeOf(share(value));
    context.fillRect(x, at, wide, 1.5);
  }
  context.fillStyle = theme.softText;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.font = theme.font;
  const inner = logTicks(low, high).filter((value) => Math.abs(y(value) - top) > 13 && Math.abs(y(value) - bottom) > 13);
  for (const value of high > low * 1.001 ? [high, ...inner, low] : [low]) {
    const at = high > low * 1.001 ? y(value) : (top + bottom) / 2;
    context.fillRect(x + wide, Math.min(bottom - 1, at), 3, 1);
    context.fillText(figures(value), x + wide + 6, Math.min(bottom - 5, Math.max(top + 5, at)));
  }
  context.textBaseline = "alphabetic";
  context.fillText(unit, x, top - 8);
}
