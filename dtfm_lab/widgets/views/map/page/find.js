// What a person means who types a name.

/** Letters alone count: "zurich" is Zürich, as Python's find_place has it. */
const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();

/**
 * {name, place, devices} of the region, city or device of this name, or null. A city in which a region stands under
 * another name is that region. `standing(place)` is the region there, or undefined.
 */
export function finder({ text, regions, cities, devices, placeOf, standing }) {
  const wanted = plain(text);
  if (!wanted) return null;
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

/** Whether any city begins so: what is typed may still become one. */
export const mayBecome = (text, cities) => cities.some(({ name }) => plain(name).startsWith(plain(text)));
