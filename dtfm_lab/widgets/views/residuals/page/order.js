// The columns, and rows in the order of one of them.
/** @import { By, ColumnKey, Row } from "../types.d.ts" */

/** @type {{ key: ColumnKey, name: string }[]} */
export const COLUMNS = [
  { key: "label", name: "name" },
  { key: "predicted_s", name: "predicted" },
  { key: "measured_s", name: "measured" },
  { key: "error_s", name: "longer" },
  { key: "relative", name: "share" },
];

const BY_SIZE = new Set(["error_s", "relative"]); // of an error the size matters first, not the sign

/**
 * By "suspicion" rows stay as they are given.
 * @type {(rows: Row[], by: By, descending: boolean) => Row[]}
 */
export function sorted(rows, by, descending) {
  if (by === "suspicion") return rows;
  /** @type {(row: Row) => number} */
  const size = (row) => {
    const value = Number(row[by] ?? NaN);
    return !isFinite(value) ? -Infinity : BY_SIZE.has(by) ? Math.abs(value) : value;
  };
  /** @type {(one: Row, other: Row) => number} */
  const names = (one, other) => one.label.localeCompare(other.label, "en", { numeric: true });
  /** @type {(one: Row, other: Row) => number} */
  const compare = by === "label" ? names : (one, other) => size(one) - size(other) || -names(one, other);
  return [...rows].sort(descending ? (one, other) => compare(other, one) : compare);
}
