// The document's edits, its lines and what is drawn of them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { arranged, placed } from "../../../dtfm_lab/widgets/views/editor/page/arrange.js";
import { duplicateDevices, duplicateRegions } from "../../../dtfm_lab/widgets/views/editor/page/copies.js";
import * as docs from "../../../dtfm_lab/widgets/views/editor/page/document.js";
import { boxAt, nearestFree } from "../../../dtfm_lab/widgets/views/editor/page/drops.js";
import { curve, inCircle, inRectangle, overlap, placeOn } from "../../../dtfm_lab/widgets/views/editor/page/geometry.js";
import { placeLabels } from "../../../dtfm_lab/widgets/views/editor/page/labels.js";
import { lightOf } from "../../../dtfm_lab/widgets/views/editor/page/light.js";
import { addLine, clear, conditionsOf, evenOut, linkFits, removeLines, setConditions } from "../../../dtfm_lab/widgets/views/editor/page/lines.js";
import { fitting, inOwnPlaces } from "../../../dtfm_lab/widgets/views/editor/page/room.js";
import { routes } from "../../../dtfm_lab/widgets/views/editor/page/routes.js";
import { hostBox, takenApart, withoutDevices } from "../../../dtfm_lab/widgets/views/editor/page/hosts.js";
import { sceneOf, tasksOf } from "../../../dtfm_lab/widgets/views/editor/page/scene.js";
import { nearest, sizes } from "../../../dtfm_lab/widgets/views/editor/page/style.js";
import { placesOf, trafficOf } from "../shared/tasks.js";

/** @type {(name: string, region?: string, x?: number, y?: number) => import("../shared/types.d.ts").Device} */
const device = (name, region = "", x = 0, y = 0) => ({ name, region, gpu: "T4", x, y });
const DRAWN = docs.complete({
  devices: [device("ada", "Oregon", 0, 0), device("bob", "Oregon", 90, 0), device("eve", "Tokyo", 300, 0)],
  regions: [
    { name: "Oregon", latency_ms: 1, bandwidth_gbps: 10 },
    { name: "Tokyo", latency_ms: 2, bandwidth_gbps: 5 },
  ],
  between: [{ regions: ["Oregon", "Tokyo"], latency_ms: 90, bandwidth_gbps: 0.5 }],
});

test("a document has every part, and what is given stays", () => {
  assert.deepEqual(docs.complete({}).default, { latency_ms: 50, bandwidth_gbps: 1 });
  assert.deepEqual(docs.complete({ default: { latency_ms: 7 } }).default, { latency_ms: 7, bandwidth_gbps: 1 });
  assert.equal(DRAWN.devices.length, 3);
});

test("a new name is one that nobody has", () => {
  assert.equal(docs.freeName([{ name: "device-1" }, { name: "device-2" }], "device"), "device-3");
  const [grown, name] = docs.addDevice(DRAWN, { region: "", gpu: "T4", x: 1, y: 2 });
  assert.equal(name, "device-1");
  assert.equal(DRAWN.devices.length, 3); // an edit makes another document
  assert.equal(grown.devices.length, 4);
});

test("who is renamed is renamed wherever it stands", () => {
  const linked = addLine(DRAWN, "link", ["ada", "eve"], []);
  assert.deepEqual(
    docs.renameDevice(linked, "eve", "eva").links.map(({ source, target }) => [source, target]),
    [["ada", "eva"]],
  );
  const renamed = docs.renameRegion(DRAWN, "Tokyo", "Kyoto");
  assert.deepEqual([renamed.between[0].regions, renamed.devices[2].region], [["Oregon", "Kyoto"], "Kyoto"]);
});

test("what goes takes its lines with it", () => {
  const linked = addLine(DRAWN, "link", ["ada", "eve"], []);
  assert.equal(docs.removeDevices(linked, ["eve"]).links.length, 0);
  const without = docs.removeRegions(DRAWN, ["Tokyo"]);
  assert.deepEqual([without.between.length, without.devices[2].region], [0, ""]);
  const [grouped, region] = docs.groupDevices(DRAWN, ["eve"]);
  assert.deepEqual(
    grouped.regions.map(({ name }) => name),
    ["Oregon", region],
  ); // Tokyo is empty, and goes
});

test("a search finds names, GPUs and regions in any case", () => {
  assert.deepEqual(docs.matches(DRAWN, " TOKYO "), ["eve"]);
  assert.deepEqual(docs.matches(DRAWN, "t4"), ["ada", "bob", "eve"]);
  assert.deepEqual(docs.matches(DRAWN, "  "), []);
  assert.ok(docs.same({ a: [1, { b: 2 }], c: 3 }, { c: 3, a: [1, { b: 2 }] }));
  assert.ok(!docs.same({ a: 1 }, { a: 1, b: undefined }));
});

test("a way takes its numbers from its line, else from regions, else from the default", () => {
  /** @type {(a: string, b: string, document?: typeof DRAWN) => number} */
  const ms = (a, b, document = DRAWN) => conditionsOf(document, "link", [a, b], []).latency_ms;
  assert.equal(ms("ada", "bob"), 1);
  assert.equal(ms("ada", "eve"), 90);
  assert.equal(ms("ada", "eve", docs.changeDevices(DRAWN, ["eve"], { region: "" })), 50);
  assert.equal(ms("ada", "eve", setConditions(DRAWN, "link", ["ada", "eve"], { latency_ms: 3 }, true, [])), 3);
  const capped = conditionsOf(docs.changeDevices(DRAWN, ["ada"], { uplink_gbps: 0.1 }), "link", ["ada", "eve"], []);
  assert.deepEqual([capped.bandwidth_gbps, capped.origin], [0.1, "from the regions Oregon – Tokyo, capped by the uplink of ada"]);
});

test("a line that is drawn says what was true before", () => {
  const drawn = addLine(DRAWN, "link", ["ada", "eve"], []);
  assert.deepEqual(drawn.links, [{ source: "ada", target: "eve", one_way: false, latency_ms: 90, bandwidth_gbps: 0.5 }]);
  assert.ok(!linkFits(drawn, ["eve", "ada"]) && !linkFits(DRAWN, ["ada", "ada"]) && linkFits(DRAWN, ["ada", "eve"]));
  assert.deepEqual(removeLines(drawn, "link", [{ ends: ["eve", "ada"], oneWay: false }]).links, []);
  assert.deepEqual(clear(drawn, "link", ["eve", "ada"]).links, []);
});

test("a line can differ by direction, and be evened out again", () => {
  const both = addLine(DRAWN, "link", ["ada", "eve"], []);
  const uneven = setConditions(both, "link", ["ada", "eve"], { latency_ms: 5 }, false, []);
  assert.deepEqual(
    [
      ["ada", "eve"],
      ["eve", "ada"],
    ].map((way) => conditionsOf(uneven, "link", way, []).latency_ms),
    [5, 90],
  );
  assert.equal(uneven.links.length, 2);
  const even = evenOut(uneven, "link", ["ada", "eve"], []);
  assert.deepEqual(
    even.links.map(({ latency_ms: ms }) => ms),
    [5],
  );
});

test("copies have new names, the same links, and a place of their own", () => {
  const [grown, names] = duplicateDevices(addLine(DRAWN, "link", ["ada", "eve"], []), ["ada"]);
  assert.deepEqual(names, ["ada-2"]);
  assert.deepEqual(
    grown.links.map(({ source }) => source),
    ["ada", "ada-2"],
  );
  const [twice, regions] = duplicateRegions(DRAWN, ["Oregon"]);
  assert.deepEqual(regions, ["Oregon 2"]);
  assert.equal(twice.devices.filter(({ region }) => region === "Oregon 2").length, 2);
  const places = new Set(twice.devices.map(({ x, y }) => `${x}/${y}`));
  assert.equal(places.size, twice.devices.length);
});

test("devices without places are laid out apart, region by region", () => {
  const nowhere = docs.complete({ devices: ["a", "b", "c", "d"].map((name, at) => device(name, at < 2 ? "x" : "y")) });
  const laid = placed(nowhere);
  assert.equal(new Set(laid.devices.map(({ x, y }) => `${x}/${y}`)).size, 4);
  assert.ok(docs.same(laid, arranged(nowhere)));
  assert.equal(placed(DRAWN), DRAWN);
});

test("a line begins and ends outside of what it joins", () => {
  const [a, b] = [
    { x: 0, y: 0 },
    { x: 100, y: 0 },
  ];
  const way = curve(a, b, 20, inCircle(a, 15), inCircle(b, 15));
  assert.ok(!inCircle(a, 14)(placeOn(way, 0)) && !inCircle(b, 14)(placeOn(way, 1)));
  assert.ok(inRectangle({ x1: 0, x2: 2, y1: 0, y2: 2 })({ x: 1, y: 1 }));
  assert.ok(overlap({ x1: 0, x2: 2, y1: 0, y2: 2 }, { x1: 1, x2: 3, y1: 1, y2: 3 }));
});

test("a line bends round what it does not join, and not without need", () => {
  const line = { id: "ab", a: { x: 0, y: 0 }, b: { x: 200, y: 0 }, ends: ["a", "b"] };
  const bounds = { x1: -300, x2: 500, y1: -300, y2: 300 };
  const between = { owner: "c", x1: 80, x2: 120, y1: -20, y2: 20 };
  assert.equal(routes([line], [], 10, bounds).get("ab"), 0);
  assert.notEqual(routes([line], [between], 10, bounds).get("ab"), 0);
  assert.equal(routes([line], [{ ...between, owner: "a" }], 10, bounds).get("ab"), 0);
});

test("stages without replicas get theirs in the document's order", () => {
  const tasks = tasksOf({ stages: { ada: 0, eve: 1, bob: 0 } }, DRAWN);
  assert.deepEqual(tasks, { ada: [0, 0], bob: [0, 1], eve: [1, 0] });
  assert.deepEqual(trafficOf(placesOf(tasks)), [
    { ends: ["ada", "eve"], use: "hop" },
    { ends: ["ada", "bob"], use: "averaging" },
  ]);
});

test("a scene has every device, and the lines that the plan uses", () => {
  const scene = sceneOf(DRAWN, [], { stages: { ada: 0, bob: 0, eve: 1 }, suspects: [["eve"]] }, new Set());
  assert.deepEqual([scene.devices.length, scene.nStages], [3, 2]);
  assert.ok(scene.lines.some(({ kind, ends, uses }) => kind === "link" && ends.join() === "ada,eve" && uses.has("hop")));
  assert.ok(scene.devices.find(({ name }) => name === "eve")?.suspect);
  assert.equal(new Set(scene.lines.map(({ id }) => id)).size, scene.lines.length);
  assert.ok(lightOf({ devices: ["ada"] }, scene)?.device("ada") && !lightOf({ devices: ["ada"] }, scene)?.device("eve"));
  assert.ok(lightOf({ stage: 1 }, scene)?.device("eve"));
  assert.equal(lightOf(null, scene), null);
});

test("what limits the plan is marked: a line, all lines between two regions, or a device", () => {
  /** @type {(binds: string[]) => string[]} */
  const marked = (binds) => {
    const scene = sceneOf(DRAWN, [], { stages: { ada: 0, bob: 0, eve: 1 }, binds }, new Set());
    const regionOf = new Map(DRAWN.devices.map(({ name, region }) => [name, region]));
    const lines = scene.lines.filter((line) => line.binds).map(({ kind, ends }) => (kind === "pair" ? ends : ends.map((name) => regionOf.get(name))).join("–"));
    return [...new Set(lines), ...scene.devices.filter((one) => one.binds).map(({ name }) => name)];
  };
  assert.deepEqual(marked(["ada", "bob"]), ["Oregon–Oregon"]);
  assert.deepEqual(marked(["bob", "eve"]), ["Oregon–Tokyo"]);
  assert.deepEqual(marked(["eve"]), ["eve"]);
  assert.deepEqual(marked([]), []);
});

test("devices never cover their neighbours, however far away", () => {
  for (const zoom of [0.05, 0.3, 1, 4]) assert.ok(sizes(zoom, 90).height <= Math.max(9, 90 * zoom * 0.74) + 1e-9);
  assert.equal(nearest([]), 90);
  assert.equal(
    nearest([
      { x: 0, y: 0 },
      { x: 100, y: 0 },
    ]),
    100,
  );
});

test("labels at a crossing stay where they are, whatever is pointed at", () => {
  const ends = [
    { x: 0, y: 100 },
    { x: 200, y: 100 },
    { x: 100, y: 0 },
    { x: 100, y: 200 },
  ];
  const square = docs.complete({
    devices: ends.map(({ x, y }, i) => device(`d${i}`, "", x, y)),
    links: [
      { source: "d0", target: "d1", latency_ms: 5, bandwidth_gbps: 1, one_way: false },
      { source: "d2", target: "d3", latency_ms: 7, bandwidth_gbps: 2, one_way: false },
    ],
  });
  const { lines } = sceneOf(square, [], {}, new Set());
  /** @type {(place: { x: number, y: number }) => boolean} */
  const never = () => false;
  const curves = new Map(lines.map((line) => [line.id, curve(ends[Number(line.ends[0][1])], ends[Number(line.ends[1][1])], 0, never, never)]));
  const laid = /** @type {import("../../../dtfm_lab/widgets/views/editor/types.d.ts").Laid} */ (/** @type {unknown} */ ({ curves, taken: [] }));
  const room = { width: 240, height: 260, top: 4, bottom: 20 };
  /** @type {(wanted: string) => [string, number, number][]} */
  const places = (wanted) => [...placeLabels(lines, laid, room, (line) => line.id === wanted)].map(([id, { x, y }]) => [id, x, y]);
  const still = places("");
  assert.equal(still.length, 2);
  for (const { id } of lines) assert.deepEqual(places(id), still);
});

test("a device joins the region that it is dropped on, and lies beside others", () => {
  const boxes = new Map([
    ["Oregon", { x1: 0, y1: 0, x2: 100, y2: 60 }],
    ["Tokyo", { x1: 90, y1: 0, x2: 200, y2: 60 }],
  ]);
  assert.deepEqual([boxAt({ x: 20, y: 30 }, boxes), boxAt({ x: 95, y: 30 }, boxes), boxAt({ x: 300, y: 0 }, boxes)], ["Oregon", "Oregon", null]);
  const joined = docs.joinRegions(DRAWN, new Map([["eve", "Oregon"]]));
  assert.deepEqual(
    joined.devices.map(({ region }) => region),
    ["Oregon", "Oregon", "Oregon"],
  );
  assert.equal(docs.joinRegions(DRAWN, new Map()), DRAWN);
  const place = nearestFree({ x: 0, y: 0 }, 10, ({ x, y }) => Math.hypot(x, y) >= 25);
  assert.ok(Math.hypot(place.x, place.y) >= 25 && Math.hypot(place.x, place.y) < 31);
  assert.deepEqual(
    nearestFree({ x: 1, y: 2 }, 10, () => true),
    { x: 1, y: 2 },
  );
});

test("the cells of a host are equal, inside its box, and do not overlap", () => {
  for (const n of [1, 2, 3, 4, 6, 7, 8, 16, 64])
    for (const room of [
      { width: 24, height: 22 },
      { width: 110, height: 60 },
    ]) {
      const { width, height, cell, middles } = hostBox(n, room);
      assert.ok(width <= room.width + 1e-9 && height <= room.height + 1e-9, `${n}`);
      assert.equal(middles.length, n);
      for (const { x, y } of middles) assert.ok(Math.abs(x) + cell.width / 2 <= width / 2 && Math.abs(y) + cell.height / 2 <= height / 2);
      middles.forEach((one, at) =>
        middles.slice(at + 1).forEach((other) => assert.ok(Math.abs(one.x - other.x) >= cell.width || Math.abs(one.y - other.y) >= cell.height)),
      );
    }
  assert.equal(hostBox(8, { width: 100, height: 70 }).columns, 4);
});

/** Two hosts of two devices each, and a device by itself. */
const HOSTS = docs.complete({
  devices: [
    { ...device("one", "Oregon"), members: ["a", "b"], inside: { latency_ms: 0.01, bandwidth_gbps: 3600 } },
    { ...device("two", "Oregon", 90), members: ["c", "d"] },
    device("ada", "Tokyo", 300),
  ],
  regions: DRAWN.regions,
  links: [{ source: "one", target: "ada", latency_ms: 7, bandwidth_gbps: 2, one_way: false }],
});

test("a host's devices have a task each, and the host sends what they send", () => {
  const cells = /** @type {Record<string, (import("../shared/types.d.ts").Task | null)[]>} */ ({
    one: [
      [0, 0],
      [1, 0],
    ],
    two: [[2, 0], null],
  });
  const scene = sceneOf(HOSTS, [], { tasks: { one: [0, 0], two: [2, 0] }, cells, parts: ["b"], suspects: [["one"], ["a"]] }, new Set());
  assert.deepEqual([scene.nStages, Object.keys(scene.tasks)], [3, ["a", "b", "c"]]);
  assert.ok(scene.lines.some(({ ends, uses }) => ends.join() === "one,two" && uses.has("hop")));
  assert.ok(scene.slow.has("a") && scene.bound.has("b") && scene.hostOf.get("d") === "two");
  const light = lightOf({ devices: ["b"] }, scene);
  assert.ok(light?.device("b") && light.device("one") && !light.device("a") && !light.device("two"));
  assert.ok(lightOf({ devices: ["one"] }, scene)?.device("a"));
  assert.ok(lightOf({ stage: 2 }, scene)?.device("c") && !lightOf({ stage: 2 }, scene)?.device("d"));
});

test("hosts that hold the same stages average once", () => {
  const both = /** @type {[string, import("../shared/types.d.ts").Task][]} */ ([
    ["one", [0, 0]],
    ["one", [1, 0]],
    ["two", [0, 1]],
    ["two", [1, 1]],
  ]);
  assert.deepEqual(trafficOf(both), [{ ends: ["one", "two"], use: "averaging" }]);
});

test("a host that is taken apart is its devices, with their links and its own", () => {
  const apart = takenApart(HOSTS, ["one"]);
  assert.deepEqual(
    apart.devices.map(({ name, host }) => [name, host]),
    [
      ["a", "one"],
      ["b", "one"],
      ["two", undefined],
      ["ada", undefined],
    ],
  );
  assert.deepEqual(
    apart.links.map(({ source, target, bandwidth_gbps }) => [source, target, bandwidth_gbps]),
    [
      ["a", "ada", 2],
      ["b", "ada", 2],
      ["a", "b", 3600],
    ],
  );
  assert.equal(new Set(apart.devices.map(({ x, y }) => `${x}/${y}`)).size, 4);
  assert.deepEqual(docs.matches(HOSTS, "d"), ["two", "ada"]);
});

const PHONE = { width: 350, height: 110 };
/** Regions of eight devices in rows of three, three regions a row, as Python places them. @type {(n: number) => import("../shared/types.d.ts").Document} */
const regionsOfEight = (n) =>
  docs.complete({
    regions: Array.from({ length: n }, (_, at) => ({ name: `region-${at}`, latency_ms: 1, bandwidth_gbps: 1 })),
    devices: Array.from({ length: 8 * n }, (_, at) => {
      const [region, slot] = [Math.floor(at / 8), at % 8];
      return device(`d${at}`, `region-${region}`, 585 * (region % 3) + 90 * (slot % 3), 495 * Math.floor(region / 3) + 90 * Math.floor(slot / 3));
    }),
  });
/** Boxes of regions with their titles, when the drawing is fitted. @type {(document: import("../shared/types.d.ts").Document, room: typeof PHONE) => { apart: number, boxes: import("../../../dtfm_lab/widgets/views/editor/types.d.ts").Rectangle[] }} */
function fittedBoxes({ devices, regions }, { width, height }) {
  const near = nearest(devices);
  /** @type {(of: typeof devices, zoom: number, title: number) => import("../../../dtfm_lab/widgets/views/editor/types.d.ts").Rectangle} */
  const around = (of, zoom, title) => {
    const { width: wide, padding } = sizes(zoom, near);
    const [x, y] = [of.map((one) => zoom * one.x), of.map((one) => zoom * one.y)];
    const edge = wide / 2 + padding;
    return { x1: Math.min(...x) - edge, x2: Math.max(...x) + edge, y1: Math.min(...y) - edge - title, y2: Math.max(...y) + edge };
  };
  let zoom = 1.4;
  for (let whole = around(devices, zoom, 0); whole.x2 - whole.x1 > width || whole.y2 - whole.y1 > height; whole = around(devices, zoom, 0)) zoom *= 0.99;
  return {
    apart: zoom * near,
    boxes: regions.map(({ name }) =>
      around(
        devices.filter(({ region }) => region === name),
        zoom,
        15,
      ),
    ),
  };
}

test("on a narrow screen regions stand where the room is, and their boxes do not meet", () => {
  for (const n of [1, 2, 4, 8]) {
    const before = regionsOfEight(n);
    const after = fitting(before, PHONE);
    const { apart, boxes } = fittedBoxes(after, PHONE);
    assert.ok(
      boxes.every((one, at) => boxes.slice(at + 1).every((other) => !overlap(one, other))),
      `${n} regions`,
    );
    assert.ok(apart >= fittedBoxes(before, PHONE).apart, `${n} regions`);
    assert.deepEqual(fitting(after, PHONE), after); // what has its room stays
  }
});

test("what fits, and what somebody has placed by hand, stays on any screen", () => {
  const four = regionsOfEight(4);
  assert.equal(fitting(four, { width: 1200, height: 700 }), four);
  const byHand = docs.moveDevices(four, new Map([["d3", { x: 17, y: 60 }]]));
  assert.equal(fitting(byHand, PHONE), byHand);
  const moved = docs.moveDevices(four, new Map(four.devices.slice(8, 16).map(({ name, x, y }) => [name, { x: x + 40, y: y + 200 }]))); // a region
  assert.equal(fitting(moved, PHONE), moved);
  assert.equal(fitting(four, null), four);
});

test("an edit on a narrow screen that moves, adds and removes nothing leaves all devices in their own places", () => {
  const drawn = regionsOfEight(4);
  const shown = fitting(drawn, PHONE);
  /** @type {(document: import("../shared/types.d.ts").Document) => number[][]} */
  const places = ({ devices }) => devices.map(({ x, y }) => [x, y]);
  const [{ name, region, x, y }] = shown.devices;
  const renamed = docs.renameRegion(docs.renameDevice(shown, name, "eva"), region, "Mars");
  assert.deepEqual(places(inOwnPlaces(renamed, shown, drawn)), places(drawn));
  assert.deepEqual([renamed.devices[0].name, renamed.devices[0].region], ["eva", "Mars"]);
  const moved = docs.moveDevices(shown, new Map([[name, { x: x + 5, y }]]));
  const [grown] = docs.addDevice(shown, { region, gpu: "T4", x: x + 10, y });
  for (const next of [moved, grown, docs.removeDevices(shown, [name])]) assert.equal(inOwnPlaces(next, shown, drawn), next);
});

test("a device that goes from a host leaves the others, each by itself", () => {
  const host = { ...device("rack", "east"), members: ["a", "b", "c"], inside: { latency_ms: 0.01, bandwidth_gbps: 3600 } };
  const network = docs.complete({ devices: [host, device("d", "east", 300), device("e", "east", 400)] });
  assert.deepEqual(
    withoutDevices(network, ["rack", "d"], ["b"]).devices.map(({ name }) => name),
    ["a", "c", "e"],
  );
  assert.deepEqual(
    withoutDevices(network, ["rack"], []).devices.map(({ name }) => name),
    ["d", "e"],
  );
});
