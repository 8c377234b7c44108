// The whole chart on a canvas: the one on the page, or a larger one to keep.
import { NO_BARS } from "./bars.js";
import { layout } from "./layout.js";
import { FADED, MOST_ARROWS, paintEnds, paintMessages, paintNumbers, paintPath } from "./overlays.js";
import { paintAxis, paintRows } from "./paint.js";
import { Raster } from "./raster.js";
import { paintDrift, paintMemory } from "./strips.js";

export const [UPPER, LOWER] = [0, 1];
const MARKED = 0.01; // share of the iteration by which a bar ends earlier or later before it is marked
const MOST_NUMBERS = 1500 * 7; // while it moves; all of them as soon as it rests

/**
 * `state` is what is drawn: columns and labels, no pixels. Returns where everything is, how many messages are
 * in sight, and whether something was left out for speed.
 */
export function chartPainter() {
  const raster = new Raster();
  return function paint(context, { width, height, theme, ratio, span, moving }, state) {
    const { upper, lower, lanes, kinds, perPipeline, unit, arranged, labels, lit, path, messages, columns, memory } = state;
    const split = lower !== NO_BARS;
    const strips = stripsOf(state);
    context.font = theme.font;
    const labelWidth = Math.max(...arranged.shown.map((row) => context.measureText(labels[row] ?? "").width));
    const place = layout({ width, height, labelWidth, span, split, lanes, arranged, nStrips: strips.length, marked: state.ends.length > 0 });
    place.strips = strips;
    paintRows(context, place, labels, lit, theme);
    paintAxis(context, place, unit, theme);
    const threshold = MARKED * state.length;
    const sides = [{ bars: upper, half: UPPER, outline: null }];
    if (split) sides.push({ bars: lower, half: LOWER, outline: solid(context, theme.text), threshold });
    const withPath = state.showPath && path.bar.length > 0;
    const numbers = raster.paint(place, lanes, kinds, perPipeline, sides, ratio);
    context.save();
    context.beginPath();
    context.rect(place.left, place.top, place.right - place.left, place.rowsBottom - place.top);
    context.clip();
    context.globalAlpha = withPath ? FADED : 1;
    context.imageSmoothingEnabled = false;
    context.drawImage(raster.canvas, place.left, place.top, raster.width / ratio, raster.height / ratio);
    const hurried = moving && numbers.length > MOST_NUMBERS;
    if (!hurried) paintNumbers(context, numbers, kinds, 11);
    context.font = theme.font;
    context.globalAlpha = 1;
    const inSight = state.showMessages ? paintMessages(context, place, messages, theme.text) : 0;
    if (withPath) paintPath(context, place, path, columns, kinds, perPipeline);
    context.restore();
    context.font = theme.font;
    strips.forEach((strip, number) => {
      if (strip === "drift") paintDrift(context, place, number, lower, state.driftRow, state.mostLate, unit, state.driftWords, theme);
      else paintMemory(context, place, number, memory, theme);
    });
    paintEnds(context, place, state.ends, theme);
    return { place, tangle: inSight > MOST_ARROWS ? inSight : 0, hurried };
  };
}

/** A CSS colour without what shines through, as "#rrggbb". */
function solid(context, color) {
  context.fillStyle = color;
  const known = context.fillStyle; // "#rrggbb", or "rgba(r, g, b, a)"
  if (known.startsWith("#")) return known;
  const channels = known.match(/[\d.]+/g).slice(0, 3).map(Number);
  return `#${channels.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}

export const stripsOf = ({ mostLate, memory }) => [...(mostLate > 0 ? ["drift"] : []), ...(memory.time.length ? ["memory"] : [])];
