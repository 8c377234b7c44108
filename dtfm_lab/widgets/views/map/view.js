// The map: cities' cards round a globe, pipes between them, the plan's badges on them. The document is the truth, Python holds it.
import { cleanUps, frame, h, oncePerFrame, onResize, onTraits, setTraits, typed } from "shared/dom.js";
import { isStill, onPulse, onShine, onTime, shine } from "shared/bus.js";
import { sharpCanvas, tooltip } from "shared/canvas.js";
import { playbackRows } from "shared/playback.js";
import { readTheme } from "shared/theme.js";
import { view } from "shared/view.js";
import { changeDevices, complete, named, removeRegions, same } from "../editor/page/document.js";
import { hostCard } from "../editor/page/host_card.js";
import { withoutDevices } from "../editor/page/hosts.js";
import { lightOf } from "../editor/page/light.js";
import { cameraOf } from "./page/camera.js";
import { paintCities, paintPin, spread } from "./page/cities.js";
import { addDevice, changePair, moveDevices, moveRegion } from "./page/edits.js";
import { finder } from "./page/find.js";
import { gestures } from "./page/gestures.js";
import { globeOf, landPath, paintGround } from "./page/globe.js";
import { standing, target, under } from "./page/hits.js";
import { labels } from "./page/labels.js";
import { TOP } from "./page/layout.js";
import { searchField } from "./page/search.js";
import { sceneOf } from "./page/scene.js";
import { toolbar } from "./page/toolbar.js";
import { walker } from "./page/walking.js";
import { count, describe } from "./page/words.js";
import { paintBox, paintTarget } from "./page/paint.js";
import { there } from "shared/there.js";
/** @import { Conditions, Context, Document, Moment, Paint, Render, Theme } from "shared/types.d.ts" */
/** @import { CitySpot, Found, Globe, Goal, Hand, Hit, Place, Region, Spot, Traits, Walk } from "./types.d.ts" */

/** @type {<T>(things: Record<string, T>, name: string) => T | undefined} */
const own = (things, name) => (Object.hasOwn(things, name) ? things[name] : undefined); // "constructor" is a name too
const NOTE_MS = 6000;
const CARD = { top: TOP + 2, bottom: 8 }; // pixels of the picture that an open host leaves free: the icons
/** @type {Place[]} */
const WORLD = [
  [-78, 20],
  [0, 20],
  [78, 20],
]; // what is shown of the globe while no city has devices: so near each other that north is up
const BESIDE = 78; // degrees to either side that are shown of one city

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const cities = spread(model.get("cities"));
  const cityOf = new Map(cities.map(({ name, place }) => [name, place]));
  const tenths = typed(model.get("land"), Int16Array);
  let present = complete(model.get("document"));
  /** @type {Region[]} */
  let regions = [];
  let bare = /** @type {string | null} */ (null); // a region without devices that is selected
  let opened = ""; // the host whose devices are shown
  let pointed = /** @type {Hit | null} */ (null); // what the pointer is on
  let sought = /** @type {Found | null} */ (null); // what the search field says
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let noteTimer;

  const root = frame("dtfm-map", "Map", "application");
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-map-float dtfm-map-hint", hidden: true });
  const note = h("div", { class: "dtfm-map-float dtfm-map-said", role: "status", hidden: true });
  const camera = cameraOf(
    box,
    () => {
      drawGround();
      drawAll();
    },
    isStill,
    cleanUp,
  );
  const { element: groundCanvas, draw: drawGround } = sharpCanvas(box, paintWorld, cleanUp);
  const { element: pipesCanvas, draw: drawPipes } = sharpCanvas(box, (context, width, height, theme) => scene.paintStill(context, theme), cleanUp);
  const { element: canvas, draw: drawTop } = sharpCanvas(box, paintTop, cleanUp);
  for (const one of [groundCanvas, pipesCanvas, canvas]) one.setAttribute("aria-hidden", "true");
  const tip = tooltip(box);

  const pen = h("canvas").getContext("2d");
  there(pen).font = `650 ${readTheme(el).font}`;
  /** @type {(name: string) => Place | null} */
  const placeOf = (name) => own(model.get("places"), name) ?? cityOf.get(name) ?? null;
  const tool = () => model.get("tool");
  /** Selected and drawn: an undo may have taken some of them away. */
  const chosen = () => {
    const selected = new Set(model.get("selected"));
    return new Set(present.devices.map(({ name }) => name).filter((name) => selected.has(name)));
  };

  const scene = sceneOf({
    model,
    chosen,
    camera,
    nameWidth: (/** @type {string} */ name) => there(pen).measureText(name || "no region").width,
    bare: () => bare,
    hover: () => pointed,
    place: () => walk.place,
    aim: () => aim(),
  });
  const walk = walker({
    cards: () => there(scene.layout).cards.filter(({ devices }) => devices.length),
    badges: () => scene.badges.filter(({ seen }) => seen > 0.5),
  });
  const still = model.get("still");
  const tags = labels(
    model,
    box,
    still && !model.get("drags"),
    {
      read: (key) => scene.conditions(key),
      set: (key, conditions, before) => {
        present = changePair(present, there(scene.pairs.get(key)), conditions, before);
        model.set("document", present);
        scene.renumber(present);
        drawAll();
      },
      press: (key) => choosePair(key),
      point: (key) => point(key === null ? null : { kind: "pair", key, ...endsOf(key) }),
    },
    cleanUp,
  );
  const card = hostCard(
    root,
    model,
    {
      chosen: (device) => chooseParts([device]),
      left() {
        openHost("");
        root.focus({ preventScroll: true });
      },
      still: still && !model.get("drags"),
      read: (host) => named(present.devices, host)?.inside ?? present.default,
      set(host, { latency_ms, bandwidth_gbps }) {
        present = changeDevices(present, [host], { inside: { latency_ms, bandwidth_gbps } });
        model.set("document", present);
        drawAll();
      },
    },
    cleanUp,
  );
  /** @type {(key: string) => { a: string, b: string }} */
  const endsOf = (key) => {
    const { a, b } = there(scene.pairs.get(key));
    return { a, b };
  };

  const drawAll = oncePerFrame(() => {
    drawPipes();
    drawTop();
    if (scene.layout) tags.show(scene.pairs, scene.labels(tags.held), camera, scene.labelLook);
  }, cleanUp);

  /**
   * One gesture: one entry in the history, one message.
   * @type {(next: Document, selected?: string[]) => void}
   */
  function edit(next, selected) {
    if (same(next, present)) return;
    present = next;
    model.set("document", next);
    if (selected) model.set("selected", selected);
    model.save_changes();
    understand();
  }

  /** @type {(names: string[], more?: boolean) => void} */
  function choose(names, more = false) {
    const before = chosen();
    const all = more && names.every((name) => before.has(name));
    const next = more ? [...new Set([...before, ...names])].filter((name) => !all || !names.includes(name)) : names;
    bare = null;
    select(next, []);
  }

  /** @type {(devices: string[], parts: string[]) => void} */
  function select(devices, parts) {
    const news = { selected: devices, selected_members: parts, selected_link: [] };
    if (Object.entries(news).some(([name, value]) => !same(value, model.get(/** @type {keyof typeof news} */ (name))))) setTraits(model, news);
    refresh();
  }

  /**
   * Selects these devices inside their hosts alone.
   * @type {(parts: string[]) => void}
   */
  const chooseParts = (parts) => {
    const hosts = present.devices.filter(({ members }) => members?.some((name) => parts.includes(name)));
    select(
      hosts.map(({ name }) => name),
      parts,
    );
  };

  /**
   * Shows the devices of a host; anything else shows none.
   * @type {(name: string) => void}
   */
  function openHost(name) {
    opened = scene.host(name) ? name : "";
    drawAll();
  }

  /** @type {(key: string) => void} */
  function choosePair(key) {
    model.set("selected", []);
    model.set("selected_link", scene.devicesOf(key));
    model.save_changes();
    refresh();
  }

  /** @type {(text: string) => void} */
  function say(text) {
    clearTimeout(noteTimer);
    note.textContent = text;
    note.hidden = !text;
    note.classList.remove("dtfm-problem");
    noteTimer = setTimeout(showProblem, NOTE_MS);
  }
  function showProblem() {
    const problem = model.get("problem");
    note.textContent = problem;
    note.hidden = !problem;
    note.classList.toggle("dtfm-problem", Boolean(problem));
  }
  cleanUp.add(() => clearTimeout(noteTimer));

  /**
   * Whether all of a region's card is on the picture.
   * @type {(name: string) => boolean}
   */
  function isInView(name) {
    const card = scene.layout?.byName.get(name);
    if (!card) return false;
    const [x, y] = camera.toScreen(card.x, card.y);
    const [wide, high] = [(card.w / 2) * camera.cardScale, (card.h / 2) * camera.cardScale];
    return x - wide >= 0 && y - high >= 0 && x + wide <= box.clientWidth && y + high <= box.clientHeight;
  }
  /** @type {(city: string) => void} */
  const add = (city) => {
    const [next, name] = addDevice(present, city, gpus.value || model.get("gpus")[0] || "");
    edit(next, [name]);
    if (!isInView(city)) camera.home();
    say(`${name} added to ${city}`);
  };
  /**
   * Lines to other regions were those of the place that was left.
   * @type {(next: Document, words: string) => void}
   */
  const moved = (next, words) => {
    if (next === present) return;
    const lost = present.between.length - next.between.length;
    edit(next);
    say(lost > 0 ? `${words}; ${count(lost, "line")} of the region left behind went with it` : words);
  };
  /** @type {import("./page/gestures.js").Tell} */
  const tell = {
    chosen: (names, more) => {
      walk.leave();
      choose(names, more);
      // A region that shows all its devices folds up, unless one of them is chosen.
      const kept = chosen();
      if (!present.devices.some(({ name, region }) => region === scene.opened && kept.has(name))) scene.open(null);
    },
    boxed: (names) => choose(names, true),
    pairChosen: choosePair,
    opened: (name) => {
      scene.open(name);
      refresh();
    },
    missed: () => say("No city is near: drop it closer to one, zoom in, or search by name above"),
    added: add,
    swapped: (a, b) => {
      model.send({ kind: "swap", a, b });
      say(`${a} and ${b} swapped places in the plan`);
    },
    devicesMoved: (names, city) => {
      const n = present.devices.filter(({ name, region }) => names.includes(name) && region !== city).length;
      moved(moveDevices(present, names, city), `${count(n, "device")} moved to ${city}`);
    },
    regionMoved: (from, city, hadPlace) => moved(moveRegion(present, from, city, hadPlace), `${from || "no region"} moved to ${city}`),
    tapped: (device) => openHost(device === opened ? "" : device),
    emptied: (region) => {
      choose([]);
      bare = region;
      say(`${region}: a region without devices`);
      refresh();
    },
  };
  /** @type {Hand} */
  const hand = gestures(
    root,
    box,
    {
      scene: () => scene.hits(),
      cities: () => freeCities(),
      camera,
      selected: chosen,
      tool,
      hasPlan: () => scene.hasPlan,
      still,
    },
    tell,
    () => {
      trackPointer();
      drawAll();
    },
    cleanUp,
  );

  /**
   * Cities without a region, as far as the disc goes.
   * @type {() => CitySpot[]}
   */
  const freeCities = () =>
    scene.layout?.ground
      ? cities
          .filter(({ place }) => !standing(regions, place))
          .map(({ name, place }) => ({ name, at: scene.homeOf(place) }))
          .filter(({ at }) => camera.k < 0.97 || scene.isOnDisc(...at))
      : [];
  const carried = () => (hand.press && (hand.press.kind === "devices" || hand.press.kind === "region") ? hand.press : null);
  /** @type {() => Goal | null} */
  const aim = () => {
    if (!scene.layout || hand.partner()) return null;
    if (carried()) return target(there(scene.hits()), freeCities(), ...there(hand.press).now);
    return tool() === "add" && hand.pointer && !hand.press ? target(there(scene.hits()), freeCities(), hand.pointer.x, hand.pointer.y) : null;
  };

  /** @type {(text: string) => Found | null} */
  const find = (text) => finder({ text, regions, cities, devices: present.devices, placeOf, standing: (place) => standing(regions, place) });
  /** @type {(found: Found) => void} */
  const flyTo = (found) => {
    const card = scene.layout?.byName.get(found.name);
    /** @type {Spot | null} */
    const at = card ? [card.x, card.y] : scene.layout?.ground && found.place ? scene.homeOf(found.place) : null;
    if (at) camera.fly(...at);
  };
  const search = searchField(cities, find, {
    fly(found) {
      flyTo(found);
      if (found.devices.length) choose(found.devices.map(({ name }) => name));
      say(found.place ? `${found.name}` : `${found.name || "no region"} is not a known place`);
    },
    add: (found) => add(found.name),
    move: (found) => tell.devicesMoved([...chosen()], found.name),
    addable: () => !still,
    movable: () => !still && chosen().size > 0,
    sought(found) {
      sought = found;
      drawAll();
    },
    leave: () => root.focus({ preventScroll: true }),
  });
  const gpus = h("select", {
    "aria-label": "GPU of new devices",
    title: "GPU of new devices",
    hidden: true,
    onchange: () => {
      model.set("gpu", gpus.value);
      model.save_changes();
    },
  });
  const offerGpus = () => {
    const kinds = model.get("gpus");
    gpus.replaceChildren(...kinds.map((gpu) => h("option", { value: gpu }, gpu)));
    gpus.value = kinds.includes(model.get("gpu")) ? model.get("gpu") : (kinds[0] ?? "");
  };

  /** @type {(next: Traits["tool"]) => void} */
  const use = (next) => {
    model.set("tool", next);
    model.save_changes();
    refresh();
  };
  /** @type {(place: Walk) => void} */
  const tellWalk = (place) => {
    if (!place) return;
    /** @type {Hit} */
    const hit =
      place.kind === "card"
        ? { kind: "region", name: place.name, card: there(there(scene.layout).byName.get(place.name)) }
        : { kind: "device", name: place.name };
    point(hit);
    say(describe(hit, scene.facts(present)).replaceAll("\n", ", "));
  };
  const bar = toolbar(
    root,
    {
      add: () => use(tool() === "add" ? "select" : "add"),
      drop: () => use("select"),
      remove() {
        const gone = [...chosen()];
        const parts = model.get("selected_members");
        const words = gone.length ? `${count(parts.length || gone.length, "device")} deleted` : `${bare} deleted`;
        edit(gone.length ? withoutDevices(present, gone, parts) : removeRegions(present, [there(bare)]), []);
        bare = null;
        say(words);
      },
      undo: () => model.send({ kind: "undo" }),
      redo: () => model.send({ kind: "redo" }),
      all: () => choose(present.devices.map(({ name }) => name)),
      fit: () => {
        scene.open(null);
        camera.home();
        refresh();
      },
      closer: () => camera.zoom(1.4),
      wider: () => camera.zoom(1 / 1.4),
      pan: camera.pan,
      step: (/** @type {number} */ dx, /** @type {number} */ dy) => {
        tellWalk(walk.step(dx, dy));
        drawAll();
      },
      enter() {
        const { place } = walk;
        if (place?.kind === "device") {
          choose([place.name]);
          openHost(place.name);
          if (opened) {
            say(""); // the card covers it
            requestAnimationFrame(() => requestAnimationFrame(card.focus)); // once it is shown
          }
        } else if (place) {
          if (there(scene.layout).byName.get(place.name)?.more) scene.open(place.name);
          scene.refreshBadges();
          tellWalk(walk.enter());
        }
        drawAll();
      },
      toggle() {
        const { place } = walk;
        if (place) choose(place.kind === "device" ? [place.name] : there(there(scene.layout).byName.get(place.name)).devices.map(({ name }) => name), true);
      },
      back() {
        hand.cancel();
        if (opened) openHost("");
        else if (tool() !== "select") use("select");
        else if (walk.back()) point(null);
        else if (scene.opened) scene.open(null);
        else choose([]);
        refresh();
      },
    },
    tool,
    (what) => (what === "remove" ? chosen().size > 0 || bare !== null : Boolean(model.get(/** @type {"can_undo" | "can_redo"} */ (`can_${what}`)))),
    search,
    gpus,
    still,
  );

  /** The document or the places changed: regions, cards and pipes are computed again. */
  function understand() {
    regions = scene.understand(present, model.get("filled"), placeOf);
    if (bare !== null && !regions.some(({ name, devices }) => name === bare && !devices.length)) bare = null;
    place(true);
    refresh();
  }

  /** @type {(glide: boolean) => void} */
  function place(glide) {
    const known = regions.flatMap(({ place: where }) => (where ? [where] : []));
    scene.place(box.clientWidth, box.clientHeight, known, glide, (places) =>
      places.length > 1 ? globeFor(places) : places.length ? globeFor(around(places[0])) : present.devices.length ? null : globeFor(WORLD),
    );
    drawGround();
    drawAll();
  }

  /**
   * A city and what is shown beside it.
   * @type {(place: Place) => Place[]}
   */
  const around = ([longitude, latitude]) => [
    [longitude, latitude],
    [((longitude - BESIDE + 540) % 360) - 180, latitude / 2],
    [((longitude + BESIDE + 540) % 360) - 180, latitude / 2],
  ];
  let globe = /** @type {Globe | null} */ (null);
  let globeKey = "";
  /** @type {(places: Place[]) => Globe} */
  function globeFor(places) {
    const key = JSON.stringify(places);
    if (key !== globeKey) {
      const found = globeOf(places);
      globe = { ...found, land: landPath(tenths, found) };
      globeKey = key;
    }
    return there(globe);
  }

  /** @type {Paint} */
  function paintWorld(context, width, height, theme) {
    const ground = scene.layout?.ground;
    if (!ground || !globe?.land) return;
    const land = theme.dark ? "rgba(150, 155, 175, 0.16)" : "rgba(90, 100, 125, 0.14)";
    paintGround(context, { land: globe.land, globe, ground }, { toScreen: camera.toScreen, k: camera.k }, { ...theme, land });
  }

  /** @type {Paint} */
  function paintTop(context, width, height, theme) {
    if (!scene.layout) return;
    const goal = aim();
    const pin = sought && scene.layout.ground && sought.place && !scene.layout.byName.get(sought.name) ? scene.homeOf(sought.place) : null;
    if (goal || tool() === "add" || carried() || regions.filter(({ place: where }) => where).length < 2) {
      const boxes = scene.layout.cards.map((card) => {
        const [x, y] = camera.toScreen(card.x, card.y);
        return [
          x - (card.w / 2) * camera.cardScale,
          y - (card.h / 2) * camera.cardScale,
          x + (card.w / 2) * camera.cardScale,
          y + (card.h / 2) * camera.cardScale,
        ];
      });
      paintCities(context, freeCities(), camera, { width, height, theme, boxes, without: goal?.name ?? (pin ? sought?.name : undefined) });
    }
    if (pin) paintPin(context, camera.toScreen(...pin), there(sought).name, theme);
    scene.paintMoving(context, theme, hand.press?.kind === "devices" ? new Set(hand.press.names) : null, hand.press?.now);
    if (goal && !goal.known) paintTarget(context, goal, theme);
    const inside = scene.host(opened);
    if (!inside) opened = ""; // else Esc would close what is not there
    card.show(inside?.host ?? null, inside?.place, scene.marks(), {
      theme,
      width,
      height,
      ...CARD,
      parts: new Set(model.get("selected_members")),
      light: inside && scene.lit && lightOf(scene.lit, { devices: [{ ...inside.host, region: "", task: null }], hostOf: new Map(), lines: [] }),
      run: { computing: scene.computing() },
      conditions: model.get("conditions"),
    });
    if (hand.press?.kind === "box") paintBox(context, hand.press, theme);
    showTip(goal);
    box.style.cursor = hand.press ? "grabbing" : tool() === "add" ? "copy" : pointed ? "pointer" : "grab";
    if (scene.moving) drawAll();
  }

  function trackPointer() {
    const { press, pointer } = hand;
    if (tags.pointed && !press) return;
    point(pointer && !press && !camera.flying && scene.layout ? under(there(scene.hits()), pointer.x, pointer.y) : null);
  }

  /** @type {(hit: Hit | null) => void} */
  function point(hit) {
    const before = pointed;
    pointed = hit;
    if ((before?.kind ?? "") === (hit?.kind ?? "") && (before?.name ?? before?.key) === (hit?.name ?? hit?.key)) return;
    shine(root, hit?.kind === "device" ? { devices: [hit.name] } : hit?.kind === "pair" ? { link: scene.devicesOf(hit.key) } : null);
    drawAll();
  }

  /** @type {(goal: Goal | null) => void} */
  function showTip(goal) {
    const load = carried();
    const other = hand.partner();
    const from = hand.press ? { x: hand.press.now[0], y: hand.press.now[1] } : hand.pointer;
    const text = other
      ? `${there(hand.press).names[0]} and ${other} swap places in the plan`
      : load
        ? goal
          ? `${count(load.names.length, "device")} to ${goal.name}${goal.known ? "" : ", a new region"}`
          : ""
        : tool() === "add"
          ? goal
            ? `add to ${goal.name || "no region"}${goal.known ? "" : ", a new region"}`
            : ""
          : pointed && hand.pointer && (!opened || pointed.name !== opened)
            ? describe(pointed, scene.facts(present))
            : "";
    if (text && from) tip.show(text, from.x, from.y);
    else tip.hide();
  }

  function refresh() {
    bar.update();
    const devices = present.devices.length;
    const placed = regions.filter(({ place: where, devices: inside }) => where && inside.length);
    empty.hidden = devices > 0;
    empty.textContent = "Press D and click near a city to put a device there, or type a city's name above";
    root.setAttribute(
      "aria-label",
      `Map: ${count(devices, "device")} in ${count(placed.length, "city", "cities")}. Arrow keys go from card to card, Enter opens one`,
    );
    root.dataset.devices = String(devices);
    drawAll();
  }

  /** Another hand changed the document: Python, or another view. Our own echo is the same document. */
  function reload() {
    const next = complete(model.get("document"));
    if (same(next, present) || tags.dragging) return;
    const names = (/** @type {Document} */ document) => new Set(document.devices.map(({ region }) => region));
    const before = names(present);
    const other = ![...names(next)].some((name) => before.has(name));
    present = next;
    scene.open(null);
    understand();
    if (other) camera.home();
  }

  onTraits(model, ["document"], reload, cleanUp);
  onTraits(model, ["places", "filled"], understand, cleanUp);
  onTraits(
    model,
    ["highlight"],
    () => {
      scene.replan(true);
      refresh();
    },
    cleanUp,
  );
  onTraits(model, ["selected", "selected_members", "selected_link", "tool", "can_undo", "can_redo"], refresh, cleanUp);
  onTraits(model, ["gpus", "gpu"], offerGpus, cleanUp);
  onTraits(model, ["problem"], showProblem, cleanUp);
  onTraits(
    model,
    ["playback", "playback_devices"],
    () => {
      scene.play(playbackRows(model.get("playback")), model.get("playback_devices"));
      drawTop();
    },
    cleanUp,
  );
  onTraits(
    model,
    ["conditions", "restored_from"],
    () => {
      scene.condition(model.get("conditions"), model.get("restored_from"));
      drawAll();
    },
    cleanUp,
  );
  onShine(
    root,
    (what) => {
      scene.light(what);
      drawAll();
    },
    cleanUp,
  );
  onPulse(
    root,
    () => {
      scene.pulse();
      drawAll();
    },
    cleanUp,
  );
  onTime(
    root,
    (time) => {
      if (scene.tell(time)) drawPipes();
      drawTop();
    },
    cleanUp,
  );
  const resize = () => {
    const { fills } = root.dataset;
    root.dataset.fills = String(model.get("height") === 0);
    box.style.height = model.get("height") ? `${model.get("height")}px` : "";
    if (fills !== root.dataset.fills) place(false);
  };
  onTraits(model, ["height"], resize, cleanUp);

  /** Where a device, a region or a city is in the box, in pixels: for whoever points at it from outside, as tests do. */
  const whereIs = (/** @type {string} */ name) => {
    const badge = scene.badges?.find((one) => one.name === name);
    const card = scene.layout?.byName.get(name);
    if (badge) return [badge.x, badge.y];
    if (card) {
      const [x, y] = camera.toScreen(card.x, card.y);
      return [x, y - (card.h / 2 - 8) * camera.cardScale];
    }
    return cityOf.has(name) && scene.layout?.ground ? camera.toScreen(...scene.homeOf(there(cityOf.get(name)))) : null;
  };
  /** What is where, for tests: boxes of cards, labels and the points of pipes, in the layout's pixels. */
  const whatIs = () => scene.inventory();
  Object.assign(root, { whereIs, whatIs });
  box.append(empty, note, bar.element, card.element);
  root.append(box);
  el.append(root);
  offerGpus();
  resize();
  scene.condition(model.get("conditions"), model.get("restored_from"), true);
  scene.play(playbackRows(model.get("playback")), model.get("playback_devices"));
  understand();
  showProblem();
  onResize(box, () => place(false), cleanUp);
  return cleanUp.run;
}

export default view(render);
