// The first minute: handles, captions and the pulse.
import assert from "node:assert/strict";
import { test } from "node:test";
import { beatAt, pulsing } from "../shared/pulse.js";
import { remembers } from "../shared/memory.js";
import { captionAt } from "../../../dtfm_lab/widgets/views/player/page/captions.js";
import { split } from "../../../dtfm_lab/widgets/views/top_bar/page/handle.js";

test("a sentence is cut at its handle, and put together again it is the same", () => {
  const sentence = "Twice the bandwidth on this 0.1 Gbit/s link would save 4 %.";
  assert.deepEqual(split(sentence, "this 0.1 Gbit/s link"), ["Twice the bandwidth on ", "this 0.1 Gbit/s link", " would save 4 %."]);
  for (const words of ["", "this", "ada", "4 %."]) assert.equal(split(sentence, words).join(""), sentence);
  assert.deepEqual(split(sentence, "ada"), [sentence, "", ""]);
});

test("each caption is shown from its share of the iteration to the next one's", () => {
  const captions = [0, 0.4, 0.7].map((from, at) => ({ from, text: String(at), kinds: [] }));
  assert.deepEqual(
    [0, 0.39, 0.4, 0.7, 1].map((share) => captionAt(captions, share)?.text),
    ["0", "0", "1", "2", "2"],
  );
  assert.equal(captionAt([], 0.5), null);
});

test("a pulse beats, fades in each beat, and ends; with reduced motion there is none", () => {
  assert.equal(beatAt(-1), null);
  assert.deepEqual(beatAt(0), { grown: 0, strength: 1 });
  assert.equal(beatAt(1e6), null);
  let now = 0;
  const moved = pulsing(
      () => now,
      () => false,
    ),
    still = pulsing(
      () => now,
      () => true,
    );
  assert.equal(moved.on, false, "nobody has asked for it");
  for (const one of [moved, still]) one.begin();
  assert.deepEqual([moved.on, still.on], [true, false]);
  now = 1e6;
  assert.equal(moved.on, false);
});

test("what was seen is remembered, also where the browser stores nothing", () => {
  const one = remembers("something");
  assert.equal(one.has(), false);
  one.set();
  assert.equal(one.has(), true);
});
