// Pointer gestures: press on a device or a region and drag it, press on nothing and pan, with Shift draw a box.
import { target, under } from "./placement.js";

const STILL = 4; // pixels: a press that moves less is a click

/** `world` is {placement(), cities(), camera, selected(), tool()}; `tell` says what was done. */
export function gestures(root, box, world, tell, changed, cleanUp) {
  let press = null;
  let pointer = null;

  const at = (event) => {
    const { left, top } = box.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };

  function begin(hit, [x, y], event) {
    if (event.button === 1 || world.tool() === "add" || !hit || hit.kind === "line")
      return { kind: event.shiftKey && event.button === 0 && world.tool() !== "add" ? "box" : "pan", hit };
    if (hit.kind === "region") return { kind: "region", hit, names: hit.group.devices.map(({ name }) => name) };
    const selected = world.selected();
    return { kind: "devices", hit, names: selected.has(hit.name) ? [...selected] : [hit.name] };
  }

  box.addEventListener("pointerdown", (event) => {
    root.focus({ preventScroll: true });
    if (event.button > 1 || !world.placement()) return;
    if (event.button === 1) event.preventDefault();
    const start = at(event);
    press = { ...begin(under(world.placement(), ...start), start, event), start, now: start, button: event.button, moved: false, shift: event.shiftKey };
    box.setPointerCapture(event.pointerId);
  });

  box.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    pointer = { x, y };
    if (!press) return changed();
    const [dx, dy] = [x - press.now[0], y - press.now[1]];
    if (!press.moved && Math.hypot(x - press.start[0], y - press.start[1]) < STILL) return;
    press.moved = true;
    press.now = [x, y];
    if (press.kind === "pan") world.camera.pan(dx, dy);
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
  box.addEventListener("pointercancel", () => { press = null; changed(); });
  box.addEventListener("pointerleave", () => { if (!press) { pointer = null; changed(); } });

  function drop({ kind, hit, names, start }, x, y) {
    if (kind === "box") return tell.boxed(inBox(start, [x, y]));
    if (kind === "pan") return;
    const goal = target(world.placement(), world.cities(), world.camera, x, y);
    if (!goal) tell.missed();
    else if (kind === "region") tell.regionMoved(hit.name, goal.name, !hit.group.tray);
    else tell.devicesMoved(names, goal.name);
  }

  function click({ hit, shift }, x, y) {
    if (world.tool() === "add") {
      const goal = target(world.placement(), world.cities(), world.camera, x, y);
      return goal ? tell.added(goal.name) : tell.missed();
    }
    if (!hit) return tell.chosen([], shift);
    if (hit.kind === "line") return tell.pinned(hit);
    if (hit.kind === "region" && !hit.group.devices.length) return tell.emptied(hit.name);
    tell.chosen(hit.kind === "device" ? [hit.name] : hit.group.devices.map(({ name }) => name), shift);
  }

  function inBox([x0, y0], [x1, y1]) {
    const within = (x, y) => x >= Math.min(x0, x1) && x <= Math.max(x0, x1) && y >= Math.min(y0, y1) && y <= Math.max(y0, y1);
    const { dots, groups } = world.placement();
    const counted = groups.filter((group) => group.counted && within(group.x, group.y)).flatMap(({ devices }) => devices);
    return [...dots.filter(({ x, y }) => within(x, y)).map(({ device }) => device), ...counted].map(({ name }) => name);
  }

  // A wheel that is on its way down the notebook must not be caught by a map it happens to cross.
  const wheel = (event) => {
    if (!(event.ctrlKey || event.metaKey || root.contains(document.activeElement))) return;
    event.preventDefault();
    event.stopPropagation();
    world.camera.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0018)), ...at(event));
  };
  box.addEventListener("wheel", wheel, { passive: false });
  cleanUp.add(() => box.removeEventListener("wheel", wheel));

  return {
    get press() { return press?.moved ? press : null; },
    get pointer() { return pointer; },
    cancel() { press = null; changed(); },
  };
}
