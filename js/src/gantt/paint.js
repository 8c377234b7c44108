// Painting of bars, labels and the time axis.
import { tickLabel, ticks } from "../shared/axis.js";
import { inkOn } from "../shared/theme.js";

const SMALLEST = 0.6; // pixels: thinner bars of one kind melt into their neighbour
const THIN = 3; // pixels: bars so thin that touch are one rectangle, or their soft edges would fade them
const SEAM = 0.5; // pixels: closer than this is touching
const NO_NUMBER = -1;
const NUMBERED = 15; // pixels a bar needs to carry its microbatch number

/** Paints one half of every row; with an `outline` colour, bars get one. `perPipeline` as in `shadeOf`. */
export function paintBars(context, place, bars, kinds, perPipeline, half, outline) {
  // of each kind and shade: x, y, width, height, microbatch of every rectangle in a row
  const batches = kinds.map(({ shades }) => shades.map(() => []));
  for (let row = 0; row < bars.rows.length; row++) {
    for (const [kind, strip] of bars.rows[row])
      if (kind < kinds.length) collect(strip, place, place.band(row, half, kind), batches[kind], perPipeline);
  }
  batches.forEach((shades, kind) => shades.forEach((batch, shade) => {
    fill(context, batch, kinds[kind].shades[shade]);
    if (outline || kinds[kind].edge) outlined(context, batch, outline || kinds[kind].edge, outline ? 4 : 2);
    numbered(context, batch, inkOn(kinds[kind].shades[shade]));
  }));
}

/** Which of a kind's shades a stage has: the first for a device's first stage, and so on. */
export const shadeOf = (stage, nShades, perPipeline) =>
  perPipeline ? Math.min(nShades - 1, Math.floor(stage / perPipeline)) : 0;

export function fill(context, batch, color) {
  context.fillStyle = color;
  for (let at = 0; at < batch.length; at += 5) context.fillRect(batch[at], batch[at + 1], batch[at + 2], batch[at + 3]);
}

function collect(strip, place, [y, height], shades, perPipeline) {
  let reached = -Infinity;
  let batch = shades[0]; // the one that the bar before went to
  for (let bar = strip.indexAt(place.from); bar < strip.length && strip.start[bar] <= place.to; bar++) {
    const right = Math.min(place.right, place.x(strip.end[bar]));
    const left = Math.max(place.left, place.x(strip.start[bar]), reached);
    if (right - left <= THIN && left - reached < SEAM) {
      reached = Math.max(reached, right);
      batch[batch.length - 3] = reached - batch[batch.length - 5];
      batch[batch.length - 1] = NO_NUMBER; // it stands for several
      continue;
    }
    if (right < reached + SMALLEST) continue;
    const gap = right - left > 6 ? 1 : 0; // so that equal neighbours can be told apart
    const width = Math.max(SMALLEST, right - left - gap);
    batch = shades[shadeOf(strip.stage[bar], shades.length, perPipeline)];
    batch.push(left, y, width, height, strip.microbatch[bar]);
    reached = left + width + gap;
  }
}

function outlined(context, batch, color, narrowest) {
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = 0; at < batch.length; at += 5)
    if (batch[at + 2] > narrowest) context.rect(batch[at] + 0.5, batch[at + 1] + 0.5, batch[at + 2] - 1, batch[at + 3] - 1);
  context.stroke();
}

export function numbered(context, batch, ink) {
  context.fillStyle = ink;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let at = 0; at < batch.length; at += 5) {
    const [width, height, microbatch] = [batch[at + 2], batch[at + 3], batch[at + 4]];
    if (microbatch < 0 || height < 12 || width < NUMBERED + (microbatch > 99 ? 8 : 0)) continue;
    context.fillText(String(microbatch), batch[at] + width / 2, batch[at + 1] + height / 2 + 0.5);
  }
}

export function paintRows(context, place, labels, theme) {
  context.font = theme.font;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const every = Math.max(1, Math.ceil(13 / place.rowHeight)); // rows too thin for text share a label
  labels.forEach((label, row) => {
    const y = place.top + row * place.rowHeight;
    if (row % 2) {
      context.fillStyle = theme.raised;
      context.globalAlpha = 0.5;
      context.fillRect(place.left, y, place.right - place.left, place.rowHeight);
      context.globalAlpha = 1;
    }
    if (row % every) return;
    context.fillStyle = theme.text;
    context.fillText(fitted(context, label, place.left - 12), place.left - 7, y + place.rowHeight / 2);
  });
}

/** The whole chart decides the unit, so that zooming does not change it. */
export const axisUnit = (wholeSeconds, unit) =>
  unit === "s" && wholeSeconds < 1 ? { name: "ms", perSecond: 1000 } : { name: unit, perSecond: 1 };

export function paintAxis(context, place, unit, theme) {
  context.textBaseline = "middle";
  context.font = theme.font;
  context.lineWidth = 1;
  const [from, to] = [place.from * unit.perSecond, place.to * unit.perSecond];
  const marks = ticks(from, to, Math.max(2, (place.right - place.left) / 100));
  const step = marks.length > 1 ? marks[1] - marks[0] : 1;
  for (const mark of marks) {
    const x = Math.round(place.x(mark / unit.perSecond)) + 0.5;
    context.strokeStyle = theme.softBorder;
    context.beginPath();
    context.moveTo(x, place.top);
    context.lineTo(x, place.bottom + 5);
    context.stroke();
    context.fillStyle = theme.softText;
    const text = `${tickLabel(mark, step)} ${unit.name}`;
    const overhang = x + context.measureText(text).width / 2 > place.right + 10;
    context.textAlign = overhang ? "right" : "center";
    context.fillText(text, overhang ? place.right + 10 : x, place.bottom + 15);
  }
  context.strokeStyle = theme.border;
  context.strokeRect(place.left - 0.5, place.top - 0.5, place.right - place.left + 1, place.bottom - place.top + 1);
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
