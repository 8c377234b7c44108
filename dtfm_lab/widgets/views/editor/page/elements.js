// Cytoscape's elements for a document. Cytoscape knows where things are and what is pressed, but paints nothing.
// Ids carry the kind of thing, so that a device and a region may share a name.
/** @import { Point } from "shared/types.d.ts" */
/** @import { Scene } from "../types.d.ts" */
/** @type {(name: string) => string} */
export const deviceId = (name) => `device:${name}`;
/** @type {(name: string) => string} */
export const regionId = (name) => `region:${name}`;

const EMPTY_REGION_STEP = 120;

/**
 * `restingPlaces` remembers where a region's box was before its last device left.
 * @type {(scene: Scene, restingPlaces: Map<string, Point>) => import("cytoscape").ElementDefinition[]}
 */
export function nodesOf(scene, restingPlaces) {
  let empties = 0;
  const boxes = scene.boxes.map(({ name, count }) => ({
    group: /** @type {const} */ ("nodes"),
    data: { id: regionId(name), kind: "region", name },
    classes: count ? "region" : "region empty",
    ...(count ? {} : { position: restingPlaces.get(name) ?? { x: EMPTY_REGION_STEP * empties++, y: -EMPTY_REGION_STEP } }),
  }));
  const dots = scene.devices.map(({ name, region, shape, x, y }) => ({
    group: /** @type {const} */ ("nodes"),
    data: { id: deviceId(name), kind: "device", name, shape, parent: region ? regionId(region) : undefined },
    classes: "device",
    position: { x, y },
  }));
  return [...boxes, ...dots];
}

/** @type {(scene: Scene) => import("cytoscape").ElementDefinition[]} */
export function edgesOf(scene) {
  const idOf = { link: deviceId, pair: regionId };
  return scene.lines.map(({ id, kind, ends, oneWay }) => ({
    group: /** @type {const} */ ("edges"),
    data: { id, kind, ends, oneWay, source: idOf[kind](ends[0]), target: idOf[kind](ends[1]) },
    classes: kind,
  }));
}
