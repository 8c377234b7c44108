// The columns, and rows in the order of one of them.

export const COLUMNS = [
  { key: "label", name: "name" },
  { key: "predicted_s", name: "predicted" },
  { key: "measured_s", name: "measured" },
  { key: "error_s", name: "longer" },
  { key: "relative", name: "share" },
];

const BY_SIZE = new Set(["error_s", "relative"]); // of an error the size matters first, not the sign

/** By "suspicion" rows stay as they are given. */
export function sorted(rows, by, descending) {
  if (by === "suspicion") return rows;
  const size = (row) => (row[by] === null || !isFinite(row[by]) ? -Infinity : BY_SIZE.has(by) ? Math.abs(row[by]) : row[by]);
  const names = (one, other) => one.label.localeCompare(other.label, "en", { numeric: true });
  const compare = by === "label" ? names : (one, other) => size(one) - size(other) || -names(one, other);
  return [...rows].sort(descending ? (one, other) => compare(other, one) : compare);
}
