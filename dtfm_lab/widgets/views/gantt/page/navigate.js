// Zoom and pan by wheel, drag, buttons and keyboard.
import { targetOf } from "shared/dom.js";
import { isMeant } from "shared/wheel.js";
/** @import { CleanUps } from "shared/types.d.ts" */
/** @import { Place, View } from "../types.d.ts" */

const DEEPEST = 1e5; // times
const STILL = 4; // pixels: a press that moves less is a click

/**
 * `whole()` is all of the time there is; `changed(moving)` asks for a repaint; `clicked(event)` hears of presses that did
 * not drag; `scrolls()` says whether the wheel scrolls the rows.
 * @type {(root: HTMLElement, box: HTMLElement, whole: () => number[], place: () => Place | null, on: { changed: (moving: boolean) => void, clicked: (event: PointerEvent) => void, scrolls: () => boolean }, cleanUp: CleanUps) => View}
 */
export function navigation(root, box, whole, place, { changed, clicked, scrolls }, cleanUp) {
  /** @type {number[] | null} */
  let span = null; // null for all
  /** @type {{ x: number, y: number, span: number[], scale: number, dragged: boolean } | null} */
  let grabbed = null;

  /** @type {(from: number, to: number) => void} */
  function look(from, to) {
    const [first, last] = whole();
    const length = Math.min(last - first, Math.max((last - first) / DEEPEST, to - from));
    const start = Math.min(last - length, Math.max(first, from));
    span = length >= (last - first) * 0.9999 ? null : [start, start + length];
    changed(true);
  }

  /** @type {(factor: number, around?: number) => void} */
  function zoom(factor, around) {
    const [from, to] = visible();
    const centre = around ?? (from + to) / 2;
    look(centre - (centre - from) * factor, centre + (to - centre) * factor);
  }

  /** @type {(share: number) => void} */
  function shift(share) {
    const [from, to] = visible();
    look(from + share * (to - from), to + share * (to - from));
  }

  const visible = () => span ?? whole();
  const reset = () => {
    span = null;
    changed(false);
  };

  /** @type {(event: WheelEvent) => void} */
  const wheel = (event) => {
    const across = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const wanted = event.ctrlKey || event.metaKey || ((across || !scrolls()) && isMeant(event, root));
    const now = place();
    if (!wanted || !now) return;
    event.preventDefault();
    event.stopPropagation();
    if (across) shift((event.deltaX || event.deltaY) / 800);
    else zoom(Math.exp(event.deltaY * 0.002), now.time(event.clientX - box.getBoundingClientRect().left));
  };
  box.addEventListener("wheel", wheel, { passive: false });
  cleanUp.add(() => box.removeEventListener("wheel", wheel));

  box.addEventListener("pointerdown", (event) => {
    if (targetOf(event).closest(".dtfm-gantt-row")) return;
    const isOnScrollbar = targetOf(event).scrollHeight > targetOf(event).clientHeight && event.offsetX > targetOf(event).clientWidth;
    if (isOnScrollbar) return;
    root.focus({ preventScroll: true });
    const now = place();
    if (event.button !== 0 || !now) return;
    grabbed = { x: event.clientX, y: event.clientY, span: visible(), scale: now.scale, dragged: false };
    box.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointermove", (event) => {
    if (!grabbed) return;
    const pixels = event.clientX - grabbed.x;
    if (!grabbed.dragged && Math.hypot(pixels, event.clientY - grabbed.y) < STILL) return;
    grabbed.dragged = true;
    box.classList.add("dtfm-dragging");
    const moved = pixels / grabbed.scale;
    look(grabbed.span[0] - moved, grabbed.span[1] - moved);
  });
  /** @type {(event: PointerEvent) => void} */
  const release = (event) => {
    const wasClick = grabbed && !grabbed.dragged && event.type === "pointerup";
    grabbed = null;
    box.classList.remove("dtfm-dragging");
    if (wasClick) clicked(event);
  };
  box.addEventListener("pointerup", release);
  box.addEventListener("pointercancel", release);
  box.addEventListener("dblclick", reset);

  /** @type {Record<string, () => void>} */
  const KEYS = {
    "+": () => zoom(0.7),
    "=": () => zoom(0.7),
    "-": () => zoom(1 / 0.7),
    0: reset,
    ArrowLeft: () => shift(-0.15),
    ArrowRight: () => shift(0.15),
    ArrowUp: () => zoom(0.7),
    ArrowDown: () => zoom(1 / 0.7),
    Home: () => shift(-1e9),
    End: () => shift(1e9),
  };
  root.addEventListener("keydown", (event) => {
    if (targetOf(event).closest(".dtfm-gantt-row") && /^(Arrow|Home|End)/.test(event.key)) return;
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    KEYS[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });

  return { visible, look, zoom, reset, isWhole: () => span === null, dragging: () => Boolean(grabbed?.dragged) };
}
