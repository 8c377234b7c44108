// A slider on a logarithmic scale, with its value as a number.
import { h } from "shared/dom.js";

const STEPS = 400;

/** `begin()`, `move(value)` and `end()` frame one gesture, by pointer or by keys. */
export function logSlider({ label, unit, low, high, value, format, begin, move, end }) {
  const at = (number) => Math.round((STEPS * Math.log(Math.min(high, Math.max(low, number)) / low)) / Math.log(high / low));
  const of = (step) => Number((low * (high / low) ** (step / STEPS)).toPrecision(3));
  const was = value;
  const said = h("output", {}, `${format(value)} ${unit}`);
  let inGesture = false,
    resting = 0;
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
