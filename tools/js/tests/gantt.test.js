// Bars, lanes, rows, gaps and words of the Gantt chart.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Bars, barUnder, COLUMNS, counterpart, firstAtLeast, FULL, joined, lanesOf, NO_BARS } from "../../../dtfm_lab/widgets/views/gantt/page/bars.js";
import { crowdedIn, densityOf, sharesOf, smoothed, stackedAt } from "../../../dtfm_lab/widgets/views/gantt/page/density.js";
import { gapAt } from "../../../dtfm_lab/widgets/views/gantt/page/gaps.js";
import { glide } from "../../../dtfm_lab/widgets/views/gantt/page/glide.js";
import { arrange, layout } from "../../../dtfm_lab/widgets/views/gantt/page/layout.js";
import { axisUnit } from "../../../dtfm_lab/widgets/views/gantt/page/paint.js";
import { pixel, shadeOf } from "../../../dtfm_lab/widgets/views/gantt/page/raster.js";
import { extent } from "../../../dtfm_lab/widgets/views/gantt/page/state.js";
import { describe, linkOf, moment } from "../../../dtfm_lab/widgets/views/gantt/page/words.js";

/** Bars of [row, kind, start, end, microbatch]. @type {(...rows: number[][]) => Bars} */
const bars = (...rows) =>
  new Bars({
    row: Uint16Array.from(rows, ([row]) => row),
    kind: Uint8Array.from(rows, ([, kind]) => kind),
    start: Float32Array.from(rows, ([, , start]) => start),
    end: Float32Array.from(rows, ([, , , end]) => end),
    microbatch: Int32Array.from(rows, ([, , , , microbatch]) => microbatch),
    stage: new Uint16Array(rows.length),
  });

test("bars are sorted by row, kind and start, whatever their order", () => {
  const found = bars([1, 0, 5, 6, 1], [0, 0, 3, 4, 1], [0, 0, 1, 2, 0], [1, 0, 2, 3, 0]);
  assert.deepEqual([...found.start], [1, 3, 2, 5]);
  assert.deepEqual([...found.id], [2, 1, 3, 0]);
  assert.deepEqual(found.strip(1, 0), [2, 4]);
  assert.deepEqual(found.strip(9, 0), [0, 0]);
  assert.deepEqual([found.first, found.last], [1, 6]);
});

test("the bar under a time is the one that began last", () => {
  const found = bars([0, 0, 0, 10, 0], [0, 0, 2, 4, 1]);
  const lanes = lanesOf(1, [false], found);
  assert.equal(barUnder(found, 0, 0, lanes, 3, 0)?.microbatch, 1);
  assert.equal(barUnder(found, 0, 0, lanes, 5, 0)?.microbatch, 0);
  assert.equal(barUnder(found, 0, 0, lanes, 11, 0), null);
  assert.equal(firstAtLeast([1, 3, 3, 7], 3), 1);
});

test("kinds that overlap in a row have a lane each; those that take turns share one", () => {
  const overlapping = lanesOf(2, [false, false], bars([0, 0, 0, 4, 0], [0, 1, 1, 3, 0]));
  assert.deepEqual([overlapping.of(0), overlapping.of(1), overlapping.count(0), overlapping.countIn(0)], [0, 1, 2, 2]);
  const inTurn = lanesOf(2, [false, false], bars([0, 0, 0, 1, 0], [0, 1, 1, 2, 0]));
  assert.deepEqual([inTurn.of(0), inTurn.of(1), inTurn.count(0)], [0, 0, 1]);
  const third = lanesOf(3, [false, false, false], bars([0, 0, 0, 4, 0], [0, 1, 1, 3, 0], [0, 2, 9, 10, 0]));
  assert.equal(third.of(2), FULL);
});

test("the counterpart of a bar is of the same action, the first of the first", () => {
  const [one, other] = [bars([0, 0, 0, 1, 3], [0, 0, 2, 3, 3]), bars([0, 0, 5, 6, 3], [0, 0, 8, 9, 3])];
  assert.equal(counterpart(other, one.bar(0))?.start, 5);
  assert.equal(counterpart(other, one.bar(1))?.start, 8);
  assert.equal(counterpart(bars([0, 0, 5, 6, 1]), one.bar(0)), null);
});

test("columns that come in parts are one", () => {
  const part = {
    start: Float32Array.of(1),
    end: Float32Array.of(2),
    row: Uint16Array.of(0),
    kind: Uint8Array.of(0),
    microbatch: Int32Array.of(7),
    stage: Uint16Array.of(0),
  };
  assert.deepEqual([...joined([part, part], COLUMNS).microbatch], [7, 7]);
  assert.equal(joined([], COLUMNS).start.length, 0);
  assert.equal(NO_BARS.count, 0);
});

test("a glide begins where the bars were and ends where they are", () => {
  const [from, to] = [bars([0, 0, 0, 2, 0]), bars([0, 0, 4, 8, 0])];
  const way = glide(from, to);
  assert.ok(way);
  assert.deepEqual([...way.at(0).start, ...way.at(0).end], [0, 2]);
  assert.deepEqual([...way.at(0.5).start, ...way.at(0.5).end], [2, 5]);
  assert.deepEqual([way.at(1).start[0], way.at(1).last], [4, 8]);
  assert.equal(glide(NO_BARS, to), null);
});

const UNITS = [
  { label: "stage 0", rows: [0, 1], stage: 0, members: [{ label: "ada", rows: [0, 1], device: "ada" }] },
  { label: "stage 1", rows: [2], stage: 1, device: "bob" },
];
const lanes = lanesOf(1, [false], bars([0, 0, 0, 4, 0], [2, 0, 4, 8, 0]));
/** @type {(open: number, more?: object) => ReturnType<typeof layout>} */
const placed = (open, more = {}) => {
  const arranged = arrange({ units: UNITS, nRows: 3, labels: ["a", "b", "c"], devices: ["ada", "ada", "bob"], open });
  return layout({ width: 800, height: 300, labelWidth: 60, span: [0, 8], ghost: false, lanes, arranged, ...more });
};

test("units share the height between them, none over another", () => {
  for (const place of [placed(-1), placed(0)]) {
    const tops = place.shown.map((_, slot) => place.slotTop(slot));
    const ends = place.shown.map((_, slot) => place.slotTop(slot) + place.heightOf(slot));
    assert.equal(tops[0], place.top);
    tops.slice(1).forEach((top, at) => assert.ok(Math.abs(top - ends[at]) < 1e-9));
    assert.ok(ends[ends.length - 1] <= place.rowsBottom + 1e-9);
  }
  assert.deepEqual(
    placed(0).shown.map(({ label, depth }) => [label, depth]),
    [
      ["stage 0", 0],
      ["ada", 1],
      ["stage 1", 0],
    ],
  );
});

test("a time's place and a place's time are each other's inverse", () => {
  const place = placed(-1, { span: [2, 6] });
  for (const time of [2, 3.5, 6]) assert.ok(Math.abs(place.time(place.x(time)) - time) < 1e-9);
  assert.equal(place.x(2), place.left);
  assert.equal(place.x(6), place.right);
});

test("what is at a height is the unit that is drawn there", () => {
  const place = placed(-1);
  place.shown.forEach((_, slot) => assert.equal(place.under(place.slotTop(slot) + place.heightOf(slot) / 2)?.slot, slot));
  assert.equal(place.under(place.top - 1), null);
});

test("a gap is found where it is drawn", () => {
  const place = placed(-1);
  const gap = { device: "bob", from: 2, to: 4, text: "lost", tip: "bob was lost" };
  const state = { gaps: [gap], devices: ["ada", "ada", "bob"] };
  assert.equal(gapAt(place.x(3), place.middle(2), place, state), gap);
  assert.equal(gapAt(place.x(5), place.middle(2), place, state), undefined);
  assert.equal(gapAt(place.x(3), place.middle(0), place, state), undefined);
});

test("all of an iteration is in sight, with gaps before it and its old end if that is near", () => {
  const upper = bars([0, 0, 0, 10, 0]);
  assert.deepEqual(extent(upper, NO_BARS, [{ at: 12, text: "" }], "s").whole, [0, 12]);
  assert.deepEqual(extent(upper, NO_BARS, [{ at: 99, text: "" }], "s").whole, [0, 10]);
  assert.deepEqual(extent(upper, NO_BARS, [], "s", [], [{ device: "", from: -3, to: 1, text: "", tip: "" }]).whole, [-3, 10]);
  assert.deepEqual(extent(NO_BARS, NO_BARS, [], "s").whole, [0, 1]);
});

test("the whole chart decides the unit of its axis", () => {
  assert.deepEqual([axisUnit(20, "s").name, axisUnit(0.2, "s").name, axisUnit(2e-5, "s").name, axisUnit(20, "h").name], ["s", "ms", "µs", "h"]);
  assert.equal(moment(0.0125, { name: "ms", perSecond: 1e3, decimals: 1 }), "12.5 ms");
});

test("colours are pixels, and later stages of a device have later shades", () => {
  assert.equal(pixel("#010203"), 0xff030201);
  assert.deepEqual(
    [0, 3, 4, 99].map((stage) => shadeOf(stage, 3, 4)),
    [0, 0, 1, 2],
  );
  assert.equal(shadeOf(5, 3, 0), 0);
});

test("a bar says who does what, when, and what it waited for", () => {
  const upper = bars([0, 0, 0, 1, 3], [0, 0, 1, 2, 4]);
  const columns = {
    start: upper.start,
    end: upper.end,
    row: upper.row,
    kind: upper.kind,
    microbatch: upper.microbatch,
    stage: upper.stage,
    after: Int32Array.of(-1, 0),
  };
  const messages = {
    source: Uint16Array.of(0),
    target: Uint16Array.of(1),
    leaves: Float32Array.of(1),
    arrives: Float32Array.of(2),
    kind: Uint8Array.of(0),
    microbatch: Int32Array.of(3),
    reach: Float32Array.of(2),
  };
  const kinds = [{ name: "forward", message: false, fills: false }];
  const known = { names: ["ada", "bob"], kinds, columns, messages, several: false, unit: axisUnit(10, "s") };
  const [line, why] = describe({ upper: upper.bar(1), lower: null }, known);
  assert.match(line, /^ada · forward 4 · 1\.\d+ to 2\.\d+ s \(1 s\)$/);
  assert.equal(why, "right after forward 3");
  assert.equal(describe({ upper: upper.bar(0), lower: null }, known).length, 1);
  assert.deepEqual(linkOf(upper.bar(0), { messages, devices: ["ada", "bob"] }), ["ada", "bob"]);
  assert.equal(linkOf(upper.bar(1), { messages, devices: ["ada", "bob"] }), null);
});

test("an average keeps what is even, and flattens what is periodic", () => {
  assert.ok(smoothed(new Float32Array(40).fill(0.6), 8).every((value) => Math.abs(value - 0.6) < 1e-6));
  const striped = smoothed(
    Float32Array.from({ length: 120 }, (_, x) => (x % 3 ? 1 : 0)),
    8,
  );
  assert.ok(striped.slice(20, 100).every((value) => Math.abs(value - 2 / 3) < 0.03));
});

test("crowded bars are shares of their lane; a few alone are not", () => {
  const [ink, paper] = [0xff102030, 0xffe0e0e0];
  const begins = new Uint16Array(60);
  begins[10] = begins[20] = begins[30] = 1;
  assert.equal(crowdedIn(begins, 1), null);
  const half = { share: new Float32Array(60).fill(0.5), color: new Uint32Array(60).fill(ink) };
  const third = { share: new Float32Array(60).fill(0.3), color: new Uint32Array(60).fill(paper) };
  const density = densityOf(begins.fill(1, 24, 60), [half, third], 1);
  assert.ok(density);
  assert.deepEqual([density.dense[5], density.dense[40]], [0, 1]);
  assert.deepEqual(
    [0.1, 0.4, 0.6, 0.7, 0.9].map((height) => stackedAt(density, 40, height, height + 0.1)),
    [ink, ink, paper, paper, 0],
  );
  assert.equal(stackedAt(density, 40, 0.45, 0.55) >>> 24, 0xff);
  assert.equal(stackedAt(density, 40, 0.75, 0.85) >>> 24, 0x80);
});

test("an overview has the share of rows that compute, where bars cannot be told apart", () => {
  const fine = bars(...Array.from({ length: 80 }, (_, at) => [0, at % 2, at, at + (at % 2 ? 1 : 0.5), at]));
  const shares = sharesOf(fine, [0, 2], { from: 0, scale: 1, width: 80 });
  assert.ok(shares && Math.abs(shares[0][40] - 0.125) < 0.03 && Math.abs(shares[1][40] - 0.25) < 0.05);
  assert.equal(sharesOf(fine, [0, 2], { from: 0, scale: 20, width: 1600 }), null);
});

test("a block of fine bars without a pause stays a block", () => {
  const [begins, share, color] = [new Uint16Array(60).fill(1, 20, 30), new Float32Array(60).fill(1, 20, 30), new Uint32Array(60).fill(0xff000000, 20, 30)];
  const density = densityOf(begins, [{ share, color }], 1);
  assert.ok(density);
  assert.deepEqual([...density.layers[0].share].map(Math.round), [...share]);
  assert.deepEqual([...density.dense], [...share]);
});
