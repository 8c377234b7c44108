// A run on the map: what each moment of the iteration does to badges and pipes, and what was done to devices.
import { isStill } from "shared/bus.js";
import { playbackAt } from "shared/playback.js";
import { CRACK_MS, RECOVERY_MS, alongWay, paintComputing, paintCondition, paintMessage, paintState } from "./running.js";
import { pairKey } from "./pairs.js";
import { there } from "shared/there.js";
/**
 * @typedef {object} Playing
 * @property {(nextRows: Float32Array<ArrayBuffer>, names: string[]) => void} play
 * @property {(time: Moment, regionOf: (name: string) => string | undefined) => boolean} tell
 * @property {(next: Record<string, Condition>, from: Record<string, string>, quietly?: boolean) => void} condition
 * @property {(context: Context, badges: Badge[], theme: Theme, nStages: number, suspects: Set<string>) => void} paint
 * @property {() => { device: string, kind: Kind, share: number }[]} computing
 * @property {() => void} forget
 * @property {Set<string>} averaging
 * @property {boolean} recovering
 */
/** @import { Badge, Condition, Context, Kind, Moment, Spot, Theme } from "../types.d.ts" */

const STANDS = ["killed", "paused"]; // what was measured before is still played, but these compute nothing

/**
 * `wayBetween(from, to)` gives points on the screen between two badges.
 * @type {(wayBetween: (from: Badge, to: Badge) => Spot[]) => Playing}
 */
export function playing(wayBetween) {
  let rows = new Float32Array(0);
  /** @type {string[]} */
  let devices = [];
  /** @type {ReturnType<typeof playbackAt> | null} */
  let moment = null; // {computing, messages} of now
  /** @type {Record<string, Condition>} */
  let conditions = {};
  /** @type {Record<string, string>} */
  let sources = {};
  /** @type {Set<string>} */
  let averaging = new Set();
  /** @type {Map<string, number>} */
  const recoveries = new Map(); // by device: when its state begins to come
  /** @type {Map<string, number>} */
  const cracks = new Map(); // by device: until when it is seen cracked, though its copy may be there in a tenth of that
  /** @type {Map<string, (share: number) => Spot>} */
  let ways = new Map();
  let [seenBadges, layoutOfWays] = [-1, ""];

  /** @type {(nextRows: Float32Array<ArrayBuffer>, names: string[]) => void} */
  function play(nextRows, names) {
    [rows, devices] = [nextRows, names ?? []];
    moment = null;
    averaging = new Set();
  }

  /**
   * Whether the set of pipes that average has changed.
   * @type {(time: Moment, regionOf: (name: string) => string | undefined) => boolean}
   */
  function tell(time, regionOf) {
    moment = time && rows.length ? playbackAt(rows, time.t_s) : null;
    /** @type {Set<string>} */
    const next = new Set();
    for (const { kind, source, target } of moment?.messages ?? []) {
      if (kind !== "averaging") continue;
      const [a, b] = [regionOf(devices[source]), regionOf(devices[target])];
      if (a && b && a !== b) next.add(pairKey(a, b));
    }
    const changed = next.size !== averaging.size || [...next].some((key) => !averaging.has(key));
    averaging = next;
    return changed;
  }

  /**
   * `quietly` where it was so before anybody looked.
   * @type {(next: Record<string, Condition>, from: Record<string, string>, quietly?: boolean) => void}
   */
  function condition(next, from, quietly) {
    const now = performance.now();
    for (const [name, what] of Object.entries(next ?? {})) {
      if (what === "killed" && conditions[name] !== "killed") cracks.set(name, now + CRACK_MS);
      if (what === "recovered" && conditions[name] !== "recovered" && !quietly && !isStill())
        recoveries.set(name, Math.max(now, cracks.get(name) ?? now + CRACK_MS));
      if (what !== "recovered") recoveries.delete(name);
    }
    [conditions, sources] = [next ?? {}, from ?? {}];
  }

  /**
   * The condition as shown: a device killed a moment ago is still cracked.
   * @type {(name: string, now: number) => Condition | ""}
   */
  const seenOf = (name, now) => (now < (recoveries.get(name) ?? -Infinity) ? "killed" : Object.hasOwn(conditions, name) ? conditions[name] : "");

  /**
   * `suspects` are names of devices that are drawn as those that somebody has slowed.
   * @type {(context: Context, badges: Badge[], theme: Theme, nStages: number, suspects: Set<string>) => void}
   */
  function paint(context, badges, theme, nStages, suspects) {
    const now = performance.now();
    const byName = new Map(badges.flatMap((badge) => [badge.name, ...(badge.members ?? [])].map((name) => [name, badge])));
    const at = `${badges[0]?.x},${badges[0]?.y},${badges.at(-1)?.x},${badges.at(-1)?.y},${badges[0]?.radius}`;
    if (at !== layoutOfWays || badges.length !== seenBadges) [ways, layoutOfWays, seenBadges] = [new Map(), at, badges.length];
    for (const { device, kind, share } of moment?.computing ?? []) {
      const badge = byName.get(devices[device]);
      if (badge && badge.seen > 0.5 && !STANDS.includes(seenOf(badge.name, now))) paintComputing(context, badge, kind, share, theme);
    }
    const radius = Math.max(2.5, Math.min(5, 160 / Math.sqrt(800 + 20 * (moment?.messages.length ?? 0))));
    for (const { source, target, kind, share } of moment?.messages ?? []) {
      const [from, to] = [byName.get(devices[source]), byName.get(devices[target])];
      if (!from || !to || from === to) continue;
      const key = `${source}/${target}`;
      if (!ways.has(key)) ways.set(key, alongWay(wayBetween(from, to)));
      paintMessage(context, there(ways.get(key))(share), kind, radius, theme);
    }
    for (const badge of badges) {
      const seen = seenOf(badge.name, now);
      const what = suspects.has(badge.name) && !STANDS.includes(seen) ? "slow" : seen;
      if (what && badge.seen > 0.5) paintCondition(context, badge, what, theme);
    }
    for (const [name, begin] of recoveries) {
      const badge = byName.get(name);
      const peer = byName.get(sources[name]) ?? badges.find((one) => one.stage === badge?.stage && one.name !== name && conditions[one.name] !== "killed");
      if (now - begin > RECOVERY_MS || !badge || !peer) {
        recoveries.delete(name);
        continue;
      }
      if (now < begin) continue;
      paintState(context, alongWay(wayBetween(peer, badge)), now - begin, badge.stage ?? 0, nStages, theme);
    }
  }

  return {
    play,
    tell,
    condition,
    paint,
    /** What computes at this moment, by names. */
    computing: () => (moment?.computing ?? []).map((one) => ({ ...one, device: devices[one.device] })),
    /** Devices have moved: paths between them are looked up again. */
    forget() {
      ways = new Map();
    },
    get averaging() {
      return averaging;
    },
    get recovering() {
      return recoveries.size > 0;
    },
  };
}
