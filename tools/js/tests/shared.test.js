// Numbers, links, names and colours that all views share.
import assert from "node:assert/strict";
import { test } from "node:test";
import { compact, dollars, figures, logTicks, seconds, tickLabel, ticks } from "../shared/axis.js";
import { typed } from "../shared/dom.js";
import { gpuShape } from "../shared/gpus.js";
import { draggedGbps, draggedMs } from "../shared/link_drag.js";
import { linkDash, linkText, linkWidth, short } from "../shared/links.js";
import { playbackAt } from "../shared/playback.js";
import { shortened } from "../shared/text.js";
import { inkOn, isDark, rampColor, stageColor } from "../shared/theme.js";
import { meaning } from "../shared/words.js";

test("ticks are round, in order and inside", () => {
  assert.deepEqual(ticks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(3, 3), [3]);
  for (const [low, high] of [
    [0.13, 7.9],
    [-4, 9],
    [1e-7, 3e-7],
    [12345, 98765],
  ]) {
    const marks = ticks(low, high, 6);
    assert.ok(marks.length >= 2 && marks.length <= 14);
    assert.ok(marks.every((mark, at) => mark >= low - 1e-9 * high && mark <= high * (1 + 1e-9) && (!at || mark > marks[at - 1])));
  }
});

test("ticks of a logarithmic axis are powers of ten, with 2s and 5s where there are few", () => {
  assert.deepEqual(logTicks(1, 100), [1, 2, 5, 10, 20, 50, 100]);
  assert.deepEqual(logTicks(1, 1e4), [1, 10, 100, 1000, 10000]);
});

test("neighbouring ticks read differently", () => {
  for (const step of [0.001, 0.02, 0.5, 1, 200]) assert.notEqual(tickLabel(step, step), tickLabel(2 * step, step));
  assert.equal(tickLabel(1234.5, 0.5), "1,234.5");
});

test("numbers read as people write them", () => {
  assert.deepEqual([figures(0.1), figures(12.34), figures(1234)], ["0.1", "12.3", "1,234"]);
  assert.equal(compact(1234567), "1.23M");
  assert.deepEqual([dollars(1234), dollars(12.3), dollars(0.0123), dollars(Infinity)], ["$1,234", "$12.30", "$0.0123", "–"]);
  assert.deepEqual(
    [seconds(113.4), seconds(3.21), seconds(0.389), seconds(0.0000456), seconds(NaN), seconds(0)],
    ["113.4 s", "3.21 s", "389 ms", "45.6 µs", "–", "0 s"],
  );
  const asPython = ["1.226 s", "12.34 s", "0.9996 s", "1 ms", "50 µs", "0 s"]; // what format_s writes
  assert.deepEqual([1.2264, 12.344, 0.99962, 0.9996e-3, 5e-5, 1e-10].map(seconds), asPython);
  assert.deepEqual([119.94, 119.96, 725, 3599.6, 5278, 86399, 183_600, 1e8, -725].map(seconds), [
    "119.9 s",
    "2 min",
    "12 min 5 s",
    "1 h",
    "1 h 28 min",
    "1 d",
    "2 d 3 h",
    "1,157 d 10 h",
    "-12 min 5 s",
  ]);
  assert.deepEqual([short(0.5234), short(1234.5), short(12e6), short(Infinity)], ["0.523", "1,235", "1.2e7", "∞"]);
  assert.deepEqual(linkText(0.52, 96), ["0.52 Gbit/s", "96 ms"]);
});

test("a faster link is wider, a slower answer has shorter dashes", () => {
  const widths = [0.01, 0.1, 1, 10, 100].map(linkWidth);
  assert.ok(widths.every((width, at) => !at || width >= widths[at - 1]));
  assert.deepEqual([0, 50, 100, 500].map(linkDash), [[], [10, 4], [5, 4], [1.5, 5]]);
});

test("a drag there and back leaves a link as it was, within its limits", () => {
  for (const gbps of [0.01, 1, 40]) assert.equal(draggedGbps(draggedGbps(gbps, 130), -130), gbps);
  assert.equal(draggedGbps(1, 130), 10);
  assert.equal(draggedGbps(1, 1e5), 400);
  assert.equal(draggedMs(0, -1e5), 0);
  assert.equal(draggedMs(0, 0), 0);
});

test("a name keeps the end that tells it apart", () => {
  /** @type {(most: number) => (text: string) => boolean} */
  const within = (most) => (text) => text.length <= most;
  assert.equal(shortened("node-17", within(7)), "node-17");
  assert.equal(shortened("frankfurt-17", within(8)), "fran…-17");
  assert.equal(shortened("site b", within(4)), "s… b");
});

test("devices of a kind have one shape", () => {
  assert.deepEqual(["A100 80GB", "RTX 4090", "RTX A6000", "M2", "", undefined].map(gpuShape), ["circle", "triangle", "circle", "box", "box", "box"]);
});

test("a binary trait becomes an array whatever its alignment", () => {
  const bytes = new Uint8Array([9, 1, 0, 2, 0]).buffer;
  assert.deepEqual([...typed(new DataView(bytes, 1), Uint16Array)], [1, 2]);
  assert.deepEqual([...typed(new Uint16Array([3, 4]).buffer, Uint16Array)], [3, 4]);
  assert.equal(typed(null, Float32Array).length, 0);
});

test("what goes on at a moment is what has begun and not ended", () => {
  const rows = new Float32Array([0, 2, 0, 0, -1, 1, 3, 1, 0, 1, 4, 5, 0, 1, -1]);
  assert.deepEqual(playbackAt(rows, 1.5), {
    computing: [{ device: 0, kind: "forward", share: 0.75 }],
    messages: [{ source: 0, target: 1, kind: "backward", share: 0.25 }],
  });
  assert.deepEqual(playbackAt(rows, 3.5), { computing: [], messages: [] });
});

test("stages have a colour each, on which their number can be read", () => {
  for (const dark of [false, true])
    for (const n of [1, 2, 8, 32]) {
      const colors = Array.from({ length: n }, (_, stage) => stageColor(stage, n, dark));
      assert.equal(new Set(colors).size, n);
      for (const color of colors) assert.match(color, /^#[0-9A-F]{6}$/);
    }
  assert.equal(inkOn("#FFFFFF"), "#1B0F1D");
  assert.equal(inkOn("#000000"), "#ffffff");
  assert.deepEqual(["#fff", "#ffffff", "#111", "#1b0f1d", "red"].map(isDark), [false, false, true, true, false]);
  assert.deepEqual([rampColor(0), rampColor(1), rampColor(7)], ["#fde725", "#440154", "#440154"]);
});

test("a word is found in any of its forms", () => {
  /** @type {[Record<string, string>, Record<string, string>]} */
  const tables = [{ stage: "A part." }, { "pipeline stage": "stage" }];
  for (const form of ["stage", " Stage ", "stages", "pipeline stage"]) assert.equal(meaning(form, tables), "A part.");
  assert.equal(meaning("nonesuch", tables), undefined);
});
