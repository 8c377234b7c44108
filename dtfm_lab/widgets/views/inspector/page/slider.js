// A slider on a logarithmic scale, with its value as a number.
import { h } from "shared/dom.js";

const STEPS = 400;

/**
 * `begin()`, `move(value)` and `end()` frame one gesture, by pointer or by keys.
 * @type {(options: { label: string, unit: string, low: number, high: number, value: number, format: (value: number) => string, begin: () => void, move: (value: number) => void, end: () => void }) => HTMLElement}
 */
export function logSlider({ label, unit, low, high, value, format, begin, move, end }) {
  /** @type {(number: number) => number} */
  const at = (number) => Math.round((STEPS * Math.log(Math.min(high, Math.max(low, number)) / low)) / Math.log(high / low));
  /** @type {(step: number) => number} */
  const of = (step) => Number((low * (high / low) ** (step / STEPS)).toPrecision(3));
  const was = value;
  const said = h("output", {}, `${format(value)} ${unit}`);
  let inGesture = false,
    /** @type {ReturnType<typeof setTimeout> | undefined} */ resting;
  const stop = () => {
    clearTimeout(resting);
    if (inGesture) {
      inGesture = false;
      end();
    }
  };
  const input = h("input", {
    type: "range",
    min: 0,
    max: STEPS,
    step: 1,
    value: at(value),
    "aria-label": `${label} in ${unit}`,
    "aria-valuetext": `${format(value)} ${unit}`,
    oninput: () => {
      if (!inGesture) {
        inGesture = true;
        begin();
      }
      const number = of(Number(input.value));
      said.textContent = `${format(was)} → ${format(number)} ${unit}`;
      input.setAttribute("aria-valuetext", `${format(number)} ${unit}`);
      move(number);
    },
    onchange: () => {
      clearTimeout(resting);
      resting = setTimeout(stop, 350);
    }, // keys come in a row, each with its change
    onpointerup: stop,
  });
  return h("label", {}, h("span", {}, label), said, input);
}
