// Dragging a link's label changes the link: sideways its bandwidth, up and down (or with Shift) its latency.
import { h } from "./dom.js";
import { linkText } from "./links.js";
/** @import { CleanUps, Conditions, Listening, Model } from "./types.d.ts" */

const DECADE_PX = 130; // of drag for a factor of ten
const LEAST_MOVE_PX = 4; // below, a press is a click
const [TICK_MS, ACKNOWLEDGED_WITHIN_MS, KEYS_END_MS] = [50, 1500, 900];
const [LEAST_GBPS, MOST_GBPS, MOST_MS] = [0.001, 400, 2000];
const SLOWED = 10; // times slower than before the drag, from which the label is marked

/** @typedef {{ x: number, y: number, before: Conditions, now: Conditions | null, axis: "" | "latency" | "bandwidth", alongX?: boolean }} Drag */

/** @type {(value: number) => number} */
const rounded = (value) => Number(value.toPrecision(2));

/**
 * A number of Gbit/s or ms after a drag over so many pixels; latency begins at 0, so its steps are of (ms + 1).
 * @type {(gbps: number, px: number) => number}
 */
export const draggedGbps = (gbps, px) => rounded(Math.min(MOST_GBPS, Math.max(LEAST_GBPS, gbps * 10 ** (px / DECADE_PX))));
/** @type {(ms: number, px: number) => number} */
export const draggedMs = (ms, px) => rounded(Math.min(MOST_MS, Math.max(0, (ms + 1) * 10 ** (px / DECADE_PX) - 1)));

/**
 * Sends what was set; resolves when the kernel has taken it, or after a while where a front end does not tell.
 * @type {<T>(model: Model<T>) => Promise<void>}
 */
export function saved(model) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ACKNOWLEDGED_WITHIN_MS);
    /** @type {(message: { content: { execution_state: string } }) => void} */
    const status = ({ content }) => {
      if (content.execution_state === "idle") {
        clearTimeout(timer);
        resolve();
      }
    };
    model.save_changes({ iopub: { status } });
  });
}

/**
 * Sends the newest of many values, one after the other: at most one in 50 ms, and none before the kernel took the last.
 * `set(value)` sets traits; `begin()` and `end()` put one undo entry around all of them. For sliders as for drags.
 * @template T, V
 * @param {Model<T>} model
 * @param {(value: V) => void} set
 */
export function gesture(model, set) {
  let [waiting, open, ending] = [false, false, false];
  /** @type {{ value: V } | null} */
  let newest = null;

  async function pump() {
    waiting = true;
    while (newest) {
      const { value } = newest;
      newest = null;
      set(value);
      await Promise.all([saved(model), new Promise((resolve) => setTimeout(resolve, TICK_MS))]);
    }
    waiting = false;
    if (ending) finish();
  }

  function finish() {
    if (open) model.send({ kind: "gesture", phase: "end" });
    [open, ending] = [false, false];
  }

  return {
    begin() {
      ending = false;
      if (!open) model.send({ kind: "gesture", phase: "begin" });
      open = true;
    },
    /** @type {(value: V) => void} */
    put(value) {
      newest = { value };
      if (!waiting) pump();
    },
    end() {
      ending = true;
      if (!waiting) finish();
    },
    get open() {
      return open && !ending;
    },
  };
}

/**
 * The two lines of a label, "0.52 Gbit/s" and "96 ms"; the same nodes are kept, so that focus and drag stay. A `still`
 * one is not dragged.
 * @type {(name: string, still?: boolean) => { element: HTMLElement, write: (conditions: Conditions, about?: string) => void }}
 */
export function linkLabel(name, still = false) {
  const [first, second] = [h("b"), h("span")];
  /** @type {(conditions: Conditions, about?: string) => [string, string]} */
  const write = ({ bandwidth_gbps, latency_ms }, about = "") => {
    const [gbps, ms] = linkText(bandwidth_gbps, latency_ms);
    [first.textContent, second.textContent] = [about + gbps, about + ms];
    return [gbps, ms];
  };
  if (still) return { element: h("div", { class: "dtfm-link dtfm-link-still", title: name }, first, second), write };
  const element = h(
    "div",
    { class: "dtfm-link", role: "slider", tabindex: "0", "aria-valuemin": String(LEAST_GBPS), "aria-valuemax": String(MOST_GBPS) },
    first,
    second,
  );
  element.setAttribute("aria-label", `Link ${name}: left and right change its bandwidth, up and down its latency`);
  element.title = `${name}\nDrag sideways: bandwidth. Shift, or up and down: latency.`;
  return {
    element,
    write(conditions, about) {
      const [gbps, ms] = write(conditions, about);
      element.setAttribute("aria-valuenow", String(conditions.bandwidth_gbps));
      element.setAttribute("aria-valuetext", `${gbps}, ${ms}`);
    },
  };
}

/**
 * Makes a label a slider of its link.
 *
 * `link.read()` returns {latency_ms, bandwidth_gbps} as they are now, `link.set(conditions)` sets the traits of the
 * document that has these (without saving: that is done here, as fast as the kernel takes it), `link.show(conditions)`
 * writes them on the label while they change, `link.press(event)` is called for a click without a drag.
 * Escape takes back what the drag has done. Returns {dragging()}.
 * @type {<T, C extends Conditions>(label: HTMLElement, model: Model<T>, link: { read: () => C, set: (conditions: Conditions) => void, show: (conditions: Conditions) => void, press?: (event: Event) => void }, cleanUp: CleanUps) => { dragging: () => boolean }}
 */
export function linkDrag(label, model, link, cleanUp) {
  const sending = gesture(model, link.set);
  /** @type {Drag | null} */
  let drag = null; // {x, y, before, now, axis}
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let keysDone;

  /** @type {(next: Conditions, before: Conditions) => void} */
  function take(next, before) {
    drag && (drag.now = next);
    label.classList.toggle("dtfm-slowed", next.bandwidth_gbps < before.bandwidth_gbps / SLOWED);
    link.show(next);
    sending.put(next);
  }

  /** @type {(event: PointerEvent) => void} */
  function down(event) {
    if (event.button !== 0) return;
    event.stopPropagation();
    event.preventDefault();
    label.focus({ preventScroll: true });
    label.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, y: event.clientY, before: link.read(), now: null, axis: "" };
  }

  /** @type {(event: PointerEvent) => void} */
  function move(event) {
    if (!drag) return;
    const [dx, dy] = [event.clientX - drag.x, drag.y - event.clientY];
    if (!drag.axis) {
      if (Math.hypot(dx, dy) < LEAST_MOVE_PX) return;
      drag.axis = event.shiftKey ? "latency" : Math.abs(dy) > Math.abs(dx) ? "latency" : "bandwidth";
      drag.alongX = Math.abs(dx) >= Math.abs(dy);
      sending.begin();
      label.classList.add("dtfm-dragging");
    }
    const px = drag.alongX ? dx : dy;
    const { before } = drag;
    const next =
      drag.axis === "latency"
        ? { ...before, latency_ms: draggedMs(before.latency_ms, px) }
        : { ...before, bandwidth_gbps: draggedGbps(before.bandwidth_gbps, px) };
    if (!drag.now || next.latency_ms !== drag.now.latency_ms || next.bandwidth_gbps !== drag.now.bandwidth_gbps) take(next, before);
  }

  /** @type {(event: Event) => void} */
  function up(event) {
    if (!drag) return;
    const moved = drag.axis;
    drag = null;
    label.classList.remove("dtfm-dragging", "dtfm-slowed");
    if (moved) sending.end();
    else if (event.type === "pointerup") link.press?.(event);
  }

  /** @type {(event: KeyboardEvent) => void} */
  function key(event) {
    if (event.key === "Escape" && drag?.now) {
      take(drag.before, drag.before);
      up(event);
    } else {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[event.key];
      if (event.key === "Enter") link.press?.(event);
      else if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
      if (step) {
        const px = event.shiftKey ? 40 : 8;
        const before = link.read();
        sending.begin();
        take(
          {
            latency_ms: step[1] ? apart(before.latency_ms, draggedMs(before.latency_ms, step[1] * px), step[1] * 0.1) : before.latency_ms,
            bandwidth_gbps: step[0] ? draggedGbps(before.bandwidth_gbps, step[0] * px) : before.bandwidth_gbps,
          },
          before,
        );
        clearTimeout(keysDone);
        keysDone = setTimeout(sending.end, KEYS_END_MS);
      }
    }
    event.preventDefault();
    event.stopPropagation();
  }

  const endKeys = () => {
    clearTimeout(keysDone);
    if (sending.open && !drag) sending.end();
  };
  /** @type {Listening} */
  const on = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up, keydown: key, blur: endKeys };
  for (const [name, handler] of Object.entries(on)) label.addEventListener(name, handler);
  cleanUp.add(() => {
    clearTimeout(keysDone);
    if (sending.open) sending.end();
    for (const [name, handler] of Object.entries(on)) label.removeEventListener(name, handler);
  });
  return { dragging: () => Boolean(drag?.axis) };
}

/**
 * The new value, or a small step from the old where rounding has made them one.
 * @type {(before: number, after: number, step: number) => number}
 */
const apart = (before, after, step) => (after === before ? Math.max(0, rounded(before + step)) : after);
