// Pure parts of the smaller views.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bestBounded, Curve } from "../../../dtfm_lab/widgets/views/convergence/page/curve.js";
import { scale } from "../../../dtfm_lab/widgets/views/frontier/page/scale.js";
import { linksIn, linkUnder } from "../../../dtfm_lab/widgets/views/groups/page/links.js";
import { cellUnder } from "../../../dtfm_lab/widgets/views/groups/page/matrix.js";
import { layout } from "../../../dtfm_lab/widgets/views/groups/page/places.js";
import { change, counted, deviceWords, edgeWords, groupWords, verdict } from "../../../dtfm_lab/widgets/views/groups/page/words.js";
import { plotted } from "../../../dtfm_lab/widgets/views/losses/page/plot.js";
import { viewOf } from "../../../dtfm_lab/widgets/views/matrix/page/frame.js";
import { cellWords } from "../../../dtfm_lab/widgets/views/matrix/page/words.js";
import { scaleOf, signed } from "../../../dtfm_lab/widgets/views/residuals/page/bar.js";
import { sorted } from "../../../dtfm_lab/widgets/views/residuals/page/order.js";
import { keyOf } from "../../../dtfm_lab/widgets/views/tabs/page/keys.js";
/** @import { Row } from "../../../dtfm_lab/widgets/views/residuals/types.d.ts" */

test("the first ten tabs have keys, and no further one claims the key of another", () => {
  assert.deepEqual([0, 8, 9, 10, 25].map(keyOf), ["1", "9", "0", null, null]);
});

test("points of a frontier lie on its axes, logarithmic where they differ much", () => {
  const even = scale([1, 2, 3], 0, 100),
    steep = scale([1, 10, 100], 0, 100);
  assert.ok([1, 2, 3].every((value) => even.at(value) > 0 && even.at(value) < 100));
  assert.ok(Math.abs(steep.at(10) - 50) < 1e-9);
  assert.deepEqual(steep.marks(6), [1, 2, 5, 10, 20, 50, 100]);
});

test("a search's rows can be taken back, and are found by what was spent", () => {
  const curve = new Curve();
  curve.change(0, Float32Array.of(1, 0.1, 9, 2, 0, 5, 0.5, 7, 3, 8));
  assert.deepEqual([curve.length, curve.last("best"), curve.has("median")], [2, 7, true]);
  assert.equal(curve.rowAt("evaluations", 4)?.best, 9);
  assert.equal(curve.rowAt("evaluations", 0), null);
  assert.ok(Number.isNaN(curve.column("median")[0])); // 0 is none
  curve.change(1, Float32Array.of(6, 0.6, 6, 4, 7));
  assert.deepEqual([curve.length, curve.last("best")], [2, 6]);
  const other = new Curve();
  other.change(0, Float32Array.of(1, 0.1, 9, 5, 0));
  assert.equal(
    bestBounded(
      new Map([
        ["one", curve],
        ["other", other],
      ]),
    ),
    other,
  );
});

const THEME = {
  text: "#000000",
  softText: "#666666",
  surface: "#ffffff",
  raised: "#eeeeee",
  border: "#bbbbbb",
  softBorder: "#dddddd",
  dark: false,
  font: "12px sans-serif",
};

test("a chart of losses has room for what is still to come", () => {
  const chart = plotted(
    { training: [3, 2.5, 2.2], heldOut: [[2, 2.6]], slim: false, unit: "nats per token", first: 10, total: 100, reference: null, marks: [] },
    THEME,
  );
  assert.deepEqual([chart.x.low, chart.x.high], [10, 42]);
  assert.ok(chart.y.low < 2.2 && chart.y.high > 3);
  assert.deepEqual(
    chart.ends.map(({ text }) => text),
    ["2.20", "2.60"],
  );
});

/** @type {(label: string, error: number) => Row} */
const row = (label, error) => ({
  id: label,
  label,
  predicted_s: 1,
  measured_s: 1 + error,
  error_s: error,
  relative: error,
  second_s: null,
  low_s: null,
  high_s: null,
  stage: 0,
  suspect: false,
});

test("errors are sorted by size, names as people count", () => {
  const rows = [row("node-10", -3), row("node-9", 1), row("node-2", 2)];
  assert.equal(sorted(rows, "suspicion", true), rows);
  assert.deepEqual(
    sorted(rows, "error_s", true).map(({ label }) => label),
    ["node-10", "node-2", "node-9"],
  );
  assert.deepEqual(
    sorted(rows, "label", false).map(({ label }) => label),
    ["node-2", "node-9", "node-10"],
  );
  assert.deepEqual(
    sorted([row("a", NaN), row("b", 1)], "error_s", true).map(({ label }) => label),
    ["b", "a"],
  );
});

test("all bars of residuals share a scale, with zero on it", () => {
  const { at } = scaleOf([row("a", -3), row("b", 1)]);
  assert.ok(at(-3) >= 0 && at(-3) < at(0) && at(0) < at(1) && at(1) <= 100);
  assert.deepEqual([signed(0.5), signed(-2)], ["+500 ms", "−2 s"]);
});

test("the matrix is zoomed about a cell, and never left", () => {
  const view = viewOf(
    () => 100,
    () => {},
  );
  view.reset();
  assert.ok(view.whole);
  view.zoom(0.5, 20, 60);
  assert.deepEqual([view.span, view.x, view.y], [50, 10, 30]);
  view.pan(-1e3, 1e3);
  assert.deepEqual([view.x, view.y], [0, 50]);
  view.reach(0, 99);
  assert.ok(view.x + view.span > 99 && view.y <= 0.5);
});

test("a cell says its numbers and where they come from", () => {
  const data = {
    names: ["ada", "eve"],
    latency: Float32Array.of(0, 67, 67, 0),
    bandwidth: Float32Array.of(0, 0.5, 0.5, 0),
    origin: Uint8Array.of(0, 3, 2 + 8, 0),
    edges: [0, 1, 2],
    filled: [],
    regionAt: (/** @type {number} */ at) => ["Oregon", "Tokyo"][at],
  };
  assert.equal(cellWords(data, 0, 1), "ada → eve: 67 ms, 0.5 Gbit/s (between Oregon and Tokyo)");
  assert.equal(cellWords(data, 1, 0), "eve → ada: ≈ 67 ms, 0.5 Gbit/s (between Tokyo and Oregon by distance, capped by a NIC)");
  assert.equal(cellWords(data, 1, 1), "eve: a device with itself");
});

/** @type {(n: number, size: number) => import("../../../dtfm_lab/widgets/views/groups/types.d.ts").Group[]} */
const groups = (n, size) =>
  Array.from({ length: n }, (_, stage) => ({ stage, devices: Array.from({ length: size }, (__, at) => `${stage}/${at}`), cost_s: 1 }));

test("groups stand apart, and their devices inside of them", () => {
  for (const [n, size] of [
    [2, 3],
    [6, 4],
    [12, 8],
    [40, 2],
  ]) {
    const placed = layout({ groups: groups(n, size), idle: ["idle"], network: {} }, 900, 600);
    placed.groups.forEach((a, at) =>
      placed.groups.slice(at + 1).forEach((b) => assert.ok(Math.hypot(a.x - b.x, a.y - b.y) >= 2 * Math.min(a.open, b.open) - 1e-9)),
    );
    for (const [name, { x, y }] of placed.devices.b) {
      const group = placed.groups[Number(name.split("/")[0])];
      if (group) assert.ok(Math.hypot(x - group.x, y - group.y) <= group.open + 1e-9);
    }
    assert.equal(placed.devices.c.size, n * size + 1);
  }
});

test("links lie between their devices, and are found there", () => {
  const network = {
    devices: [
      { name: "a", x: 0, y: 0 },
      { name: "b", x: 1, y: 0 },
    ],
    links: /** @type {any} any: a row of numbers */ ([[0, 1, 0.5, 10, 1, 10, 1]]),
  };
  const [link] = linksIn(network, layout({ groups: [], idle: ["a", "b"], network }, 400, 300));
  assert.equal(linkUnder([link], (link.from.x + link.to.x) / 2, link.from.y + 2), link);
  assert.equal(linkUnder([link], link.from.x, link.from.y + 50), null);
  assert.deepEqual(cellUnder({ left: 10, top: 10, cell: 20, n: 2, order: [1, 0] }, 35, 15), [1, 0]);
  assert.equal(cellUnder({ left: 10, top: 10, cell: 20, n: 2, order: [1, 0] }, 5, 15), null);
});

test("prices are said with a sign, and what a group is in words", () => {
  assert.deepEqual([change(0.5, 10), change(-0.003, 0.5), change(0, 10)], ["+0.50 s", "−3 ms", "no change"]);
  assert.deepEqual([verdict(1, 10).kind, verdict(-1, 10).kind, verdict(0, 10).kind], ["worse", "better", "same"]);
  const [one, two] = groups(2, 2);
  assert.equal(groupWords({ ...one, letter: "A" }, "b"), "Group A · 2 devices · 1 s");
  assert.equal(edgeWords([one, two], 0, 1, 2, "e"), "Stage 0 to stage 1, 2 s");
  assert.equal(deviceWords("0/1", { groups: [one, two], network: {}, places: new Map([["0/1", { stage: 0, replica: 1 }]]) }), "0/1\nstage 0, pipeline 1");
  assert.equal(counted(1234, "device"), "1,234 devices");
});
