// What a run does at one moment: rings and bars on devices that compute, dots on pipes, cracks, states on their way.
import { alarm, kindColor, stageColor } from "shared/theme.js";
import { outline } from "./paint.js";
/** @import { Condition, Context, Drawn, Kind, Spot, Theme } from "../types.d.ts" */

const TURN = 2 * Math.PI;
export const RECOVERY_MS = 1800;
export const CRACK_MS = 1400;
const SQUARES = 4;

/**
 * A ring of the kind's hue and a bar that fills; `badge` is {x, y, radius, gpu}.
 * @type {(context: Context, badge: Omit<Drawn, "alpha">, kind: Kind, share: number, theme: Theme) => void}
 */
export function paintComputing(context, { x, y, radius, gpu, stage }, kind, share, theme) {
  context.strokeStyle = kindColor(kind, theme.dark);
  context.lineWidth = Math.max(1.5, radius * 0.22);
  outline(context, gpu, x, y, radius + context.lineWidth / 2 + 1, stage);
  context.stroke();
  const [wide, tall] = [radius * 1.2, Math.max(1.5, radius * 0.22)];
  context.fillStyle = "rgba(255, 255, 255, 0.45)";
  context.fillRect(x - wide / 2, y + radius * 0.55, wide, tall);
  context.fillStyle = "#ffffff";
  context.fillRect(x - wide / 2, y + radius * 0.55, wide * share, tall);
}

/**
 * A message at a share of its way, in its kind's hue.
 * @type {(context: Context, at: Spot, kind: Kind, radius: number, theme: Theme) => void}
 */
export function paintMessage(context, [x, y], kind, radius, theme) {
  context.beginPath();
  context.arc(x, y, radius, 0, TURN);
  context.fillStyle = kindColor(kind, theme.dark);
  context.fill();
  context.strokeStyle = theme.surface;
  context.lineWidth = 1;
  context.stroke();
}

/**
 * A device that is gone is hollow and cracked; one that is slowed has a red rim, one that is paused two bars.
 * @type {(context: Context, badge: Omit<Drawn, "alpha">, condition: Condition, theme: Theme) => void}
 */
export function paintCondition(context, { x, y, radius, gpu }, condition, theme) {
  const red = alarm(theme.dark);
  context.strokeStyle = red;
  if (condition === "killed") {
    outline(context, gpu, x, y, radius);
    context.fillStyle = theme.surface;
    context.fill();
    context.lineWidth = Math.max(1.2, radius * 0.2);
    context.setLineDash([3, 2]);
    context.stroke();
    context.setLineDash([]);
    context.beginPath();
    const zigzag = [
      [-0.6, -0.75],
      [0.05, -0.25],
      [-0.3, 0.05],
      [0.35, 0.3],
      [0.05, 0.8],
    ];
    zigzag.forEach(([dx, dy], at) => context[at ? "lineTo" : "moveTo"](x + dx * radius, y + dy * radius));
    context.lineWidth = Math.max(1, radius * 0.16);
    context.stroke();
  } else if (condition === "slow") {
    context.lineWidth = Math.max(1.5, radius * 0.24);
    outline(context, gpu, x, y, radius + 1.5);
    context.stroke();
  } else if (condition === "paused") {
    context.fillStyle = theme.surface;
    context.globalAlpha = 0.7;
    outline(context, gpu, x, y, radius);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = theme.text;
    for (const side of [-1, 1]) context.fillRect(x + side * radius * 0.32 - radius * 0.14, y - radius * 0.45, radius * 0.28, radius * 0.9);
  }
}

/**
 * A state on its way from a peer, as squares in the stage's colour; `at(share)` is a point of the way.
 * @type {(context: Context, at: (share: number) => Spot, since: number, stage: number, nStages: number, theme: Theme) => void}
 */
export function paintState(context, at, since, stage, nStages, theme) {
  context.fillStyle = stageColor(stage, nStages, theme.dark);
  context.strokeStyle = theme.surface;
  context.lineWidth = 1;
  for (let square = 0; square < SQUARES; square++) {
    const share = (since / RECOVERY_MS) * (1 + 0.12 * SQUARES) - 0.12 * square;
    if (share <= 0 || share >= 1) continue;
    const [x, y] = at(share);
    context.fillRect(x - 4, y - 4, 8, 8);
    context.strokeRect(x - 4, y - 4, 8, 8);
  }
}

/**
 * A way by length: `at(share)` is its point.
 * @type {(points: Spot[]) => (share: number) => Spot}
 */
export function alongWay(points) {
  const lengths = [0];
  for (let at = 1; at < points.length; at++) lengths.push(lengths[at - 1] + Math.hypot(points[at][0] - points[at - 1][0], points[at][1] - points[at - 1][1]));
  const whole = lengths.at(-1) || 1;
  return (share) => {
    const wanted = Math.min(1, Math.max(0, share)) * whole;
    let low = 0,
      high = lengths.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (lengths[middle] <= wanted) low = middle;
      else high = middle;
    }
    const t = (wanted - lengths[low]) / (lengths[high] - lengths[low] || 1);
    return [points[low][0] + t * (points[high][0] - points[low][0]), points[low][1] + t * (points[high][1] - points[low][1])];
  };
}
