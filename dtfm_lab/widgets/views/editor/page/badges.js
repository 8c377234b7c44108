// Stages on their devices. Each has an identity, its stage and replica, and flies when a plan puts it elsewhere.
import { isStill } from "shared/bus.js";
/** @import { Point, Tasks } from "shared/types.d.ts" */
/** @import { Badge } from "../types.d.ts" */

/** @typedef {{ device: string, stage: number, from: Point | null | undefined, since: number }} Held */

const FLIGHT_MS = 550;
/** @type {(t: number) => number} */
const easeOut = (t) => 1 - (1 - t) ** 3;

/**
 * `changed()` asks for a picture; `place(device)` says where a device is in the document.
 * @type {(changed: () => void) => { take: (tasks: Tasks, place: (device: string) => Point | undefined) => void, now: (place: (device: string) => Point | undefined) => Badge[] }}
 */
export function badges(changed) {
  /** @type {Map<string, Held>} */
  let held = new Map(); // "stage/replica" -> {device, from, since}

  /** @type {(badge: Held, now: number) => number} */
  const age = (badge, now) => Math.min(1, (now - badge.since) / FLIGHT_MS);

  return {
    /** `tasks` is {device: [stage, replica]}. */
    take(tasks, place) {
      const now = performance.now();
      const still = isStill();
      const next = new Map();
      for (const [device, [stage, replica]] of Object.entries(tasks)) {
        const key = `${stage}/${replica}`;
        const before = held.get(key);
        if (before && before.device === device) next.set(key, before);
        else {
          const from = before && !still ? where(before, place, now) : null;
          next.set(key, { device, stage, from, since: from ? now : -Infinity });
        }
      }
      held = next;
      changed();
    },
    /** {device, stage, x, y, flying} of every badge, in the document's pixels; asks for the next picture while any flies. */
    now(place) {
      const time = performance.now();
      /** @type {Badge[]} */
      const shown = [];
      let flying = false;
      for (const badge of held.values()) {
        const at = where(badge, place, time);
        if (!at) continue;
        const isFlying = age(badge, time) < 1;
        flying ||= isFlying;
        shown.push({ device: badge.device, stage: badge.stage, flying: isFlying, ...at });
      }
      if (flying) changed();
      return shown;
    },
  };

  /** @type {(badge: Held, place: (device: string) => Point | undefined, now: number) => Point | undefined} */
  function where(badge, place, now) {
    const to = place(badge.device);
    const t = age(badge, now);
    if (!to || !badge.from || t >= 1) return to && { x: to.x, y: to.y };
    const share = easeOut(t);
    return { x: badge.from.x + (to.x - badge.from.x) * share, y: badge.from.y + (to.y - badge.from.y) * share };
  }
}
