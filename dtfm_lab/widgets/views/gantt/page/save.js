// Files out of the page, without a server.
import { typed } from "shared/dom.js";
import { there } from "shared/there.js";
/** @import { Context, Theme } from "../types.d.ts" */

/**
 * Offers a blob as a file.
 * @type {(blob: Blob, name: string) => void}
 */
export function offer(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * A file that Python has sent, gzipped for the way.
 * @type {(buffer: DataView, type: string) => Promise<Blob>}
 */
export async function unpacked(buffer, type) {
  const stream = new Blob([typed(buffer, Uint8Array)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Blob([await new Response(stream).arrayBuffer()], { type });
}

/**
 * What `paint(context, theme, width, height)` draws, with a title and a legend, on white.
 * @type {(what: { title: string, caption: string, legend: { name: string, color: string }[], width: number, height: number, ratio: number }, paint: (context: Context, theme: Theme) => void) => Promise<Blob>}
 */
export function picture({ title, caption, legend, width, height, ratio }, paint) {
  const [head, foot] = [54, caption ? 26 : 6];
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round((head + height + foot) * ratio);
  const context = /** @type {Context} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, width, head + height + foot);
  context.textBaseline = "middle";
  context.fillStyle = LIGHT.text;
  context.font = `600 14px ${LIGHT.font.replace(/^\d+px /, "")}`;
  context.fillText(title, 10, 16);
  context.font = LIGHT.font;
  let x = 10;
  for (const { name, color } of legend) {
    context.fillStyle = color;
    context.fillRect(x, 33, 11, 11);
    context.fillStyle = LIGHT.softText;
    context.fillText(name, x + 16, 39);
    x += 34 + context.measureText(name).width;
  }
  context.fillStyle = LIGHT.softText;
  if (caption) context.fillText(caption, 10, head + height + foot / 2, width - 20);
  context.translate(0, head);
  paint(context, LIGHT);
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(there(blob)), "image/png"));
}

/** @type {Theme} */
const LIGHT = {
  text: "#212121",
  softText: "#616161",
  surface: "#ffffff",
  raised: "#eeeeee",
  border: "#bdbdbd",
  softBorder: "#e0e0e0",
  dark: false,
  font: "12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
};
