import assert from "node:assert/strict";
import { test } from "node:test";
import { axisOf, stepOf, STEPS, valueAt } from "./axis.js";

test("a value and its step of the slider are each other's, to a few figures", () => {
  for (const [low, high, isLog] of /** @type {[number, number, boolean][]} */ ([
    [0, 100, false],
    [1, 1e4, true],
  ]))
    for (const step of [0, 250, 500, STEPS]) assert.ok(Math.abs(stepOf(valueAt(step, low, high, isLog), low, high, isLog) - step) <= 12);
  assert.equal(stepOf(-5, 1, 10, true), 0);
});

test("an axis holds guess and answer, wherever they lie", () => {
  for (const [values, low, high, isLog] of /** @type {[number[], number | null, number | null, boolean][]} */ ([
    [[3, 900], null, null, false],
    [[3, 4], null, null, false],
    [[-2, 7], null, null, false],
    [[5], 1, 10, true],
    [[50], 1, 10, false],
    [[7], 7, 7, false],
  ])) {
    const axis = axisOf(values, low, high, isLog);
    for (const value of values) assert.ok(axis.share(value) >= -1e-9 && axis.share(value) <= 1 + 1e-9);
    assert.ok(axis.ticks.length <= 8 && axis.ticks.length >= 1);
  }
});
