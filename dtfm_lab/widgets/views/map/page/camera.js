// How far the picture is magnified and moved: at home, layout and box are the same.
/** @import { CleanUps } from "shared/types.d.ts" */
/** @import { Camera } from "../types.d.ts" */

const [LEAST, MOST] = [0.4, 14];
const FLIGHT_MS = 420;

/**
 * `changed()` asks for a repaint; `box` is what the picture fills.
 * @type {(box: HTMLElement, changed: () => void, isStill: () => boolean, cleanUp: CleanUps) => Camera}
 */
export function cameraOf(box, changed, isStill, cleanUp) {
  let [k, x, y] = [1, 0, 0];
  let flying = 0;
  cleanUp.add(() => cancelAnimationFrame(flying));

  /** @type {(nextK: number, nextX: number, nextY: number) => void} */
  function look(nextK, nextX, nextY) {
    [k, x, y] = [nextK, nextX, nextY];
    changed();
  }

  function stop() {
    cancelAnimationFrame(flying);
    flying = 0;
  }

  /** @type {(toK: number, toX: number, toY: number) => void} */
  function flyTo(toK, toX, toY) {
    stop();
    if (isStill()) return look(toK, toX, toY);
    const [fromK, fromX, fromY, begin] = [k, x, y, performance.now()];
    /** @type {(now: number) => void} */
    const step = (now) => {
      const t = Math.min(1, Math.max(0, (now - begin) / FLIGHT_MS));
      const eased = t * t * (3 - 2 * t);
      look(fromK + (toK - fromK) * eased, fromX + (toX - fromX) * eased, fromY + (toY - fromY) * eased);
      flying = t < 1 ? requestAnimationFrame(step) : 0;
    };
    flying = requestAnimationFrame(step);
  }

  return {
    toScreen: (px, py) => [px * k + x, py * k + y],
    toLayout: (px, py) => [(px - x) / k, (py - y) / k],
    /** What is under the pointer stays there. */
    zoom(factor, px = box.clientWidth / 2, py = box.clientHeight / 2) {
      stop();
      const next = Math.min(MOST, Math.max(LEAST, k * factor));
      look(next, px - ((px - x) * next) / k, py - ((py - y) * next) / k);
    },
    pan(dx, dy) {
      stop();
      look(k, x + dx, y + dy);
    },
    home: () => flyTo(1, 0, 0),
    /** Brings a place of the layout to the middle. */
    fly: (px, py, closer = Math.max(k, 2)) => flyTo(closer, box.clientWidth / 2 - px * closer, box.clientHeight / 2 - py * closer),
    get k() {
      return k;
    },
    /** How much cards are magnified: less than what is below them, so that close cities part. */
    get cardScale() {
      return k <= 1 ? k : Math.min(2.2, k ** 0.4);
    },
    get isHome() {
      return k === 1 && x === 0 && y === 0;
    },
    get flying() {
      return flying !== 0;
    },
  };
}
