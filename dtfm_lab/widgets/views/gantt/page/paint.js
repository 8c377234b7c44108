// Labels, the backs of rows, and the time axis.
import { tickLabel, ticks } from "shared/axis.js";

const LABEL = 13; // pixels of height that a row needs for its label

/** Backs and labels of rows, those of selected devices lit up, and where groups begin. */
export function paintRows(context, place, labels, lit, theme) {
  context.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(LABEL / place.rowHeight)); // rows too thin for text share a label
  place.shown.forEach((row, slot) => {
    const y = place.slotTop(slot);
    if (lit(row)) {
      context.fillStyle = theme.brand;
      context.globalAlpha = 0.16;
      context.fillRect(0, y, place.right, place.rowHeight);
      context.globalAlpha = 1;
      context.fillRect(0, y, 3, place.rowHeight);
    } else if (slot % 2) {
      context.fillStyle = theme.raised;
      context.globalAlpha = 0.5;
      context.fillRect(place.left, y, place.right - place.left, place.rowHeight);
      context.globalAlpha = 1;
    }
    if (slot % every === 0 || lit(row)) {
      context.textAlign = "right";
      context.font = lit(row) ? `600 ${theme.font}` : theme.font;
      context.fillStyle = theme.text;
      context.fillText(fitted(context, labels[row] ?? `row ${row}`, place.left - 14), place.left - 7, y + place.rowHeight / 2);
    }
  });
  for (const [slot, heading] of place.begins) {
    const y = place.slotTop(slot);
    if (y === undefined || (slot === 0 && !heading)) continue;
    context.fillStyle = theme.border;
    context.fillRect(heading ? 0 : place.left, Math.round(y) - 0.5, place.right - (heading ? 0 : place.left), 1);
    if (!heading) continue;
    context.font = `600 ${theme.font}`;
    context.textAlign = "left";
    context.fillStyle = theme.softText;
    context.fillText(heading, 8, y - place.headingHeight / 2);
  }
  context.font = theme.font;
}

/** The whole chart decides the unit and how fine a moment is told, so that zooming does not change them. */
export function axisUnit(wholeSeconds, unit) {
  const [name, perSecond, decimals] = unit !== "s" || wholeSeconds >= 1 ? [unit, 1, 5] : wholeSeconds >= 1e-3 ? ["ms", 1e3, 3] : ["\u00b5s", 1e6, 3];
  const power = Math.floor(Math.log10(wholeSeconds * perSecond || 1));
  return { name, perSecond, decimals: Math.max(0, Math.min(perSecond > 1 ? 6 : 3, decimals - power)) };
}

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
  context.strokeRect(place.left - 0.5, place.top - 0.5, place.right - place.left + 1, place.rowsBottom - place.top + 1);
}

export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
