import assert from "node:assert/strict";
import test from "node:test";
import { SLOW_MS, signOfLife } from "../../../dtfm_lab/widgets/views/top_bar/page/waiting.js";

/** A clock whose timers run when they are told to. */
function clockOf() {
  /** @type {Map<number, { work: () => void, ms: number }>} */
  const timers = new Map();
  let n = 0;
  return {
    timers,
    setTimeout: (/** @type {() => void} */ work, /** @type {number} */ ms) => (timers.set(++n, { work, ms }), n),
    clearTimeout: (/** @type {number} */ id) => timers.delete(id),
  };
}

test("Python that answers in time is not said to be busy, and one that does not is, until it answers", () => {
  const clock = clockOf(),
    /** @type {boolean[]} */ shown = [];
  let sent = 0;
  const { ask, answered } = signOfLife(
    () => sent++,
    (isLate) => shown.push(isLate),
    clock,
  );
  ask();
  ask();
  assert.equal(sent, 1, "one answer is enough");
  answered();
  assert.equal(clock.timers.size, 0);
  assert.deepEqual(shown, [false]);
  ask();
  const [{ work, ms }] = clock.timers.values();
  assert.equal(ms, SLOW_MS);
  work();
  assert.deepEqual(shown, [false, true]);
  answered();
  assert.deepEqual(shown, [false, true, false]);
});
