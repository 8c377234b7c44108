// Lines, axes and labels of a run's losses, on a 2D context.
import { tickLabel, ticks } from "shared/axis.js";
import { BLUE, ORANGE, SKY, VERMILLION } from "shared/theme.js";

const MARGIN = { left: 58, top: 12, right: 74, bottom: 36 };
const FEW = 60; // points that are marked one by one

export function paintLosses(context, width, height, { training, heldOut, first, total, reference }, theme, pointerX) {
  const area = { left: MARGIN.left, top: MARGIN.top, right: width - MARGIN.right, bottom: height - MARGIN.bottom };
  const dark = isDark(theme.surface);
  const colors = { training: dark ? SKY : BLUE, heldOut: dark ? ORANGE : VERMILLION };
  const [low, high] = range(training, heldOut, reference);
  const last = first + Math.max(1, total, training.length - 1);
  const x = (at) => area.left + ((at - first) / (last - first)) * (area.right - area.left);
  const y = (loss) => area.bottom - ((loss - low) / (high - low)) * (area.bottom - area.top);

  paintAxes(context, area, { low, high, first, last, x, y }, theme);
  if (reference !== null) level(context, area, y(reference), theme);
  context.lineWidth = 2;
  context.strokeStyle = context.fillStyle = colors.heldOut;
  polyline(context, heldOut.filter(([, loss]) => isFinite(loss)).map(([at, loss]) => [x(at), y(loss)]), true);
  context.strokeStyle = context.fillStyle = colors.training;
  polyline(context, thinned(training, first, x, y), training.length <= FEW);
  paintEnds(context, area, ends(training, heldOut, reference, y, colors, theme), theme);
  return { readout: pointerX === null ? "" : readout(context, area, { training, heldOut, first, last }, pointerX, x, theme) };
}

function range(training, heldOut, reference) {
  let [low, high] = [Infinity, -Infinity];
  const take = (value) => { if (isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); } };
  training.forEach(take);
  for (const [, loss] of heldOut) take(loss);
  if (reference !== null) take(reference);
  if (low > high) [low, high] = [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

/** Of each pixel's points the lowest and the highest: what a thousand points look like is kept, at the cost of few. */
function thinned(values, first, x, y) {
  const points = [];
  let column = null;
  const flush = () => {
    if (!column) return;
    points.push([column.at, y(column.from)]);
    if (column.low !== column.high) points.push([column.at, y(column.low)], [column.at, y(column.high)], [column.at, y(column.to)]);
  };
  values.forEach((value, index) => {
    if (!isFinite(value)) return;
    const at = x(first + index);
    if (column && Math.floor(at) === Math.floor(column.at)) {
      column.low = Math.min(column.low, value);
      column.high = Math.max(column.high, value);
      column.to = value;
      return;
    }
    flush();
    column = { at, from: value, to: value, low: value, high: value };
  });
  flush();
  return points;
}

function polyline(context, points, marked) {
  if (!points.length) return;
  context.beginPath();
  for (const [at, value] of points) context.lineTo(at, value);
  context.stroke();
  for (const [at, value] of marked ? points : points.slice(-1)) {
    context.beginPath();
    context.arc(at, value, 3, 0, 2 * Math.PI);
    context.fill();
  }
}

function level(context, area, y, theme) {
  context.strokeStyle = theme.softText;
  context.lineWidth = 1;
  context.setLineDash([5, 4]);
  line(context, area.left, y, area.right, y);
  context.setLineDash([]);
}

function paintAxes(context, area, { low, high, first, last, x, y }, theme) {
  context.font = theme.font;
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const losses = ticks(low, high, (area.bottom - area.top) / 34);
  for (const loss of losses) {
    const at = Math.round(y(loss)) + 0.5;
    context.strokeStyle = theme.softBorder;
    line(context, area.left, at, area.right, at);
    context.fillStyle = theme.softText;
    context.fillText(tickLabel(loss, losses[1] - losses[0]), area.left - 6, at);
  }
  context.strokeStyle = theme.border;
  line(context, area.left, area.bottom + 0.5, area.right, area.bottom + 0.5);
  context.textAlign = "center";
  for (const iteration of ticks(first, last, (area.right - area.left) / 80).filter(Number.isInteger)) {
    const at = Math.round(x(iteration)) + 0.5;
    line(context, at, area.bottom, at, area.bottom + 4);
    context.fillText(iteration.toLocaleString("en-US"), at, area.bottom + 12);
  }
  context.fillText("iterations done", (area.left + area.right) / 2, area.bottom + 27);
  context.save();
  context.translate(10, (area.top + area.bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.fillText("loss (nats per token)", 0, 0);
  context.restore();
}

function ends(training, heldOut, reference, y, colors, theme) {
  const found = [[training[training.length - 1], colors.training], [heldOut.at(-1)?.[1], colors.heldOut], [reference, theme.softText]];
  return found.filter(([value]) => value !== null && isFinite(value)).map(([value, color]) => ({ text: value.toFixed(3), y: y(value), color }));
}

/** The last values at the right edge, pushed apart where they would cover each other. */
function paintEnds(context, area, labels, theme) {
  labels.sort((one, other) => one.y - other.y);
  for (let at = 1; at < labels.length; at++) labels[at].y = Math.max(labels[at].y, labels[at - 1].y + 14);
  for (let at = labels.length - 1, floor = area.bottom; at >= 0; at--, floor -= 14) labels[at].y = Math.min(labels[at].y, floor);
  context.textAlign = "left";
  for (const { text, y, color } of labels) {
    context.fillStyle = color;
    context.fillRect(area.right + 6, y - 1, 8, 2);
    context.fillStyle = theme.text;
    context.fillText(text, area.right + 18, y);
  }
}

function readout(context, area, { training, heldOut, first, last }, pointerX, x, theme) {
  if (pointerX < area.left - 4 || pointerX > area.right + 4) return "";
  const across = (pointerX - area.left) / (area.right - area.left);
  const index = Math.min(training.length - 1, Math.max(0, Math.round(across * (last - first))));
  context.strokeStyle = theme.softText;
  context.lineWidth = 1;
  line(context, x(first + index), area.top, x(first + index), area.bottom);
  const beside = heldOut.find(([done]) => done === first + index);
  return `${first + index} iterations done: training loss ${training[index].toFixed(4)} nats per token`
    + (beside ? `\nheld-out ${beside[1].toFixed(4)} nats per token` : "");
}

function isDark(color) {
  const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(color)?.[1];
  if (!hex) return false;
  const wide = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  return parseInt(wide.slice(2, 4), 16) < 128;
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
