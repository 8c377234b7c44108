import assert from "node:assert/strict";
import { test } from "node:test";
import { allCauses } from "./causes.js";

test("a cause that only some system names is grey, and comes last", () => {
  const rows = [
    {
      parts: [
        ["compute", 1],
        ["checkpoints", 2],
      ],
    },
  ];
  const causes = allCauses([{ name: "compute", color: "#111111" }], /** @type {any} any: of a row only its parts are read */ (rows));
  assert.deepEqual(
    causes.map(({ name }) => name),
    ["compute", "checkpoints"],
  );
});
