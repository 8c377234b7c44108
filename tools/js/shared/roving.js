// One stop of the Tab key for many things alike; arrow keys go from one to the next.

/** @typedef {HTMLElement | SVGElement} Stop */

/** @type {Record<string, [number, number]>} */
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/**
 * `items()` lists what can be reached, row by row, `columns()` to a row. Call the returned function
 * after the items have changed: one of them keeps the stop.
 * @type {(container: Element, items: () => Stop[], columns: () => number) => () => void}
 */
export function roving(container, items, columns) {
  /** @type {(item: EventTarget) => void} */
  function stopAt(item) {
    for (const other of items()) other.tabIndex = other === item ? 0 : -1;
  }

  container.addEventListener("focusin", (event) => {
    const item = /** @type {Stop} */ (event.target);
    if (items().includes(item)) stopAt(item);
  });
  container.addEventListener("keydown", (given) => {
    const event = /** @type {KeyboardEvent} */ (given);
    const all = items();
    const at = all.indexOf(/** @type {Stop} */ (event.target));
    if (at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const to = target(event.key, at, all.length, columns());
    if (to === null) return;
    event.preventDefault(); // or the page would scroll
    event.stopPropagation();
    all[to].focus();
  });

  return () => {
    const all = items();
    if (all.length && !all.some((item) => item.tabIndex === 0)) stopAt(all[0]);
  };
}

/** @type {(key: string, at: number, n: number, columns: number) => number | null} */
function target(key, at, n, columns) {
  if (key === "Home") return 0;
  if (key === "End") return n - 1;
  if (!(key in STEPS)) return null;
  const [rows, steps] = STEPS[key];
  const to = at + rows * columns + steps;
  return to >= 0 && to < n ? to : at;
}
