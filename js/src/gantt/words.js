// What the pointer is told about a bar.
import { figures } from "../shared/axis.js";

const [NO_BAR, FIRST_MESSAGE] = [-1, -2]; // as in widgets/gantt.py

export function times({ start, end }, unit) {
  return `${moment(start, unit, false)} to ${moment(end, unit)} (${figures((end - start) * unit.perSecond)} ${unit.name})`;
}

function moment(time, unit, named = true) {
  return `${(time * unit.perSecond).toFixed(unit.name === "ms" ? 1 : 3)}${named ? ` ${unit.name}` : ""}`;
}

/** "forward 3", "forward 3 of stage 5" where devices hold several. */
export function named({ kind, microbatch, stage }, kinds, several) {
  const name = kinds[kind]?.name ?? `kind ${kind}`;
  return `${name}${microbatch >= 0 ? ` ${microbatch}` : ""}${several && stage !== undefined ? ` of stage ${stage}` : ""}`;
}

/** What a bar waited for last, one line; empty where nobody knows, or it waited for nothing. */
export function waited(id, { columns, messages, kinds, names, several, unit }) {
  const cause = columns.after[id] ?? NO_BAR;
  if (cause === NO_BAR) return "";
  if (cause <= FIRST_MESSAGE) {
    const at = FIRST_MESSAGE - cause;
    const message = named({ kind: messages.kind[at], microbatch: messages.microbatch[at] }, kinds);
    const arrived = moment(messages.arrives[at], unit);
    return messages.source[at] === columns.row[id]
      ? `sent once ${message} had reached ${names[messages.target[at]]} at ${arrived}`
      : `waited for ${message} from ${names[messages.source[at]]}, in at ${arrived}`;
  }
  const before = named({ kind: columns.kind[cause], microbatch: columns.microbatch[cause], stage: columns.stage[cause] }, kinds, several);
  const isMessage = kinds[columns.kind[cause]]?.message;
  return isMessage ? `queued behind ${before} until ${moment(columns.end[cause], unit)}` : `right after ${before}`;
}
