// The topology document as a value: every edit is a function that returns a new one.
// Devices and regions are known by their names, so renaming one rewrites what refers to it.

/** The document with every part there, so that nothing below needs to ask. */
export function complete(document) {
  return {
    name: "untitled", devices: [], regions: [], between: [], links: [],
    ...document,
    default: { latency_ms: 50, bandwidth_gbps: 1, ...document?.default },
  };
}

export const named = (things, name) => things.find((thing) => thing.name === name);

export const samePair = ([a, b], [c, d]) => (a === c && b === d) || (a === d && b === c);

/** "device-1", "device-2", ...: the first that nobody has. */
export function freeName(things, stem) {
  const taken = new Set(things.map((thing) => thing.name));
  let number = 1;
  while (taken.has(`${stem}-${number}`)) number++;
  return `${stem}-${number}`;
}

/** Two names at once: what joins a pair of devices when nothing more special is said. */
export function conditionsBetween(document, source, target) {
  const regions = [source, target].map((name) => named(document.devices, name)?.region ?? "");
  const inside = regions[0] && regions[0] === regions[1] ? named(document.regions, regions[0]) : null;
  const pair = document.between.find((one) => samePair(one.regions, regions));
  const { latency_ms, bandwidth_gbps } = inside ?? pair ?? document.default;
  return { latency_ms, bandwidth_gbps };
}

export function addDevice(document, { region, gpu, x, y }) {
  const name = freeName(document.devices, "device");
  return [{ ...document, devices: [...document.devices, { name, region, gpu, x, y }] }, name];
}

export function changeDevices(document, names, change) {
  const chosen = new Set(names);
  return { ...document, devices: document.devices.map((device) => (chosen.has(device.name) ? { ...device, ...change } : device)) };
}

/** `places` maps a name to its {x, y}. */
export function moveDevices(document, places) {
  return { ...document, devices: document.devices.map((device) => ({ ...device, ...places.get(device.name) })) };
}

export function renameDevice(document, from, to) {
  const name = (one) => (one === from ? to : one);
  return {
    ...document,
    devices: document.devices.map((device) => ({ ...device, name: name(device.name) })),
    links: document.links.map((link) => ({ ...link, source: name(link.source), target: name(link.target) })),
  };
}

export function renameRegion(document, from, to) {
  const name = (one) => (one === from ? to : one);
  return {
    ...document,
    regions: document.regions.map((region) => ({ ...region, name: name(region.name) })),
    devices: document.devices.map((device) => ({ ...device, region: name(device.region) })),
    between: document.between.map((pair) => ({ ...pair, regions: pair.regions.map(name) })),
  };
}

export function changeRegions(document, names, change) {
  return { ...document, regions: document.regions.map((region) => (names.includes(region.name) ? { ...region, ...change } : region)) };
}

/** Puts devices in a region of their own; regions this empties go. It changes no latency but by name. */
export function groupDevices(document, names) {
  const name = freeName(document.regions, "region");
  const devices = document.devices.map((device) => (names.includes(device.name) ? { ...device, region: name } : device));
  const emptied = document.regions
    .map((region) => region.name)
    .filter((region) => document.devices.some((one) => one.region === region) && !devices.some((one) => one.region === region));
  const grown = { ...document, devices, regions: [...document.regions, { name, ...document.default }] };
  return [removeRegions(grown, emptied), name];
}

/** Takes the boxes of these regions away and leaves their devices where they are. */
export function removeRegions(document, names) {
  const gone = new Set(names);
  return {
    ...document,
    regions: document.regions.filter((region) => !gone.has(region.name)),
    devices: document.devices.map((device) => (gone.has(device.region) ? { ...device, region: "" } : device)),
    between: document.between.filter((pair) => !pair.regions.some((region) => gone.has(region))),
  };
}

export function removeDevices(document, names) {
  const gone = new Set(names);
  return {
    ...document,
    devices: document.devices.filter((device) => !gone.has(device.name)),
    links: document.links.filter((link) => !gone.has(link.source) && !gone.has(link.target)),
  };
}

/** May a link be drawn from one device to another? Each direction holds one link at most. */
export function linkFits(document, source, target) {
  if (source === target) return false;
  return !document.links.some((link) =>
    (link.source === source && link.target === target) || (!link.one_way && link.source === target && link.target === source));
}

/** A new link says what was true before, so that drawing it changes nothing until it is edited. */
export function addLink(document, source, target) {
  const returns = document.links.some((link) => link.source === target && link.target === source);
  const link = { source, target, ...conditionsBetween(document, source, target), one_way: returns };
  return { ...document, links: [...document.links, link] };
}

export const findLink = (document, { source, target }) =>
  document.links.find((link) => link.source === source && link.target === target);

export function changeLinks(document, ends, change) {
  const chosen = new Set(ends.map((end) => findLink(document, end)));
  return { ...document, links: document.links.map((link) => (chosen.has(link) ? { ...link, ...change } : link)) };
}

export function removeLinks(document, ends) {
  const gone = new Set(ends.map((end) => findLink(document, end)));
  return { ...document, links: document.links.filter((link) => !gone.has(link)) };
}

export const findPair = (document, regions) => document.between.find((pair) => samePair(pair.regions, regions));

export function connectRegions(document, regions) {
  if (findPair(document, regions)) return document;
  return { ...document, between: [...document.between, { regions, ...document.default }] };
}

export function changePairs(document, pairs, change) {
  const chosen = new Set(pairs.map((regions) => findPair(document, regions)));
  return { ...document, between: document.between.map((pair) => (chosen.has(pair) ? { ...pair, ...change } : pair)) };
}

export function removePairs(document, pairs) {
  const gone = new Set(pairs.map((regions) => findPair(document, regions)));
  return { ...document, between: document.between.filter((pair) => !gone.has(pair)) };
}

/** Deep equality of JSON values, whatever the order of their keys. */
export function same(one, other) {
  if (one === other) return true;
  if (!one || !other || typeof one !== "object" || typeof other !== "object") return false;
  const [keys, otherKeys] = [Object.keys(one), Object.keys(other)];
  return keys.length === otherKeys.length && keys.every((key) => same(one[key], other[key]));
}
