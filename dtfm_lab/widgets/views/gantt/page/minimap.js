// All of the iteration in a narrow strip, with a frame around what is visible: drag it, or press beside it.
import { sharpCanvas } from "shared/canvas.js";
import { h } from "shared/dom.js";
import { sharesOf } from "./density.js";
import { Raster } from "./raster.js";
import { there } from "shared/there.js";
/** @import { CleanUps } from "shared/types.d.ts" */
/** @import { Lanes, State, View } from "../types.d.ts" */

/** @typedef {{ state: State, left: number, right: number, whole: number[] }} Content */

const LINE = 2; // pixels of a row before all are pressed into the strip

/**
 * `content()` is `{ state, left, right, whole }`, null while there is nothing; `version()` changes with what is drawn.
 * @type {(content: () => Content | null, version: () => number, view: View, cleanUp: CleanUps) => { element: HTMLElement, draw: () => void }}
 */
export function minimap(content, version, view, cleanUp) {
  const element = h("div", { class: "dtfm-minimap", "aria-hidden": "true", title: "The whole iteration: drag the frame" });
  const raster = new Raster();
  let painted = "";
  /** @type {Float32Array[] | null} */
  let shares = null; // of each kind over time, where bars cannot be told apart
  /** @type {number | null} */
  let grabbed = null;

  const { draw } = sharpCanvas(
    element,
    (context, width, height, theme) => {
      const now = content();
      if (!now || now.right <= now.left) return;
      const {
        state,
        left,
        right,
        whole: [first, last],
      } = now;
      const ratio = window.devicePixelRatio || 1;
      const scale = (right - left) / (last - first || 1);
      const key = [version(), left, right, ratio, theme.dark].join();
      const kinds = state.kindsIn(theme.dark);
      if (key !== painted) {
        painted = key;
        const computing = state.arranged.shown.flatMap(({ depth, rows }) => (depth ? [] : rows.slice(0, 1)));
        shares = sharesOf(state.upper, computing, { from: first, scale, width: Math.floor(right - left) });
        const shown = state.arranged.shown.filter(({ depth }) => !depth);
        raster.paint(
          {
            left,
            right,
            top: 0,
            rowsBottom: shown.length * LINE,
            from: first,
            to: last,
            scale,
            shown,
            rowsIn: (slot) => shown[slot].rows,
            heightOf: () => LINE,
            slotTop: (slot) => slot * LINE,
            lane: (slot) => ({ top: slot * LINE, height: LINE }),
            bandIn: (slot) => [slot * LINE, LINE],
          },
          oneLane,
          { kinds },
          state.perPipeline,
          { bars: state.upper },
          ratio,
        );
      }
      context.imageSmoothingEnabled = true;
      context.globalAlpha = 0.75;
      if (shares) stack(context, shares, kinds, left, height);
      else context.drawImage(raster.canvas, left, 3, right - left, height - 6);
      const [from, to] = view.visible().map((time) => left + (time - first) * scale);
      context.globalAlpha = 0.72;
      context.fillStyle = theme.surface;
      context.fillRect(left, 0, from - left, height);
      context.fillRect(to, 0, right - to, height);
      context.globalAlpha = 1;
      context.strokeStyle = view.isWhole() ? theme.border : theme.text;
      context.lineWidth = view.isWhole() ? 1 : 2;
      context.strokeRect(from, 1, Math.max(3, to - from), height - 2);
    },
    cleanUp,
  );

  /** @type {(x: number) => number} */
  const timeAt = (x) => {
    const {
      left,
      right,
      whole: [first, last],
    } = there(content());
    return first + ((x - left) / (right - left)) * (last - first);
  };
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !content()) return;
    const [from, to] = view.visible();
    const time = timeAt(event.offsetX);
    grabbed = time < from || time > to ? (to - from) / 2 : time - from; // where in the frame it is held
    element.setPointerCapture(event.pointerId);
    view.look(time - grabbed, time - grabbed + to - from);
  });
  element.addEventListener("pointermove", (event) => {
    if (grabbed === null || !content()) return;
    const [from, to] = view.visible();
    view.look(timeAt(event.offsetX) - grabbed, timeAt(event.offsetX) - grabbed + to - from);
  });
  for (const over of ["pointerup", "pointercancel"])
    element.addEventListener(over, () => {
      grabbed = null;
    });
  return { element, draw };
}

/**
 * The shares of each kind on each other, in the strip's height.
 * @type {(context: import("shared/types.d.ts").Context, shares: Float32Array[], kinds: { shades: string[] }[], left: number, height: number) => void}
 */
function stack(context, shares, kinds, left, height) {
  const top = new Float32Array(shares[0]?.length ?? 0);
  shares.forEach((share, kind) => {
    context.fillStyle = kinds[kind].shades[0];
    for (let x = 0; x < share.length; x++) {
      const high = share[x] * (height - 6);
      if (high > 0.05) context.fillRect(left + x, height - 3 - top[x] - high, 1, high);
      top[x] += high;
    }
  });
}

/** @type {Lanes} */
const oneLane = { of: () => 0, count: () => 1, countIn: () => 1 };
