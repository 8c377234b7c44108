// Everything on the map at one moment: cards, pipes, badges, labels, and which of them are lit.
import { isStill } from "shared/bus.js";
import { pulsing } from "shared/pulse.js";
import { fading, sprites } from "./sprites.js";
import { labelPlaces, route } from "./routes.js";
import { layoutOf } from "./layout.js";
import { nStagesOf, placesOf } from "shared/tasks.js";
import { pairKey, pairsOf, tasksOf, usesOf, worthDrawing } from "./pairs.js";
import { HOST, paintBadge, paintBound, paintCards, paintPipes, paintRing, paintSeat } from "./paint.js";
import { playing } from "./playing.js";
import { there } from "shared/there.js";
/** @import { Around, Badge, Box, Camera, Card, Device, Document, Facts, Filled, GlobeFor, Highlight, Hits, Layout, Moving, Pair, Pairs, Pipe, Place, Point, Pointed, Region, Sprite, Spot, Tag, Tasks, Theme, Uses, Way, Context, Moment } from "../types.d.ts" */

const MOST_LABELS = 16; // pipes in use; where there are more, only those that are asked for have labels
const MOST_SLOWEST = 6;
const LEAST = 60; // pixels of a box that anything is drawn in
const FADED = 0.28;
const BADGE = 0.43; // of a cell: a badge's radius

/**
 * What stands on the map, and what it looks like.
 * @param {Around} view
 */
export function sceneOf(view) {
  const { model, camera } = view;
  const [badgeSprites, cardSprites, fade] = [sprites(isStill), sprites(isStill), fading(isStill)];
  /** @type {Region[]} */
  let regions = [];
  /** @type {Pairs} */
  let pairs = new Map();
  /** @type {Pipe[]} */
  let drawn = [];
  /** @type {Uses} */
  let uses = new Map();
  /** @type {Tasks} */
  let tasks = {};
  /** @type {NonNullable<Highlight["cells"]>} */
  let cells = {}; // tasks of the devices of each host
  let layout = /** @type {Layout | null} */ (null);
  let [layoutKey, nStages] = ["", 1];
  /** @type {[number, number]} */
  let size = [0, 0];
  let open = /** @type {string | null} */ (null);
  let lit = /** @type {Pointed} */ (null);
  /** @type {Map<string, Spot[]>} */
  let ways = new Map(); // points of pipes of this layout, by key
  /** @type {Map<string, Tag>} */
  let tags = new Map(); // places of labels of this layout, by key
  /** @type {Map<string, string>} */
  let regionOf = new Map();
  /** @type {Set<string>} */
  let slow = new Set(); // devices that are suspected of being slow
  /** @type {string[]} */
  let binds = []; // the device, or both ends of the link, that limits the plan
  const beat = pulsing();
  /** @type {Set<string>} */
  let absent = new Set(); // devices that are away at the moment that is looked at
  /** @type {Badge[]} */
  let badges = [];
  const run = playing(wayBetween);

  /** @type {(document: Document, filled: Filled[], placeOf: (name: string) => Place | null) => Region[]} */
  function understand(document, filled, placeOf) {
    /** @type {Map<string, Device[]>} */
    const members = new Map(document.regions.map(({ name }) => [name, []]));
    for (const device of document.devices) {
      if (!members.has(device.region)) members.set(device.region, []);
      there(members.get(device.region)).push(device);
    }
    regions = [...members].map(([name, devices]) => ({ name, devices, place: name ? placeOf(name) : null }));
    // Devices of a host are where their host is.
    regionOf = new Map(document.devices.flatMap(({ name, region, members = [] }) => [name, ...members].map((one) => [one, region])));
    renumber(document, filled);
    return regions;
  }

  /** @type {(document: Document, filled?: Filled[]) => void} */
  function renumber(document, filled = model.get("filled")) {
    pairs = pairsOf(
      document,
      filled,
      regions.filter(({ name, devices }) => name && devices.length).map(({ name }) => name),
    );
    drawn = drawn.filter(({ key }) => pairs.has(key)).map((pair) => ({ ...pair, ...there(pairs.get(pair.key)) }));
  }

  /**
   * Cards are placed again if regions, counts or the box have changed.
   * @type {(width: number, height: number, known: Place[], glide: boolean, globeFor: GlobeFor) => void}
   */
  function place(width, height, known, glide, globeFor) {
    if (width < LEAST || height < LEAST) return; // hidden, or on its way to its size
    const key = JSON.stringify([width, height, open, regions.map(({ name, devices, place: where }) => [name, devices.length, where])]);
    if (key !== layoutKey) {
      const resized = size[0] !== width || size[1] !== height;
      [layoutKey, size] = [key, [width, height]];
      layout = Object.assign(layoutOf(regions, globeFor(known), { width, height, nameWidth: view.nameWidth, open }), { globeOf: () => globeFor(known) });
      [ways, tags] = [new Map(), new Map()];
      glide = glide && !resized;
      cardSprites.place(
        layout.cards.map((card) => ({ key: card.name, cx: card.x, cy: card.y, dx: 0, dy: 0, size: 1, seen: 1 })),
        glide,
      );
    } else if (layout) {
      for (const card of layout.cards) card.devices = there(regions.find(({ name }) => name === card.name)).devices;
      layout.globeOf = () => globeFor(known);
    }
    replan(glide);
  }

  /**
   * Tasks glide to the devices that have them now; pipes in use change.
   * @type {(glide: boolean) => void}
   */
  function replan(glide) {
    tasks = tasksOf(model.get("highlight"));
    cells = model.get("highlight").cells ?? {};
    const places = placesOf(tasks, cells);
    nStages = Math.max(1, nStagesOf(places));
    uses = usesOf(places, (name) => regionOf.get(name));
    if (!layout) return;
    const { cards, byName } = layout;
    const suspected = model.get("highlight").suspects ?? [];
    absent = new Set(model.get("highlight").absent);
    slow = new Set(suspected.flatMap((names) => (names.length === 1 ? names : [])));
    binds = model.get("highlight").binds ?? [];
    const bound = binds.length === 2 ? binds.map((name) => regionOf.get(name) ?? "") : [];
    const boundKey = bound.length && bound[0] !== bound[1] ? pairKey(bound[0], bound[1]) : "";
    const suspects = new Set(
      suspected
        .map((ends) => ends.map((name) => regionOf.get(name) ?? ""))
        .filter(([a, b]) => a && b && a !== b)
        .map(([a, b]) => pairKey(a, b)),
    );
    const wanted = worthDrawing(pairs, uses, new Set([chosenPair() ?? "", boundKey, ...suspects].filter(Boolean))).filter(
      ({ a, b }) => byName.has(a) && byName.has(b),
    );
    drawn = routed(
      wanted.map((pair) => ({
        ...pair,
        suspect: suspects.has(pair.key),
        binds: pair.key === boundKey,
        used: Boolean(uses.get(pair.key)?.hops.length),
        averages: Boolean(uses.get(pair.key)?.averages.length),
      })),
    );
    run.forget();
    badgeSprites.place(
      cards.flatMap((card) =>
        card.devices.map((device, at) => {
          const task = Object.hasOwn(tasks, device.name) ? tasks[device.name] : null;
          const [dx, dy] = card.slots[Math.min(at, card.slots.length - 1)] ?? [0, 0];
          return {
            key: task ? `${task[0]}/${task[1]}` : `-${device.name}`,
            name: device.name,
            gpu: device.members ? HOST : device.gpu,
            stage: task?.[0],
            replica: task?.[1],
            region: card.name,
            cx: card.x,
            cy: card.y,
            dx,
            dy,
            size: card.cell,
            seen: at < card.shown ? 1 : 0,
            over: Boolean(card.opened),
            members: device.members,
            stages: stagesIn(device.name),
          };
        }),
      ),
      glide,
    );
  }

  /**
   * Pairs with the points of their ways; a pipe in use bows further, for its label.
   * @type {<P extends Pair & { used?: boolean }>(wanted: P[]) => (P & { points: Spot[] })[]}
   */
  function routed(wanted) {
    /** @type {(pair: { key: string, used?: boolean }) => string} */
    const name = ({ key, used }) => `${used ? "+" : "-"}${key}`;
    const fresh = wanted.filter((pair) => !ways.has(name(pair)));
    for (const pair of route(fresh, there(layout), { width: size[0], height: size[1], isUsed: ({ used }) => Boolean(used) })) ways.set(name(pair), pair.points);
    return wanted.map((pair) => ({ ...pair, points: there(ways.get(name(pair))) }));
  }

  /**
   * Stages of a host's devices, -1 for an idle one; undefined for what is no host.
   * @type {(name: string) => number[] | undefined}
   */
  const stagesIn = (name) => (Object.hasOwn(cells, name) ? cells[name].map((held) => held?.[0] ?? -1) : undefined);

  /** @type {() => string | null} */
  const chosenPair = () => {
    const ends = model.get("selected_link").map((name) => regionOf.get(name) ?? "");
    return ends.length === 2 && ends[0] !== ends[1] && ends.every((name) => name) ? pairKey(ends[0], ends[1]) : null;
  };
  /** @type {() => string | null} */
  const litPair = () => {
    if (!lit?.link) return null;
    const ends = lit.link.map((name) => regionOf.get(name) ?? name);
    return ends[0] !== ends[1] ? pairKey(ends[0], ends[1]) : null;
  };
  /** @type {(badge: Badge) => boolean} */
  const isLit = ({ name, stage, replica, members, stages }) =>
    !lit
    || Boolean(lit.link)
    || (lit.devices
      ? lit.devices.some((one) => one === name || members?.includes(one))
      : lit.stage !== undefined
        ? (stages ?? [stage]).includes(lit.stage)
        : replica === lit.replica);

  /**
   * Pipes and cards, which rest while a run is shown.
   * @type {(context: Context, theme: Theme) => void}
   */
  function paintStill(context, theme) {
    if (!layout) return;
    const now = performance.now();
    fade.frame(now);
    const [chosen, shone, hover] = [chosenPair(), litPair(), view.hover()];
    const bound = drawn.find((pair) => pair.binds);
    if (bound) paintBound(context, bound, camera, theme, beat.now());
    paintPipes(context, drawn, camera, theme, (pair) => ({
      used: pair.used,
      suspect: pair.suspect,
      averaging: run.averaging.has(pair.key),
      strong: pair.key === chosen || pair.key === shone || (hover?.kind === "pair" && hover.key === pair.key),
      opacity: fade.of(pair.key, shone && shone !== pair.key ? FADED : 1),
    }));
    const at = new Map(cardSprites.at(now).map((sprite) => [sprite.key, sprite]));
    const cards = layout.cards.map((card) => ({ ...card, x: there(at.get(card.name)).cx, y: there(at.get(card.name)).cy }));
    const selected = view.chosen();
    const focus = view.place();
    paintCards(context, { cards }, camera, theme, {
      nStages,
      aimed: view.aim()?.name,
      pointed: hover?.kind === "region" ? hover.name : null,
      focused: focus?.kind === "card" ? focus.name : null,
      chosen: ({ name, devices }) => (devices.length ? devices.every((device) => selected.has(device.name)) : name === view.bare()),
      counts: ({ devices }) => countsOf(devices.flatMap(({ name }) => stagesIn(name) ?? [Object.hasOwn(tasks, name) ? tasks[name][0] : -1])),
    });
  }

  /** @type {(now?: number) => void} */
  function refreshBadges(now = performance.now()) {
    const scale = camera.cardScale;
    badges = /** @type {Omit<Badge, "x" | "y" | "radius">[]} */ (badgeSprites.at(now)).map((sprite) => {
      const [cx, cy] = camera.toScreen(sprite.cx, sprite.cy);
      return { ...sprite, x: cx + sprite.dx * scale, y: cy + sprite.dy * scale, radius: BADGE * sprite.size * scale };
    });
  }

  /**
   * Badges, and what a run does; `lifted` are names of devices that are dragged, under the pointer.
   * @type {(context: Context, theme: Theme, lifted: Set<string> | null, pointer: Spot | undefined) => void}
   */
  function paintMoving(context, theme, lifted, pointer) {
    const now = performance.now();
    const selected = view.chosen();
    const focus = view.place();
    const scale = camera.cardScale;
    refreshBadges(now);
    const hasPlan = Object.keys(tasks).length > 0;
    /** @type {(badge: Badge) => void} */
    const paint = (badge) => {
      if (badge.moving) {
        const [cx, cy] = camera.toScreen(badge.to.cx, badge.to.cy);
        if (badge.to.seen) paintSeat(context, badge.gpu, cx + badge.to.dx * scale, cy + badge.to.dy * scale, BADGE * badge.to.size * scale, theme);
      }
      const dragged = lifted?.has(badge.name);
      const alpha = badge.seen * fade.of(`b${badge.key}`, isLit(badge) ? 1 : FADED) * (dragged ? 0.3 : absent.has(badge.name) ? 0.25 : 1);
      paintBadge(
        context,
        { ...badge, alpha, chosen: selected.has(badge.name), focused: focus?.kind === "device" && focus.name === badge.name },
        theme,
        nStages,
        hasPlan,
      );
    };
    const order = badges.some(({ over }) => over) ? [...badges].sort((a, b) => Number(a.over) - Number(b.over)) : badges;
    order.filter(({ moving }) => !moving).forEach(paint);
    order.filter(({ moving }) => moving).forEach(paint);
    if (!drawn.some((pair) => pair.binds))
      for (const badge of badges.filter(({ name, seen }) => seen > 0.5 && binds.includes(name))) paintRing(context, badge, theme, beat.now());
    run.paint(context, badges, theme, nStages, slow);
    if (lifted && pointer)
      badges
        .filter(({ name }) => lifted.has(name))
        .slice(0, 12)
        .forEach((badge, at) =>
          paintBadge(
            context,
            {
              ...badge,
              alpha: 0.9,
              radius: Math.max(badge.radius, 9),
              x: pointer[0] + (at % 4) * 20,
              y: pointer[1] + Math.floor(at / 4) * 20,
              chosen: true,
            },
            theme,
            nStages,
            hasPlan,
          ),
        );
  }

  /**
   * Labels of the pipes in use and of those that are pointed at, chosen or `held`; who has a label keeps its place.
   * @type {(held: string | null) => Map<string, Tag>}
   */
  function labels(held) {
    if (!layout) return new Map();
    const { byName } = layout;
    const hover = view.hover();
    const must = new Set(
      /** @type {string[]} */ ([held, chosenPair(), litPair(), hover?.kind === "pair" ? hover.key : null].filter((key) => key && pairs.has(key))),
    );
    const inUse = drawn.filter(({ used }) => used);
    const asked = routed(
      [...must]
        .filter((key) => !inUse.some((pair) => pair.key === key))
        .map((key) => drawn.find((pair) => pair.key === key) ?? there(pairs.get(key)))
        .filter(({ a, b }) => byName.has(a) && byName.has(b)),
    );
    const busy = inUse.length ? inUse : slowest();
    const wanted =
      busy.length > MOST_LABELS
        ? [...busy.filter(({ key }) => must.has(key)), ...asked]
        : [...busy.filter(({ key }) => !asked.some((pair) => pair.key === key)), ...asked];
    const names = new Set(wanted.map(({ key }) => key));
    for (const key of tags.keys()) if (!names.has(key)) tags.delete(key);
    const fresh = wanted.filter(({ key }) => !tags.has(key));
    if (fresh.length)
      for (const [key, spot] of labelPlaces(fresh, layout, { width: size[0], height: size[1], must, kept: [...tags.values()], lines: inUse }))
        tags.set(key, spot);
    // magnified or made small, labels keep their size: those far out of sight are left out
    return camera.k < 0.75 ? new Map([...tags].filter(([key]) => must.has(key))) : tags;
  }

  /**
   * Where no pipeline leaves its city, the slowest pairs that average are worth a label, or all of a few without a plan.
   * @type {() => Pipe[]}
   */
  function slowest() {
    const averaging = drawn.filter(({ key }) => uses.get(key)?.averages.length);
    const few = averaging.length || drawn.length > MOST_SLOWEST ? averaging : drawn;
    return [...few].sort((one, other) => one.gbps - other.gbps).slice(0, MOST_SLOWEST);
  }

  /** @type {(from: Badge, to: Badge) => Spot[]} */
  function wayBetween(from, to) {
    const [a, b] = [regionOf.get(from.name), regionOf.get(to.name)];
    const points = a !== b ? (ways.get(`+${pairKey(a ?? "", b ?? "")}`) ?? ways.get(`-${pairKey(a ?? "", b ?? "")}`)) : null;
    if (!points)
      return [
        [from.x, from.y],
        [to.x, to.y],
      ];
    const forth = pairs.get(pairKey(a ?? "", b ?? ""))?.a === a ? points : [...points].reverse();
    return [[from.x, from.y], ...forth.map(([x, y]) => camera.toScreen(x, y)), [to.x, to.y]];
  }

  return {
    understand,
    renumber,
    place,
    replan,
    paintStill,
    paintMoving,
    labels,
    refreshBadges,
    labelLook(/** @type {string} */ key) {
      const shone = litPair();
      return { opacity: shone && shone !== key ? FADED : 1, current: key === chosenPair() };
    },
    /** The slower way's numbers, and whether a rule has guessed them. */
    conditions(/** @type {string} */ key) {
      const pair = there(pairs.get(key));
      return { latency_ms: pair.ms, bandwidth_gbps: pair.gbps, guess: pair.kind === "filled" };
    },
    /** Two devices that stand for a pair: of a hop of the plan, of an average, or the first of each region. */
    devicesOf(/** @type {string} */ key) {
      const use = uses.get(key);
      const pair = there(pairs.get(key));
      return use?.hops[0] ?? use?.averages[0] ?? [pair.a, pair.b].map((name) => there(regions.find((region) => region.name === name)).devices[0].name);
    },
    facts: (/** @type {Document} */ document) => ({ document, pairs, tasks, uses, slow }),
    hits: () => layout && { layout, badges, pairs: drawn, camera },
    homeOf(/** @type {Place} */ where) {
      const ground = there(there(layout).ground);
      const globe = there(there(layout).globeOf());
      const [x, y] = globe.project(where);
      return /** @type {Spot} */ ([ground.x + (x - globe.centre[0]) * ground.scale, ground.y + (y - globe.centre[1]) * ground.scale]);
    },
    isOnDisc: (/** @type {number} */ x, /** @type {number} */ y) => {
      const { ground, globeOf } = there(layout);
      return Math.hypot(x - there(ground).x, y - there(ground).y) <= there(globeOf()).radius * there(ground).scale;
    },
    open(/** @type {string | null} */ name) {
      if (open === name) return;
      open = name;
      if (layout)
        place(
          size[0],
          size[1],
          regions.flatMap(({ place: where }) => (where ? [where] : [])),
          true,
          layout.globeOf,
        );
    },
    /**
     * A host that is on the picture: what its card shows, and where it stands. Null for any other device.
     * @type {(name: string) => { host: import("../../editor/page/host_card.js").Host, place: Point & { height: number } } | null}
     */
    host(name) {
      const badge = badges.find((one) => one.name === name && one.seen > 0.5);
      const device = regions.find((region) => region.name === badge?.region)?.devices.find((one) => one.name === name);
      const members = device?.members ?? [];
      if (!badge || !device || members.length < 2) return null;
      return {
        host: { name, gpu: device.gpu, members, cells: members.map((_, at) => (Object.hasOwn(cells, name) ? (cells[name][at] ?? null) : null)) },
        place: { x: badge.x, y: badge.y, height: 2 * badge.radius },
      };
    },
    /** What marks devices of hosts. */
    marks: () => ({ nStages, absent, slow, bound: new Set(model.get("highlight").parts) }),
    computing: run.computing,
    get lit() {
      return lit;
    },
    light(/** @type {Pointed} */ what) {
      lit = what;
    },
    pulse: beat.begin,
    get pulsing() {
      return beat.on;
    },
    play: run.play,
    /** Whether the pipes that average have changed. */
    tell: (/** @type {Moment} */ time) => run.tell(time, (name) => regionOf.get(name)),
    condition: run.condition,
    inventory: () => ({
      cards: there(layout).cards.map(({ name, x, y, w, h }) => ({ name, x, y, w, h })),
      labels: [...tags].map(([key, { x, y }]) => ({ key, x, y })),
      pipes: drawn.map(({ key, used, points }) => ({ key, used, points })),
      badges: badges.map(({ name, x, y, stage, seen }) => ({ name, x, y, stage, seen })),
      k: camera.k,
    }),
    get layout() {
      return layout;
    },
    get pairs() {
      return pairs;
    },
    get badges() {
      return badges;
    },
    get opened() {
      return open;
    },
    get hasPlan() {
      return Object.keys(tasks).length > 0;
    },
    get moving() {
      return badgeSprites.moving || cardSprites.moving || !fade.settled || run.recovering || beat.on;
    },
  };
}

/**
 * [[stage, count]] in order of the stages; -1 is none.
 * @type {(stages: number[]) => [number, number][]}
 */
function countsOf(stages) {
  const counts = new Map();
  for (const stage of stages) counts.set(stage, (counts.get(stage) ?? 0) + 1);
  return [...counts].sort(([a], [b]) => a - b);
}
