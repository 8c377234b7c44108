// What runs, as the canvas shows it: dots on their lines, a state that comes to a device that has recovered.
import { isStill } from "shared/bus.js";
import { stageColor } from "shared/theme.js";
import { placeOn } from "./geometry.js";
import { pairKey } from "./scene.js";
import { there } from "shared/there.js";
/** @import { Point } from "shared/types.d.ts" */
/** @import { Dot, Laid, Running, Scene, SceneLine } from "../types.d.ts" */

const STATE_MS = 1800;
const CRACK_MS = 1400; // a killed device stays cracked this long, although its copy may take over in a tenth of that
const SQUARES = 5;

/**
 * Places {x, y, kind} on the screen of messages {source, target, kind, share}, on the lines that are drawn.
 * @type {(messages: Running["messages"], scene: Scene, laid: Laid) => Dot[]}
 */
export function travelling(messages, scene, laid) {
  const regions = new Map(scene.devices.map(({ name, region }) => [name, region]));
  const drawn = linesByEnds(scene);
  return messages.flatMap(({ source, target, kind, share }) => {
    const place = wayBetween(source, target, share, scene, laid, regions, drawn);
    return place ? [{ ...place, kind, share }] : [];
  });
}

/** @type {(scene: Scene) => Map<string, SceneLine>} */
function linesByEnds(scene) {
  const drawn = new Map();
  for (const line of scene.lines) drawn.set(`${line.kind}${pairKey(line.ends)}`, line);
  return drawn;
}

/** @type {(source: string, target: string, share: number, scene: Scene, laid: Laid, regions: Map<string, string>, drawn: Map<string, SceneLine>) => Point | null} */
function wayBetween(source, target, share, scene, laid, regions, drawn) {
  const [from, to] = [laid.frames.get(source), laid.frames.get(target)];
  if (!from || !to) return null;
  const [start, end] = [source, target].map((name) => scene.hostOf.get(name) ?? name);
  /** @type {(line: SceneLine, first: string, part: number) => Point} */
  const on = (line, first, part) => placeOn(there(laid.curves.get(line.id)), line.ends[0] === first ? part : 1 - part);
  const link = start === end ? null : drawn.get(`link${pairKey([start, end])}`);
  if (link && laid.curves.has(link.id)) return on(link, start, share);
  const [a, b] = [regions.get(start) ?? "", regions.get(end) ?? ""];
  const pipe = a && b && a !== b ? drawn.get(`pair${pairKey([a, b])}`) : null;
  if (!pipe || !laid.curves.has(pipe.id)) return between(from, to, share);
  if (share < 0.15) return between(from, on(pipe, a, 0), share / 0.15); // to the pipe, through it, and from it
  if (share > 0.85) return between(on(pipe, a, 1), to, (share - 0.85) / 0.15);
  return on(pipe, a, (share - 0.15) / 0.7);
}

/** @type {(a: Point, b: Point, t: number) => Point} */
const between = (a, b, t) => ({ x: a.x + (b.x - a.x) * t, y: a.y + (b.y - a.y) * t });

/**
 * Remembers devices that were killed and recovered: first the crack, then the state arriving from a peer.
 * @type {(changed: () => void) => { take: (conditions: Record<string, string>, restoredFrom: Record<string, string>) => void, seen: (conditions: Record<string, string>) => Record<string, string>, now: (scene: Scene, laid: Laid, dark: boolean) => Dot[] }}
 */
export function recoveries(changed) {
  let [since, cracked] = [new Map(), new Map()];
  /** @type {Record<string, string>} */
  let peers = {};
  return {
    take(conditions, restoredFrom) {
      peers = restoredFrom;
      const now = performance.now();
      const next = new Map(),
        held = new Map();
      for (const [name, condition] of Object.entries(conditions)) {
        if (condition === "killed") held.set(name, cracked.get(name) ?? now + CRACK_MS);
        if (condition === "recovered") next.set(name, since.get(name) ?? Math.max(now, cracked.get(name) ?? now + CRACK_MS));
      }
      [since, cracked] = [next, held];
    },
    /** The conditions as shown: a device killed a moment ago is still cracked. */
    seen(conditions) {
      const now = performance.now();
      const late = [...since].filter(([, begin]) => now < begin && !isStill()).map(([name]) => [name, "killed"]);
      return late.length ? { ...conditions, ...Object.fromEntries(late) } : conditions;
    },
    /** {x, y, kind: "state", share: colour} of each square under way. */
    now(scene, laid, dark) {
      const time = performance.now();
      /** @type {Dot[]} */
      const squares = [];
      for (const [name, start] of since) {
        const age = (time - start) / STATE_MS;
        const task = scene.tasks[name];
        if (age > 1 || !task || isStill()) continue;
        const peer = peers[name] ?? Object.keys(scene.tasks).find((one) => one !== name && scene.tasks[one][0] === task[0] && !since.has(one));
        const [from, to] = [laid.frames.get(peer ?? ""), laid.frames.get(name)];
        if (!from || !to) continue;
        for (let square = 0; square < SQUARES; square++) {
          const share = age * 1.6 - square * 0.14;
          if (share > 0 && share < 1) squares.push({ ...between(from, to, share), kind: "state", share: stageColor(task[0], scene.nStages, dark) });
        }
        changed();
      }
      return squares;
    },
  };
}
