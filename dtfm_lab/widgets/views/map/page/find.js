// Finds what a typed name means.
/** @import { City, Device, Found, Place, Region } from "../types.d.ts" */

/**
 * Letters alone count: "zurich" is Zürich, as Python's find_place has it.
 * @type {(text: string) => string}
 */
const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();

/**
 * {name, place, devices} of the region, city or device of this name, or null. A city in which a region stands under
 * another name is that region. `standing(place)` is the region there, or undefined.
 * @type {(look: { text: string, regions: Region[], cities: City[], devices: Device[], placeOf: (name: string) => Place | null, standing: (place: Place) => Region | undefined }) => Found | null}
 */
export function finder({ text, regions, cities, devices, placeOf, standing }) {
  const wanted = plain(text);
  if (!wanted) return null;
  /** @type {(thing: { name: string }) => boolean} */
  const is = ({ name }) => plain(name) === wanted;
  const region = regions.find((one) => one.name === text.trim()) ?? regions.find(is);
  if (region) return { name: region.name, place: region.place, devices: region.devices };
  const city = cities.find(is);
  const device = devices.find((one) => one.name === text.trim()) ?? devices.find(is);
  if (device) return { name: device.region, place: placeOf(device.region), devices: [device] };
  const begins = city || wanted.length < 3 ? [] : cities.filter(({ name }) => plain(name).startsWith(wanted));
  const found = city ?? (begins.length === 1 ? begins[0] : null);
  if (!found) return null;
  const there = standing(found.place);
  return there ? { name: there.name, place: there.place, devices: there.devices } : { ...found, devices: [] };
}

/**
 * Whether any city begins so: what is typed may still become one.
 * @type {(text: string, cities: City[]) => boolean}
 */
export const mayBecome = (text, cities) => cities.some(({ name }) => plain(name).startsWith(plain(text)));
