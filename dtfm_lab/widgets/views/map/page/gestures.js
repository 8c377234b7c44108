// Pointer gestures: drag a device or a card by its name, pan on nothing, with Shift draw a box; the wheel magnifies.
import { isMeant } from "shared/wheel.js";
import { target, under } from "./hits.js";

const STILL = 4; // pixels: a press that moves less is a click

/** `map` is {scene(), cities(), camera, selected(), tool(), hasPlan(), still}; `tell` says what was done. */
export function gestures(root, box, map, tell, changed, cleanUp) {
  let press = null;
  let pointer = null;

  const at = (event) => {
    const { left, top } = box.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };

  function begin(hit, event) {
    if (event.button === 1 || map.still || map.tool() === "add" || !hit || hit.kind === "pair" || hit.kind === "more")
      return { kind: event.shiftKey && event.button === 0 && map.tool() !== "add" ? "box" : "pan", hit };
    if (hit.kind === "region") return { kind: "region", hit, names: hit.card.devices.map(({ name }) => name) };
    const selected = map.selected();
    return { kind: "devices", hit, names: selected.has(hit.name) ? [...selected] : [hit.name] };
  }

  box.addEventListener("pointerdown", (event) => {
    if (event.target.closest(".dtfm-map-float, .dtfm-link")) return;
    root.focus({ preventScroll: true });
    if (event.button > 1 || !map.scene()) return;
    if (event.button === 1) event.preventDefault();
    const start = at(event);
    press = { ...begin(under(map.scene(), ...start), event), start, now: start, button: event.button, moved: false, shift: event.shiftKey };
    box.setPointerCapture(event.pointerId);
  });

  box.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    pointer = event.target.closest(".dtfm-map-float, .dtfm-link") ? null : { x, y };
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

  /** The device that a dragged one would change places with, if a plan is there. */
  function partner({ kind, names }, x, y) {
    if (kind !== "devices" || names.length !== 1 || !map.hasPlan()) return null;
    const hit = under(map.scene(), x, y);
    return hit?.kind === "device" && hit.name !== names[0] ? hit.name : null;
  }

  function drop(done, x, y) {
    const { kind, hit, names, start } = done;
    if (kind === "box") return tell.boxed(inBox(start, [x, y]));
    if (kind === "pan") return;
    const other = partner(done, x, y);
    if (other) return tell.swapped(names[0], other);
    const goal = target(map.scene(), map.cities(), x, y);
    if (!goal) tell.missed();
    else if (kind === "region") tell.regionMoved(hit.name, goal.name, Boolean(hit.card.place));
    else tell.devicesMoved(names, goal.name);
  }

  function click({ hit, shift }, x, y) {
    if (map.tool() === "add") {
      const goal = target(map.scene(), map.cities(), x, y);
      return goal ? tell.added(goal.name) : tell.missed();
    }
    if (!hit) return tell.chosen([], shift);
    if (hit.kind === "pair") return tell.pairChosen(hit.key);
    if (hit.kind === "more") return tell.opened(hit.name);
    if (hit.kind === "region" && !hit.card.devices.length) return tell.emptied(hit.name);
    tell.chosen(hit.kind === "device" ? [hit.name] : hit.card.devices.map(({ name }) => name), shift);
  }

  function inBox([x0, y0], [x1, y1]) {
    const within = ({ x, y }) => x >= Math.min(x0, x1) && x <= Math.max(x0, x1) && y >= Math.min(y0, y1) && y <= Math.max(y0, y1);
    return map
      .scene()
      .badges.filter((badge) => badge.seen > 0.5 && within(badge))
      .map(({ name }) => name);
  }

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
