// Places for devices that have none: regions as tidy blocks, blocks in rows.
import { moveDevices } from "./document.js";
/** @import { Document } from "shared/types.d.ts" */

const STEP = { x: 92, y: 74 }; // between neighbours, wide enough for a short name
const BLOCK_GAP = 90;

/**
 * Devices block by block, one block per region, in reading order.
 * @type {(document: Document) => Document}
 */
export function arranged(document) {
  const regions = [...new Set(document.devices.map((device) => device.region))];
  const blocks = regions.map((region) => {
    const members = document.devices.filter((device) => device.region === region);
    const columns = Math.ceil(Math.sqrt(members.length));
    const rows = Math.ceil(members.length / columns);
    return { members, columns, width: (columns - 1) * STEP.x, height: (rows - 1) * STEP.y };
  });
  const perRow = Math.max(1, Math.round(Math.sqrt(blocks.length * 1.7)));
  const pitch = Math.max(...blocks.map((block) => block.width), 0) + STEP.x + BLOCK_GAP;
  const places = new Map();
  for (let first = 0, top = 0; first < blocks.length; first += perRow) {
    const row = blocks.slice(first, first + perRow);
    row.forEach((block, index) =>
      block.members.forEach((device, at) =>
        places.set(device.name, {
          x: index * pitch + (at % block.columns) * STEP.x,
          y: top + Math.floor(at / block.columns) * STEP.y,
        }),
      ),
    );
    top += Math.max(...row.map((block) => block.height)) + STEP.y + BLOCK_GAP;
  }
  return moveDevices(document, places);
}

/**
 * The document itself if it says where its devices are, else arranged.
 * @type {(document: Document) => Document}
 */
export function placed(document) {
  const { devices } = document;
  const known = devices.every(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
  const apart = devices.length < 2 || devices.some(({ x, y }) => x !== devices[0].x || y !== devices[0].y);
  return known && apart ? document : arranged(document);
}
