// A canvas that is always as sharp as the screen and as large as its box.
import { h, oncePerFrame, onResize } from "./dom.js";
import { onTheme, readTheme } from "./theme.js";
/** @import { CleanUps, Context, Paint } from "./types.d.ts" */

/**
 * `paint(context, width, height, theme)` is called at most once a frame: when `draw()` was asked
 * for, when the box changes its size, and when the notebook changes its theme.
 * @type {(box: HTMLElement, paint: Paint, cleanUp: CleanUps) => { element: HTMLCanvasElement, draw: () => void }}
 */
export function sharpCanvas(box, paint, cleanUp) {
  const element = h("canvas", { class: "dtfm-canvas" });
  box.append(element);
  const context = /** @type {Context} */ (element.getContext("2d"));

  /** @type {[number, number] | null} */
  let size = null; // to ask for it lays the page out, so it is not asked for at every frame

  function repaint() {
    size ??= [box.clientWidth, box.clientHeight];
    const [width, height] = size;
    if (!width || !height) {
      size = null;
      return;
    } // hidden, or without a style sheet for a moment, or not in the page yet
    const ratio = window.devicePixelRatio || 1;
    const [pixelWidth, pixelHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (element.width !== pixelWidth || element.height !== pixelHeight) {
      element.width = pixelWidth;
      element.height = pixelHeight;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    paint(context, width, height, readTheme(box));
  }

  const draw = oncePerFrame(repaint, cleanUp);
  onResize(
    box,
    () => {
      size = null;
      draw();
    },
    cleanUp,
  );
  onTheme(draw, cleanUp);
  return { element, draw };
}

/**
 * A small box of text that follows the pointer and stays inside `box`.
 * @type {(box: HTMLElement) => { show: (text: string, x: number, y: number) => void, hide: () => void }}
 */
export function tooltip(box) {
  const element = h("div", { class: "dtfm-tooltip", role: "tooltip", hidden: true });
  box.append(element);
  return {
    show(text, x, y) {
      element.textContent = text;
      element.hidden = false;
      const left = Math.min(x + 14, box.clientWidth - element.offsetWidth - 4);
      const below = y + 16 + element.offsetHeight < box.clientHeight;
      element.style.left = `${Math.max(4, left)}px`;
      element.style.top = `${below ? y + 16 : Math.max(2, y - element.offsetHeight - 10)}px`;
    },
    hide() {
      element.hidden = true;
    },
  };
}
