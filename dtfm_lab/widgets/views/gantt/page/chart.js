// The whole chart on a canvas: the one on the page, or a larger one to keep.
import { kindColor } from "shared/theme.js";
import { NO_BARS } from "./bars.js";
import { paintGaps } from "./gaps.js";
import { layout } from "./layout.js";
import { endLabels, FADED, MOST_ARROWS, paintEnds, paintWhisker, paintZone, paintMessages, paintNumbers, paintPath } from "./overlays.js";
import { paintAxis, paintGrid, paintRows } from "./paint.js";
import { Raster } from "./raster.js";
import { WAITED } from "./waited.js";
import { there } from "shared/there.js";
/** @import { Context, Look, Place, State, AxisUnit } from "../types.d.ts" */

const MOST_NUMBERS = 1500 * 7; // while it moves; all of them as soon as it rests

/**
 * `state` is what is drawn: columns and labels, no pixels. Returns where everything is, how many messages are
 * in sight, and whether something was left out for speed.
 * @type {() => (context: Context, look: Look, state: State & { unit: AxisUnit }) => { place: Place, tangle: number, hurried: boolean }}
 */
export function chartPainter() {
  const raster = new Raster();
  return function paint(context, { width, height, theme, ratio, span, whole, moving, scroll, fill }, state) {
    const { upper, lower, ghost, overlays, lanes, perPipeline, unit, arranged, lit, nStages, path, messages, columns } = state;
    const kinds = state.kindsIn(theme.dark);
    context.font = theme.font;
    const labelWidth = Math.max(...arranged.shown.map(({ label, nMembers }) => context.measureText(label).width + (nMembers ? 12 : 0)));
    // measured bars lie over predicted ones, which become a line
    const side = overlays ? { bars: lower, ghost: upper } : { bars: upper, ghost: ghost === NO_BARS ? null : ghost };
    const place = layout({ width, height, labelWidth, span, ghost: Boolean(side.ghost), lanes, arranged, scroll, fill });
    paintGrid(context, place, unit, theme);
    paintRows(context, place, { lit, nStages }, theme);
    const withPath = state.showPath && path.bar.length > 0 && !state.isGliding;
    const looks = {
      kinds,
      families: WAITED.map((family) => kindColor(family, theme.dark)),
      lastFamily: state.averages && !(overlays && lower.count < upper.count) ? WAITED.indexOf("averaging") : undefined,
      ink: solid(context, theme.text),
    };
    const numbers = raster.paint(place, lanes, looks, perPipeline, side, ratio);
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
    const inSight = state.showMessages && !state.isGliding ? paintMessages(context, place, messages, theme.text) : 0;
    if (withPath) paintPath(context, place, path, columns, kinds, perPipeline, theme.text, theme.surface);
    if (!state.isGliding) paintZone(context, place, state.interval, theme);
    paintGaps(context, place, state, theme);
    context.restore();
    context.font = theme.font;
    const labels = endLabels(context, place, state.ends, theme);
    place.labels = labels;
    paintAxis(
      context,
      place,
      unit,
      labels.map(({ from, to }) => [from, to]),
      width,
      whole,
      theme,
    );
    paintEnds(context, place, labels, theme);
    if (!state.isGliding) paintWhisker(context, place, state.interval, theme);
    return { place, tangle: inSight > MOST_ARROWS ? inSight : 0, hurried };
  };
}

/**
 * A CSS colour without transparency, as "#rrggbb".
 * @type {(context: Context, color: string) => string}
 */
function solid(context, color) {
  context.fillStyle = color;
  const known = context.fillStyle; // "#rrggbb", or "rgba(r, g, b, a)"
  if (known.startsWith("#")) return known;
  const channels = there(known.match(/[\d.]+/g))
    .slice(0, 3)
    .map(Number);
  return `#${channels.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}
