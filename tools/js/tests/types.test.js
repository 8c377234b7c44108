// A trait by another name is a type error. tsc reads this file; each `@ts-expect-error` fails where there is no error.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { onTraits } from "../shared/dom.js";
/** @import { CleanUps, Model, Shaped } from "../shared/types.d.ts" */
/** @import { Door, PlayerView } from "../shared/traits.d.ts" */

/** @type {(model: Model<PlayerView>, cleanUp: CleanUps) => void} */
export function refused(model, cleanUp) {
  model.set("playing", !model.get("playing"));
  onTraits(model, ["playing", "length_s"], () => {}, cleanUp);
  // @ts-expect-error no such trait
  model.get("plays");
  // @ts-expect-error a number is wanted
  model.set("length_s", "6");
  // @ts-expect-error no such trait
  model.on("change:plays", () => {});
  // @ts-expect-error no such trait
  onTraits(model, ["plays"], () => {}, cleanUp);
}

/** @typedef {Shaped<Door, { cards: { name: string }[] }>} Known */
// @ts-expect-error no such trait
/** @typedef {Shaped<Door, { tickets: { name: string }[] }>} Unknown */

const FOLDERS = ["../shared", "../../../dtfm_lab/widgets", "../../../dtfm_lab/extensions"].map((path) => fileURLToPath(new URL(path, import.meta.url)));

test("no file of the views is left out of the check of types", () => {
  const files = FOLDERS.flatMap((folder) => {
    try {
      return readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => `${folder}/${name}`);
    } catch {
      return []; // no extensions
    }
  }).filter((path) => path.endsWith(".js") && !path.includes("/static/"));
  assert.ok(files.length > 100);
  for (const path of files) assert.doesNotMatch(readFileSync(path, "utf8"), /@ts-(nocheck|ignore)/, path);
});
