// Where a device's time goes, on average: one thin bar, and its words in one line.
import { h } from "shared/dom.js";
import { kindColor } from "shared/theme.js";
/** @import { Kind } from "shared/types.d.ts" */
/** @import { Share } from "../types.d.ts" */

/** @type {Record<string, number>} */
const TONES = { ink: 0.95, dark: 0.5, middle: 0.3, light: 0.16 }; // of the ink on the page

/**
 * `show(shares, dark)` of `{name, share, tone}`, where a tone is a kind of action or how dark a grey is.
 * @type {() => { element: HTMLElement, show: (shares: Share[], dark: boolean) => void }}
 */
export function shareStrip() {
  const bar = h("div", { class: "dtfm-gantt-shares-bar", "aria-hidden": "true" });
  const words = h("div", { class: "dtfm-gantt-shares-words" });
  const element = h("div", { class: "dtfm-gantt-shares" }, bar, words);

  /** @type {(shares: Share[], dark: boolean) => void} */
  function show(shares, dark) {
    /** @type {(tone: string) => string} */
    const color = (tone) =>
      tone in TONES ? `color-mix(in srgb, var(--dtfm-text) ${100 * TONES[tone]}%, var(--dtfm-surface))` : kindColor(/** @type {Kind} */ (tone), dark);
    bar.replaceChildren(...shares.map(({ share, tone }) => h("i", { style: `flex:${share} 0 0;background:${color(tone)}` })));
    words.replaceChildren(
      ...shares.map(({ name, share, tone }) =>
        h("span", {}, h("i", { style: `background:${color(tone)}` }), `${name} `, h("b", {}, share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`)),
      ),
    );
    words.title = `Shares of the iteration: ${shares.map(({ name, share }) => `${name} ${(100 * share).toFixed(1)} %`).join(" · ")}`;
  }

  return { element, show };
}
