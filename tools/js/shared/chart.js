// Line charts that follow a stream of numbers: uPlot in the notebook's theme, with values at the right edge and words at the cursor.
import uPlot from "uplot";
import { figures, tickLabel, ticks, logTicks } from "./axis.js";
import { tooltip } from "./canvas.js";
import { oncePerFrame, onResize } from "./dom.js";
import { onTheme, readTheme } from "./theme.js";
import { there } from "./there.js";
/** @import { Chart, ChartLine, CleanUps, Theme } from "./types.d.ts" */

const LABEL_PX = 15; // height of a value at the right edge
const STEP_PX = 8; // of an arrow key
/** @type {Chart} */
const NOTHING = { x: { low: 0, high: 1, label: "", format: String }, y: { low: 0, high: 1, label: "" }, curves: [], between: null, ends: [] };

/**
 * `describe(theme)` returns null for nothing, or
 * `x`, `y`: {low, high, label, format}, and of both also log, of `x` also whole;
 * `curves`: [{xs, lines: [{ys, color, width, dash, alpha, stepped, marked}]}], where `marked` lists the rows that get a dot;
 * `between`: two indices of lines, the area of which is shaded, or null;
 * `ends`: [{value, text, color, bold}], the values at the right edge;
 * `marks`: [{x, text, color}], moments on the x axis, each an upright line with words.
 * `words(x)` is what the tooltip says at a place on the x axis. `drawn` is called after each drawing.
 * @type {(box: HTMLElement, describe: (theme: Theme) => Chart | null, words: (x: number) => string, cleanUp: CleanUps, drawn?: () => void) => { draw: () => void, move: (by: number) => void }}
 */
export function lineChart(box, describe, words, cleanUp, drawn = () => {}) {
  let /** @type {uPlot | null} */ plot = null,
    built = "",
    /** @type {Chart} */ shown = NOTHING,
    theme = readTheme(box);
  const tip = tooltip(box);
  const draw = oncePerFrame(update, cleanUp);

  function update() {
    const { clientWidth: width, clientHeight: height } = box;
    if (!width || !height) return; // hidden, or not in the page yet: the resize observer will call again
    theme = readTheme(box);
    const now = describe(theme);
    if (!now) {
      plot?.destroy();
      [plot, built] = [null, ""];
      tip.hide();
      return;
    }
    shown = now;
    const lines = shown.curves.flatMap((curve) => curve.lines);
    const data = uPlot.join(shown.curves.map(({ xs, lines: own }) => [xs, ...own.map(({ ys }) => ys)]));
    const wanted = JSON.stringify([
      shown.x.log,
      shown.y.log,
      shown.between,
      shown.x.label,
      lines.map(({ width: wide, dash, stepped }) => [wide, dash, stepped]),
    ]);
    if (wanted !== built) {
      plot?.destroy();
      plot = new uPlot(options(lines, width, height), data, box);
      built = wanted;
      return;
    }
    if (!plot) return;
    if (plot.width !== width || plot.height !== height) plot.setSize({ width, height });
    plot.setData(data);
  }

  /** @type {(index: number) => ChartLine} */
  const lineAt = (index) => shown.curves.flatMap((curve) => curve.lines)[index - 1];

  /** @type {(lines: ChartLine[], width: number, height: number) => uPlot.Options} */
  function options(lines, width, height) {
    const axis = { font: theme.font, labelFont: theme.font, stroke: () => theme.softText, labelSize: 16, labelGap: 0 };
    const quiet = { show: false };
    return {
      width,
      height,
      padding: [14, 84, 0, 0],
      legend: quiet,
      cursor: { y: false, points: quiet, drag: { x: false, y: false } },
      scales: {
        x: { time: false, distr: shown.x.log ? 3 : 1, range: () => [shown.x.low, shown.x.high] },
        y: { distr: shown.y.log ? 3 : 1, range: () => [shown.y.low, shown.y.high] },
      },
      axes: [
        {
          ...axis,
          label: shown.x.label || undefined,
          size: 24,
          grid: quiet,
          ticks: { size: 4, stroke: () => theme.border },
          splits: xTicks,
          filter: (_, splits) => splits,
          values: (_, splits) => splits.map(shown.x.format),
        },
        {
          ...axis,
          label: shown.y.label || undefined,
          size: 46,
          gap: 3,
          grid: { stroke: () => theme.softBorder, width: 1 },
          ticks: quiet,
          splits: yTicks,
          values: yLabels,
        },
      ],
      series: [{}, ...lines.map(series)],
      bands: shown.between
        ? [{ series: [shown.between[0] + 1, shown.between[1] + 1], fill: () => faded(lineAt(there(shown.between)[1] + 1).color, 0.12) }]
        : [],
      hooks: { draw: [paintMarks, paintEnds, () => drawn()], setCursor: [showWords] },
    };
  }

  /** @type {(line: ChartLine) => uPlot.Series} */
  function series({ width, dash, stepped, alpha = 1 }) {
    /** @type {(u: uPlot, index: number) => string} */
    const color = (_, index) => lineAt(index).color;
    return {
      width,
      dash,
      alpha,
      stroke: color,
      spanGaps: true,
      paths: stepped ? there(uPlot.paths.stepped)({ align: 1 }) : there(uPlot.paths.linear)(),
      points: {
        show: (_, index) => Boolean(lineAt(index).marked?.length),
        size: 6,
        fill: color,
        width: 0,
        filter: (u, index) => (lineAt(index).marked ?? []).map((x) => u.data[0].indexOf(x)).filter((at) => at >= 0),
      },
    };
  }

  /** @type {(u: uPlot, axis: number, low: number, high: number) => number[]} */
  function xTicks(u, _, low, high) {
    const marks = shown.x.log ? logTicks(low, high) : ticks(low, high, u.bbox.width / devicePixelRatio / 90);
    return shown.x.whole ? marks.filter(Number.isInteger) : marks;
  }

  /** @type {(u: uPlot, axis: number, low: number, high: number) => number[]} */
  const yTicks = (u, _, low, high) => (shown.y.log ? logTicks(low, high) : ticks(low, high, u.bbox.height / devicePixelRatio / 36));
  /** @type {(u: uPlot, splits: number[]) => string[]} */
  const yLabels = (_, splits) =>
    splits.map((value) =>
      // on a logarithmic axis uPlot asks for no label with null
      value === null
        ? ""
        : shown.y.log
          ? figures(value * (shown.y.times ?? 1))
          : tickLabel(value * (shown.y.times ?? 1), (splits[1] - splits[0]) * (shown.y.times ?? 1)),
    );

  /**
   * The last values at the right edge, pushed apart where they would cover each other.
   * @type {(u: uPlot) => void}
   */
  function paintEnds(u) {
    const [ratio, { ctx: context, bbox }] = [devicePixelRatio, u];
    const bottom = (bbox.top + bbox.height) / ratio,
      right = (bbox.left + bbox.width) / ratio;
    const labels = shown.ends.map((end) => ({ ...end, y: u.valToPos(end.value, "y", true) / ratio })).sort((one, other) => one.y - other.y);
    for (let at = 1; at < labels.length; at++) labels[at].y = Math.max(labels[at].y, labels[at - 1].y + LABEL_PX);
    for (let at = labels.length - 1, floor = bottom; at >= 0; at--, floor -= LABEL_PX) labels[at].y = Math.min(labels[at].y, floor);
    context.save();
    context.scale(ratio, ratio);
    Object.assign(context, { textAlign: "left", textBaseline: "middle" });
    for (const { text, y, color, bold } of labels) {
      context.fillStyle = color;
      context.beginPath();
      context.arc(right + 6, y, bold ? 3 : 2, 0, 2 * Math.PI);
      context.fill();
      context.fillStyle = bold ? theme.text : theme.softText;
      context.font = bold ? `600 ${theme.font}` : theme.font;
      context.fillText(text, right + 13, y);
    }
    context.restore();
  }

  /**
   * Upright lines, their words side by side at the top, at the left of their line where there is no room at its right.
   * @type {(u: uPlot) => void}
   */
  function paintMarks(u) {
    if (!shown.marks?.length) return;
    const [ratio, { ctx: context, bbox }] = [devicePixelRatio, u];
    const [left, top, right, bottom] = [bbox.left, bbox.top, bbox.left + bbox.width, bbox.top + bbox.height].map((value) => value / ratio);
    context.save();
    context.scale(ratio, ratio);
    Object.assign(context, { textBaseline: "middle", font: theme.font, lineWidth: 1.5 });
    const ways = shown.marks.map(({ x }) => Math.min(right, Math.max(left, u.valToPos(x, "x", true) / ratio)));
    shown.marks.forEach(({ color }, index) => {
      context.strokeStyle = color;
      context.beginPath();
      context.moveTo(ways[index], top);
      context.lineTo(ways[index], bottom);
      context.stroke();
    });
    shown.marks.forEach(({ text, color }, index) => {
      // after all lines, none of which crosses them
      const at = ways[index],
        wide = context.measureText(text).width,
        fits = at + 6 + wide < right;
      const y = top + 8 + 14 * (index % 3);
      context.fillStyle = theme.surface;
      context.fillRect(fits ? at + 3 : at - 7 - wide, y - 7, wide + 6, 14);
      context.textAlign = fits ? "left" : "right";
      context.fillStyle = color;
      context.fillText(text, fits ? at + 6 : at - 6, y);
    });
    context.restore();
  }

  /** @type {(u: uPlot) => void} */
  function showWords(u) {
    const left = u.cursor.left ?? -1;
    const said = left >= 0 ? words(u.posToVal(left, "x")) : "";
    if (said) tip.show(said, left + u.bbox.left / devicePixelRatio, 24);
    else tip.hide();
  }

  /**
   * Moves the cursor as a pointer would, one step to the left (-1) or right (1); 0 puts it away.
   * @type {(by: number) => void}
   */
  function move(by) {
    if (!plot) return;
    const width = plot.bbox.width / devicePixelRatio;
    const at = plot.cursor.left ?? -1;
    const from = at >= 0 ? at : by > 0 ? -STEP_PX : width + STEP_PX;
    plot.setCursor(by ? { left: Math.min(width, Math.max(0, from + by * STEP_PX)), top: 10 } : { left: -10, top: -10 });
  }

  onResize(box, draw, cleanUp);
  onTheme(draw, cleanUp);
  cleanUp.add(() => plot?.destroy());
  return { draw, move };
}

/**
 * A hexadecimal colour that lets so much through.
 * @type {(color: string, share: number) => string}
 */
const faded = (color, share) =>
  /^#[0-9a-f]{6}$/i.test(color)
    ? color
      + Math.round(share * 255)
        .toString(16)
        .padStart(2, "0")
    : "transparent";

/**
 * Lowest and highest of values, with some room around.
 * @type {(values: Iterable<number | null>, room: number) => [number, number]}
 */
export function extent(values, room) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (value !== null && isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) [low, high] = [0, 1];
  const margin = (high - low || Math.abs(high) || 1) * room;
  return [low - margin, high + margin];
}

/**
 * uPlot skips null, not NaN.
 * @type {(values: Iterable<number>) => (number | null)[]}
 */
export const known = (values) => Array.from(values, (value) => (isFinite(value) ? value : null));
