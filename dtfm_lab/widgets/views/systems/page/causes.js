// The causes of an iteration's time, by system.
import { GREY } from "shared/theme.js";
/** @import { Cause, Row } from "../types.d.ts" */

/**
 * The causes that have a colour, and in grey those that only some system's own prediction names.
 * @type {(causes: Cause[], rows: Row[]) => Cause[]}
 */
export function allCauses(causes, rows) {
  const others = new Set(rows.flatMap(({ parts }) => parts.map(([name]) => name)));
  for (const { name } of causes) others.delete(name);
  return [...causes, ...[...others].map((name) => ({ name, color: GREY }))];
}
