// Cards, pipes, edits and words of the map.
import assert from "node:assert/strict";
import { test } from "node:test";
import { complete } from "../../../dtfm_lab/widgets/views/editor/page/document.js";
import { spread } from "../../../dtfm_lab/widgets/views/map/page/cities.js";
import { addDevice, changePair, moveDevices, moveRegion } from "../../../dtfm_lab/widgets/views/map/page/edits.js";
import { finder, mayBecome } from "../../../dtfm_lab/widgets/views/map/page/find.js";
import { globeOf } from "../../../dtfm_lab/widgets/views/map/page/globe.js";
import { standing, target, under } from "../../../dtfm_lab/widgets/views/map/page/hits.js";
import { layoutOf, TOP } from "../../../dtfm_lab/widgets/views/map/page/layout.js";
import { pairKey, pairsOf, tasksOf, usesOf, worthDrawing } from "../../../dtfm_lab/widgets/views/map/page/pairs.js";
import { farFrom, labelPlaces, lengthOf, route } from "../../../dtfm_lab/widgets/views/map/page/routes.js";
import { placesOf } from "../shared/tasks.js";
import { alongWay } from "../../../dtfm_lab/widgets/views/map/page/running.js";
import { walker } from "../../../dtfm_lab/widgets/views/map/page/walking.js";
import { describe } from "../../../dtfm_lab/widgets/views/map/page/words.js";
/** @import { Camera, Place, Region } from "../../../dtfm_lab/widgets/views/map/types.d.ts" */

/** @type {(name: string, region: string) => import("../shared/types.d.ts").Device} */
const device = (name, region) => ({ name, region, gpu: "T4", x: 0, y: 0 });
/** @type {(name: string, n: number, place: Place | null) => Region} */
const region = (name, n, place) => ({ name, place, devices: Array.from({ length: n }, (_, at) => device(`${name}-${at}`, name)) });
const REGIONS = [region("Oregon", 4, [-121, 45]), region("Tokyo", 3, [139.7, 35.7]), region("Dublin", 8, [-6.3, 53.3])];
/** @type {Camera} */
const CAMERA = {
  toScreen: (x, y) => [x, y],
  toLayout: (x, y) => [x, y],
  zoom() {},
  pan() {},
  home() {},
  fly() {},
  k: 1,
  cardScale: 1,
  isHome: true,
  flying: false,
};
/** @type {(regions: Region[], width?: number, height?: number) => ReturnType<typeof layoutOf>} */
const laid = (regions, width = 900, height = 520) =>
  layoutOf(regions, globeOf(regions.flatMap(({ place }) => (place ? [place] : []))), { width, height, nameWidth: (name) => 7 * name.length });

test("cards lie inside, below the icons, and none over another", () => {
  const many = Array.from({ length: 30 }, (_, at) => region(`city-${at}`, 1 + (at % 5), [((at * 37) % 360) - 180, ((at * 23) % 120) - 60]));
  for (const [regions, width, height] of /** @type {[Region[], number, number][]} */ ([
    [REGIONS, 900, 520],
    [REGIONS, 480, 400],
    [many, 1200, 700],
  ])) {
    const { cards } = laid(regions, width, height);
    assert.equal(cards.length, regions.length);
    for (const card of cards)
      assert.ok(card.x - card.w / 2 >= 0 && card.x + card.w / 2 <= width && card.y - card.h / 2 >= TOP - 1 && card.y + card.h / 2 <= height);
    cards.forEach((a, at) =>
      cards.slice(at + 1).forEach((b) => assert.ok(Math.abs(a.x - b.x) >= (a.w + b.w) / 2 || Math.abs(a.y - b.y) >= (a.h + b.h) / 2, `${a.name} ${b.name}`)),
    );
  }
});

test("every device of a card has its slot, or is counted", () => {
  for (const n of [1, 7, 33, 200]) {
    const { cards } = laid([region("Oregon", n, [-121, 45]), REGIONS[1]]);
    assert.equal(cards[0].shown + cards[0].more, n);
    assert.ok(cards[0].slots.length >= cards[0].shown);
  }
});

test("the globe shows its places, and the middle of the view in the middle", () => {
  const globe = globeOf(REGIONS.flatMap(({ place }) => (place ? [place] : [])));
  for (const { place } of REGIONS) assert.ok(place && globe.shows(place));
  const [x, y] = globeOf([
    [10, 50],
    [12, 52],
  ]).project([11, 51]);
  assert.ok(Math.hypot(x, y) < 0.01);
});

const DOCUMENT = complete({
  devices: REGIONS.flatMap(({ devices }) => devices),
  regions: REGIONS.map(({ name }) => ({ name, latency_ms: 1, bandwidth_gbps: 10 })),
  between: [
    { regions: ["Oregon", "Tokyo"], latency_ms: 90, bandwidth_gbps: 0.5 },
    { from: "Tokyo", to: "Oregon", latency_ms: 120, bandwidth_gbps: 0.4 },
  ],
});
const NAMES = REGIONS.map(({ name }) => name);

test("a pair has the slower way's numbers, of its line, a rule or the default", () => {
  const pairs = pairsOf(DOCUMENT, [{ regions: ["Dublin", "Tokyo"], distance_km: 9600, latency_ms: 200, bandwidth_gbps: 0.2 }], NAMES);
  assert.deepEqual(
    [...pairs.values()].map(({ kind, gbps, ms }) => [kind, gbps, ms]),
    [
      ["line", 0.4, 120],
      ["default", 1, 50],
      ["filled", 0.2, 200],
    ],
  );
  assert.equal(pairKey("a", "b"), pairKey("b", "a"));
});

test("pairs are used by hops and averages between regions", () => {
  const tasks = tasksOf({ stages: { "Oregon-0": 0, "Tokyo-0": 1, "Dublin-0": 0 } });
  assert.deepEqual(tasks, { "Oregon-0": [0, 0], "Tokyo-0": [1, 0], "Dublin-0": [0, 1] });
  const uses = usesOf(placesOf(tasks), (name) => name.split("-")[0]);
  assert.deepEqual(uses.get(pairKey("Oregon", "Tokyo")), { hops: [["Oregon-0", "Tokyo-0"]], averages: [] });
  assert.deepEqual(uses.get(pairKey("Oregon", "Dublin"))?.averages, [["Oregon-0", "Dublin-0"]]);
  assert.equal(worthDrawing(pairsOf(DOCUMENT, [], NAMES), uses, new Set()).length, 3);
});

test("pipes go from card to card, and labels stand on them inside of the box", () => {
  const layout = laid(REGIONS);
  const pipes = route(
    [...pairsOf(DOCUMENT, [], NAMES).values()].map((pair) => ({ ...pair, used: true })),
    layout,
    { width: 900, height: 520, isUsed: () => true },
  );
  const places = labelPlaces(pipes, layout, { width: 900, height: 520, must: new Set(), kept: [], lines: pipes });
  assert.ok(places.size >= 1);
  for (const [key, { x, y }] of places) {
    const pipe = pipes.find((one) => one.key === key);
    assert.ok(pipe && farFrom(pipe.points, x, y) < 80 && x > 0 && x < 900 && y > TOP && y < 520);
  }
});

test("a way is walked by its length", () => {
  const at = alongWay([
    [0, 0],
    [10, 0],
    [10, 30],
  ]);
  assert.deepEqual(
    [at(0), at(0.25), at(0.5), at(1), at(7)],
    [
      [0, 0],
      [10, 0],
      [10, 10],
      [10, 30],
      [10, 30],
    ],
  );
  assert.equal(
    lengthOf([
      [0, 0],
      [3, 4],
      [3, 14],
    ]),
    15,
  );
  assert.equal(
    farFrom(
      [
        [0, 0],
        [10, 0],
      ],
      5,
      3,
    ),
    3,
  );
});

test("what is under a point is the card that is there; what is let go belongs to it", () => {
  const layout = { ...laid(REGIONS), globeOf: () => null };
  const hits = { layout, badges: [], pairs: [], camera: CAMERA };
  const [card] = layout.cards;
  assert.equal(under(hits, card.x, card.y)?.name, card.name);
  assert.equal(target(hits, [], card.x, card.y)?.name, card.name);
  assert.equal(under(hits, 2, 2), null);
  assert.equal(standing(REGIONS, [-6.2, 53.4])?.name, "Dublin");
});

test("a device that moves takes its region along, and an empty one goes", () => {
  const [grown, name] = addDevice(DOCUMENT, "Paris", "T4");
  assert.ok(grown.regions.some((one) => one.name === "Paris") && grown.devices.some((one) => one.name === name && one.region === "Paris"));
  const all = REGIONS[1].devices.map((one) => one.name);
  const moved = moveDevices(DOCUMENT, all, "Dublin");
  assert.deepEqual([moved.regions.map((one) => one.name), moved.between], [["Oregon", "Dublin"], []]);
  assert.equal(moveDevices(DOCUMENT, all, "Tokyo"), DOCUMENT);
  assert.ok(moveRegion(DOCUMENT, "Tokyo", "Kyoto", false).regions.some((one) => one.name === "Kyoto"));
});

test("a pair that is changed keeps what was not changed", () => {
  const pair = [...pairsOf(DOCUMENT, [], NAMES).values()][0];
  const before = { latency_ms: pair.ms, bandwidth_gbps: pair.gbps };
  const { between } = changePair(DOCUMENT, pair, { ...before, bandwidth_gbps: 7 }, before);
  assert.deepEqual(
    between.map(({ from, latency_ms: ms, bandwidth_gbps: gbps }) => [from, ms, gbps]),
    [
      ["Oregon", 90, 7],
      ["Tokyo", 120, 7],
    ],
  );
});

test("a name is found without its accents, and by its beginning if only one begins so", () => {
  const cities = spread([
    ["London", 0, 51],
    ["Zürich", 8.5, 47.4],
    ["Zagreb", 16, 46],
  ]);
  assert.equal(cities[0].name, "London");
  /** @type {(text: string) => string | undefined} */
  const find = (text) =>
    finder({ text, regions: REGIONS, cities, devices: DOCUMENT.devices, placeOf: () => null, standing: (place) => standing(REGIONS, place) })?.name;
  assert.deepEqual(["zurich", "zür", "Tokyo", "tokyo-1", "z", "nowhere"].map(find), ["Zürich", "Zürich", "Tokyo", "Tokyo", undefined, undefined]);
  assert.ok(mayBecome("za", cities) && !mayBecome("q", cities));
});

test("arrow keys walk to the nearest card, Enter goes into it", () => {
  const cards = [
    { name: "west", x: 0, y: 0 },
    { name: "east", x: 100, y: 10 },
    { name: "far east", x: 300, y: 0 },
  ];
  const walk = walker({ cards: () => cards, badges: () => [{ name: "ada", region: "east", x: 1, y: 1 }] });
  assert.deepEqual([walk.step(1, 0)?.name, walk.step(1, 0)?.name], ["west", "east"]);
  assert.deepEqual(walk.enter(), { kind: "device", name: "ada", region: "east" });
  assert.ok(walk.back() && walk.place?.kind === "card" && walk.back() && !walk.back());
});

test("what is pointed at is said in words", () => {
  const facts = { document: DOCUMENT, pairs: pairsOf(DOCUMENT, [], NAMES), tasks: {}, uses: new Map(), slow: new Set(["Oregon-0"]) };
  assert.equal(describe({ kind: "device", name: "Oregon-0" }, facts), "Oregon-0 · T4 · Oregon · a suspect: see Compare");
  assert.equal(describe({ kind: "region", name: "Tokyo", card: laid(REGIONS).cards[1] }, facts), "Tokyo: 3 devices\ninside: 10 Gbit/s, 1 ms");
  const line = describe({ kind: "pair", key: pairKey("Oregon", "Tokyo"), a: "Oregon", b: "Tokyo" }, facts);
  assert.match(line, /^Oregon – Tokyo\nOregon → Tokyo: 0.5 Gbit\/s, 90 ms\nTokyo → Oregon: 0.4 Gbit\/s, 120 ms\nthe plan does not use it$/);
});

test("a first device in a city has one site's network, and the globe has north up", () => {
  const blank = complete({ default: { latency_ms: 20, bandwidth_gbps: 0.1 } });
  const [grown] = addDevice(blank, "Berlin", "T4");
  assert.deepEqual(grown.regions, [{ name: "Berlin", latency_ms: 0.5, bandwidth_gbps: 10 }]);
  const { project } = globeOf([
    [139.7, 35.7],
    [61.7, 17.8],
    [-142.3, 17.8],
  ]);
  assert.ok(project([139.7, 60])[1] < project([139.7, 10])[1]); // y is downwards
  assert.ok(project([100, 35])[0] < project([170, 35])[0]);
});
