// Badges that keep their identity: a task (stage, replica) glides to its new device, an idle device to its new place.
/** @import { Moving, Parts, Sprite } from "../types.d.ts" */

export const GLIDE_MS = 550;
/** @type {(value: (part: keyof Parts) => number) => Parts} */
const partsOf = (value) => /** @type {Parts} */ (Object.fromEntries(PARTS.map((part) => [part, value(part)])));
/** @type {(t: number) => number} */
const easeOut = (t) => 1 - (1 - t) ** 3;
/** @type {(keyof Parts)[]} */
const PARTS = ["cx", "cy", "dx", "dy", "size", "seen"]; // the card's middle, the offset in it, pixels, opacity

/**
 * `place(wanted, glide)` takes [{key, name, cx, cy, dx, dy, size, seen, ...}]; `at(now)` gives them where they are now.
 * Without `glide` they jump.
 * @type {(isStill: () => boolean) => { place: (wanted: Sprite[], glide: boolean) => void, at: (now: number) => Moving[], readonly moving: boolean }}
 */
export function sprites(isStill) {
  /** @type {Map<string, Sprite & { from: Parts, to: Parts }>} */
  let shown = new Map();
  let begin = 0;

  /** @type {(now: number) => number} */
  const share = (now) => (begin ? easeOut(Math.min(1, Math.max(0, (now - begin) / GLIDE_MS))) : 1);
  /** @type {(sprite: { from: Parts, to: Parts }, t: number) => Parts} */
  const between = (sprite, t) => partsOf((part) => sprite.from[part] + (sprite.to[part] - sprite.from[part]) * t);

  /** @type {(wanted: Sprite[], glide: boolean) => void} */
  function place(wanted, glide) {
    const now = performance.now();
    const t = share(now);
    const moving =
      glide
      && !isStill()
      && wanted.some((one) => {
        const before = shown.get(one.key);
        return before && PARTS.some((part) => Math.abs(before.to[part] - one[part]) > 0.01);
      });
    shown = new Map(
      wanted.map((one) => {
        const to = partsOf((part) => one[part]);
        const before = shown.get(one.key);
        return [one.key, { ...one, to, from: moving && before ? between(before, t) : to }];
      }),
    );
    begin = moving ? now : 0;
  }

  return {
    place,
    at(now) {
      const t = share(now);
      if (t >= 1) begin = 0;
      return [...shown.values()].map((sprite) => ({
        ...sprite,
        ...(t < 1 ? between(sprite, t) : sprite.to),
        moving: t < 1 && PARTS.slice(0, 4).some((part) => sprite.from[part] !== sprite.to[part]),
      }));
    },
    get moving() {
      return begin > 0;
    },
  };
}

/**
 * Opacities that follow what is pointed at within 150 ms; `of(key, wanted, now)` is that of one thing.
 * @type {(isStill: () => boolean) => { frame: (now: number) => void, of: (key: string, wanted: number) => number, readonly settled: boolean }}
 */
export function fading(isStill) {
  /** @type {Map<string, number>} */
  const known = new Map();
  let before = 0,
    step = 0;
  let settled = true;
  return {
    frame(now) {
      step = isStill() ? 1 : Math.min(0.3, (now - before) / 150);
      before = now;
      settled = true;
    },
    of(key, wanted) {
      const now = known.get(key) ?? 1;
      const next = Math.abs(wanted - now) <= step ? wanted : now + Math.sign(wanted - now) * step;
      if (next !== wanted) settled = false;
      if (next === 1) known.delete(key);
      else known.set(key, next);
      return next;
    },
    get settled() {
      return settled;
    },
  };
}
