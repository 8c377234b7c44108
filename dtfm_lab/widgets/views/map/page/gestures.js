// Pointer gestures: drag a device or a card by its name, pan on nothing, with Shift draw a box; the wheel magnifies.
import { targetOf } from "shared/dom.js";
import { isMeant } from "shared/wheel.js";
import { target, under } from "./hits.js";
import { there } from "shared/there.js";
/** @import { CleanUps, Spot } from "shared/types.d.ts" */
/** @import { Camera, CitySpot, Hand, Hit, Hits, Press } from "../types.d.ts" */

const STILL = 4; // pixels: a press that moves less is a click
const OVER = ".dtfm-map-float, .dtfm-link, .dtfm-host"; // what lies over the picture and takes its own clicks

/** @typedef {{ scene: () => Hits | null, cities: () => CitySpot[], camera: Camera, selected: () => Set<string>, tool: () => string, hasPlan: () => boolean, still: boolean }} Map */
/**
 * @typedef {object} Tell
 * @property {(names: string[], more: boolean) => void} chosen
 * @property {(names: string[]) => void} boxed
 * @property {(key: string) => void} pairChosen
 * @property {(name: string) => void} opened
 * @property {(device: string) => void} tapped
 * @property {() => void} missed
 * @property {(city: string) => void} added
 * @property {(a: string, b: string) => void} swapped
 * @property {(names: string[], city: string) => void} devicesMoved
 * @property {(from: string, city: string, hadPlace: boolean) => void} regionMoved
 * @property {(region: string) => void} emptied
 */

/**
 * `map` is {scene(), cities(), camera, selected(), tool(), hasPlan(), still}; `tell` says what was done.
 * @type {(root: HTMLElement, box: HTMLElement, map: Map, tell: Tell, changed: () => void, cleanUp: CleanUps) => Hand}
 */
export function gestures(root, box, map, tell, changed, cleanUp) {
  /** @type {Press | null} */
  let press = null;
  /** @type {{ x: number, y: number } | null} */
  let pointer = null;

  /** @type {(event: MouseEvent) => Spot} */
  const at = (event) => {
    const { left, top } = box.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };

  /** @type {(hit: Hit | null, event: PointerEvent) => Pick<Press, "kind" | "hit" | "names">} */
  function begin(hit, event) {
    if (event.button === 1 || map.still || map.tool() === "add" || !hit || hit.kind === "pair" || hit.kind === "more")
      return { kind: event.shiftKey && event.button === 0 && map.tool() !== "add" ? "box" : "pan", hit, names: [] };
    if (hit.kind === "region") return { kind: "region", hit, names: hit.card.devices.map(({ name }) => name) };
    const selected = map.selected();
    return { kind: "devices", hit, names: selected.has(hit.name) ? [...selected] : [hit.name] };
  }

  box.addEventListener("pointerdown", (event) => {
    if (targetOf(event).closest(OVER)) return;
    root.focus({ preventScroll: true });
    if (event.button > 1 || !map.scene()) return;
    if (event.button === 1) event.preventDefault();
    const start = at(event);
    press = { ...begin(under(there(map.scene()), ...start), event), start, now: start, button: event.button, moved: false, shift: event.shiftKey };
    box.setPointerCapture(event.pointerId);
  });

  box.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    pointer = targetOf(event).closest(OVER) ? null : { x, y };
    if (!press) return changed();
    const [dx, dy] = [x - press.now[0], y - press.now[1]];
    if (!press.moved && Math.hypot(x - press.start[0], y - press.start[1]) < STILL) return;
    press.moved = true;
    press.now = [x, y];
    if (press.kind === "pan") map.camera.pan(dx, dy);
    changed();
  });

  box.addEventListener("pointerup", (event) => {
    if (!press) return;
    const done = press;
    press = null;
    const [x, y] = at(event);
    if (done.moved) drop(done, x, y);
    else if (done.button === 0) click(done, x, y);
    changed();
  });
  box.addEventListener("pointercancel", () => {
    press = null;
    changed();
  });
  box.addEventListener("pointerleave", () => {
    if (!press) {
      pointer = null;
      changed();
    }
  });

  /**
   * The device that a dragged one would change places with, if a plan is there; null for hosts.
   * @type {(held: Press, x: number, y: number) => string | null}
   */
  function partner({ kind, names }, x, y) {
    if (kind !== "devices" || names.length !== 1 || !map.hasPlan()) return null;
    const hits = there(map.scene());
    const hit = under(hits, x, y);
    if (hit?.kind !== "device" || hit.name === names[0]) return null;
    // A host has the tasks of several devices, which have no single place to change with.
    return hits.badges.some(({ name, members }) => members && (name === hit.name || name === names[0])) ? null : hit.name;
  }

  /** @type {(done: Press, x: number, y: number) => void} */
  function drop(done, x, y) {
    const { kind, hit, names, start } = done;
    if (kind === "box") return tell.boxed(inBox(start, [x, y]));
    if (kind === "pan") return;
    const other = partner(done, x, y);
    if (other) return tell.swapped(names[0], other);
    const goal = target(there(map.scene()), map.cities(), x, y);
    if (!goal) tell.missed();
    else if (kind === "region") tell.regionMoved(hit?.name ?? "", goal.name, Boolean(hit?.card?.place));
    else tell.devicesMoved(names, goal.name);
  }

  /** @type {(done: Press, x: number, y: number) => void} */
  function click(done, x, y) {
    pick(done, x, y);
    tell.tapped(map.tool() !== "add" && done.hit?.kind === "device" && !done.shift ? done.hit.name : "");
  }

  /** @type {(done: Press, x: number, y: number) => void} */
  function pick({ hit, shift }, x, y) {
    if (map.tool() === "add") {
      const goal = target(there(map.scene()), map.cities(), x, y);
      return goal ? tell.added(goal.name) : tell.missed();
    }
    if (!hit) return tell.chosen([], shift);
    if (hit.kind === "pair") return tell.pairChosen(hit.key);
    if (hit.kind === "more") return tell.opened(hit.name);
    if (hit.kind === "region" && !hit.card.devices.length) return tell.emptied(hit.name);
    tell.chosen(hit.kind === "device" ? [hit.name] : hit.card.devices.map(({ name }) => name), shift);
  }

  /** @type {(from: Spot, to: Spot) => string[]} */
  function inBox([x0, y0], [x1, y1]) {
    /** @type {(place: { x: number, y: number }) => boolean} */
    const within = ({ x, y }) => x >= Math.min(x0, x1) && x <= Math.max(x0, x1) && y >= Math.min(y0, y1) && y <= Math.max(y0, y1);
    return there(map.scene())
      .badges.filter((badge) => badge.seen > 0.5 && within(badge))
      .map(({ name }) => name);
  }

  /** @type {(event: WheelEvent) => void} */
  const wheel = (event) => {
    if (!isMeant(event, root)) return;
    event.preventDefault();
    event.stopPropagation();
    map.camera.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0018)), ...at(event));
  };
  box.addEventListener("wheel", wheel, { passive: false });
  cleanUp.add(() => box.removeEventListener("wheel", wheel));

  return {
    get press() {
      return press?.moved ? press : null;
    },
    get pointer() {
      return pointer;
    },
    partner: () => (press?.moved ? partner(press, ...press.now) : null),
    cancel() {
      press = null;
      changed();
    },
  };
}
