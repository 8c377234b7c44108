// What is lit of a scene when something is pointed at, in this view or in another.
import { pairKey } from "./scene.js";
/** @import { Pointed, Task } from "shared/types.d.ts" */
/** @import { Light, Scene, SceneDevice } from "../types.d.ts" */

/**
 * {device(name), line(line)} tell what is lit. Null if nothing is pointed at.
 * @type {(what: Pointed, scene: Pick<Scene, "hostOf" | "lines"> & { devices: Pick<SceneDevice, "name" | "task" | "members" | "cells" | "region">[] }) => Light | null}
 */
export function lightOf(what, scene) {
  if (!what) return null;
  /** @type {(test: (name: string, task: Task | null) => boolean) => Set<string>} */
  const of = (test) =>
    new Set(
      scene.devices.flatMap(({ name, task, members, cells }) => {
        const inside = members.filter((member, at) => test(member, cells[at]));
        if (inside.length) return [name, ...inside]; // the box of a host is lit with any of its cells
        return test(name, members.length ? null : task) ? [name, ...members] : [];
      }),
    );
  const ends = what.link?.map((name) => scene.hostOf.get(name) ?? name);
  const named = new Set(what.devices);
  const devices = what.devices
    ? of((name) => named.has(name))
    : ends
      ? of((name) => ends.includes(name))
      : Number.isInteger(what.stage)
        ? of((_name, task) => task?.[0] === what.stage)
        : of((_name, task) => task?.[1] === what.replica);
  const regions = new Set(scene.devices.filter(({ name }) => devices.has(name)).map(({ region }) => region));
  const link = ends && pairKey(ends);
  const drawn = link && scene.lines.some((line) => line.kind === "link" && pairKey(line.ends) === link);
  const single = scene.devices.filter(({ name }) => devices.has(name)).length === 1;
  return {
    device: (name) => devices.has(name),
    line(line) {
      if (link && drawn) return pairKey(line.ends) === link;
      const lit = line.kind === "pair" ? regions : devices;
      return single ? line.ends.some((end) => lit.has(end)) : line.ends.every((end) => lit.has(end));
    },
  };
}
