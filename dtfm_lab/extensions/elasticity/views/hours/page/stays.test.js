import assert from "node:assert/strict";
import { test } from "node:test";
import { moved } from "./stays.js";

test("an end of a stay stops at its neighbours, and a stay keeps some length", () => {
  /** @type {[number, number, number][]} */
  const stays = [
    [0, 0, 10],
    [0, 20, 30],
    [1, 5, 50],
  ];
  assert.deepEqual(moved(stays, { index: 0, device: 0, leaves: true }, 99, 100), [0, 0, 20]);
  assert.deepEqual(moved(stays, { index: 1, device: 0, leaves: false }, -1, 100), [0, 10, 30]);
  assert.deepEqual(moved(stays, { index: 1, device: 0, leaves: true }, 99, 100), [0, 20, 99]);
  assert.deepEqual(moved(stays, { index: 2, device: 1, leaves: true }, 0, 100), [1, 5, 5.05]);
});
