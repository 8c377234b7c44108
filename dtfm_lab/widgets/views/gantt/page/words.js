// The tooltip of a bar.
import { figures } from "shared/axis.js";
import { there } from "shared/there.js";
/** @import { AxisUnit, Bar, KindLook, Known, State } from "../types.d.ts" */

const [NO_BAR, FIRST_MESSAGE] = [-1, -2]; // as in views/gantt/columns.py

/**
 * "+0.4 s", "−12 ms": how much later, in the unit of the axis.
 * @type {(seconds: number, unit: AxisUnit) => string}
 */
const signed = (seconds, unit) => `${seconds < 0 ? "\u2212" : "+"}${figures(Math.abs(seconds) * unit.perSecond)} ${unit.name}`;

/** @type {(bar: { start: number, end: number }, unit: AxisUnit) => string} */
function times({ start, end }, unit) {
  return `${moment(start, unit, false)} to ${moment(end, unit)} (${figures((end - start) * unit.perSecond)} ${unit.name})`;
}

/** @type {(time: number, unit: AxisUnit, named?: boolean) => string} */
export function moment(time, unit, named = true) {
  const { decimals } = unit;
  const told = (time * unit.perSecond).toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return `${told}${named ? ` ${unit.name}` : ""}`;
}

/**
 * "forward 3", "forward 3 of stage 5" where devices hold several.
 * @type {(bar: { kind: number, microbatch: number, stage?: number }, kinds: KindLook[], several?: boolean) => string}
 */
function called({ kind, microbatch, stage }, kinds, several) {
  const name = kinds[kind]?.name ?? `kind ${kind}`;
  return `${name}${microbatch >= 0 ? ` ${microbatch}` : ""}${several && stage !== undefined ? ` of stage ${stage}` : ""}`;
}

/**
 * Lines about a bar: who does what and when, predicted and measured, and what it waited for.
 * `upper` and `lower` are the same action's predicted and measured bars, null where one is missing.
 * @type {(bars: { upper: Bar | null, lower: Bar | null }, known: Known) => string[]}
 */
export function describe({ upper, lower }, { names, kinds, several, unit, ...known }) {
  const bar = there(upper ?? lower);
  const head = `${names[bar.row]} · ${called(bar, kinds, several)}`;
  const why = upper ? waited(upper.id, { names, kinds, several, unit, ...known }) : "";
  if (!(upper && lower)) return [`${head} · ${times(bar, unit)}`, why].filter(Boolean);
  const difference = Number.isFinite(lower.late) ? `, ends ${signed(lower.late, unit)} against predicted` : "";
  return [head, `predicted ${times(upper, unit)}`, `measured ${times(lower, unit)}${difference}`, why].filter(Boolean);
}

/**
 * What a bar waited for last, in one line. Empty if unknown, or if it did not wait.
 * @type {(id: number, known: Known) => string}
 */
function waited(id, { columns, messages, kinds, names, several, unit }) {
  const cause = columns.after[id] ?? NO_BAR;
  if (cause === NO_BAR) return "";
  if (cause <= FIRST_MESSAGE) {
    const at = FIRST_MESSAGE - cause;
    const message = called({ kind: messages.kind[at], microbatch: messages.microbatch[at] }, kinds);
    const arrived = moment(messages.arrives[at], unit);
    return messages.source[at] === columns.row[id]
      ? `sent after ${message} reached ${names[messages.target[at]]} at ${arrived}`
      : `waited for ${message} from ${names[messages.source[at]]}, arrived at ${arrived}`;
  }
  const before = called({ kind: columns.kind[cause], microbatch: columns.microbatch[cause], stage: columns.stage[cause] }, kinds, several);
  const isMessage = kinds[columns.kind[cause]]?.message;
  return isMessage ? `queued behind ${before} until ${moment(columns.end[cause], unit)}` : `right after ${before}`;
}

const SOON = 1e-6; // of a second: rounding

/**
 * The devices that a message goes from and to, by the bar of its sending, or null if unknown.
 * @type {(bar: Bar, state: Pick<State, "messages" | "devices">) => string[] | null}
 */
export function linkOf({ row, kind, microbatch, end }, { messages, devices }) {
  const { source, target, leaves, kind: kinds, microbatch: numbers } = messages;
  for (let at = 0; at < leaves.length; at++)
    if (source[at] === row && kinds[at] === kind && numbers[at] === microbatch && Math.abs(leaves[at] - end) <= SOON + 1e-5 * end)
      return [devices[row], devices[target[at]]];
  return null;
}
