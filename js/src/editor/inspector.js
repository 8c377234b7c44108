// What the side panel says of a selection, and what each of its fields does to the document.
import * as docs from "./document.js";

const NO_REGION = "";

/** `edit(document, chosen)` makes a change; `chosen` says what to select after it, if not the same. */
export function describe(document, chosen, gpus, edit) {
  const { devices, regions, links, pairs } = chosen;
  const sections = [];
  if (devices.length) sections.push(deviceSection(document, devices, gpus, edit));
  if (regions.length) sections.push(regionSection(document, regions, edit));
  if (links.length) sections.push(linkSection(document, links, edit));
  if (pairs.length) sections.push(pairSection(document, pairs, edit));
  const subject = JSON.stringify(chosen);
  return (sections.length ? sections : [defaultSection(document, edit)]).map((section) => ({ ...section, subject }));
}

function deviceSection(document, names, gpus, edit) {
  const devices = names.map((name) => docs.named(document.devices, name));
  const known = [...new Set([...gpus, ...devices.map((device) => device.gpu)])].filter(Boolean);
  const change = (key) => (value) => edit(docs.changeDevices(document, names, { [key]: value }));
  const fields = [
    { name: "gpu", label: "GPU", kind: "choice", values: devices.map((device) => device.gpu), options: known.map((gpu) => [gpu, gpu]), take: change("gpu") },
    {
      name: "region", label: "Region", kind: "choice", values: devices.map((device) => device.region),
      options: [[NO_REGION, "(none)"], ...document.regions.map(({ name }) => [name, name])], take: change("region"),
    },
  ];
  if (names.length > 1) return { title: `${names.length} devices`, fields };
  const rename = (to) => refuseName(document.devices, names[0], to, "device")
    ?? edit(docs.renameDevice(document, names[0], to), { devices: [to] });
  return { title: "Device", fields: [{ name: "device-name", label: "Name", kind: "text", values: names, take: rename }, ...fields] };
}

function regionSection(document, names, edit) {
  const regions = names.map((name) => docs.named(document.regions, name));
  const fields = conditionFields(regions, (change) => edit(docs.changeRegions(document, names, change)));
  const notes = ["Latency and bandwidth between devices inside the region."];
  if (names.length === 1) {
    const rename = (to) => refuseName(document.regions, names[0], to, "region")
      ?? edit(docs.renameRegion(document, names[0], to), { regions: [to] });
    return { title: "Region", notes, fields: [{ name: "region-name", label: "Name", kind: "text", values: names, take: rename }, ...fields] };
  }
  const connect = { label: "Connect regions", hint: "Give this pair of regions its own latency and bandwidth", press: () => edit(docs.connectRegions(document, names), { pairs: [names] }) };
  const connectable = names.length === 2 && !docs.findPair(document, names);
  return { title: `${names.length} regions`, notes, fields, actions: connectable ? [connect] : [] };
}

function linkSection(document, ends, edit) {
  const links = ends.map((end) => docs.findLink(document, end));
  const change = (part) => edit(docs.changeLinks(document, ends, part));
  const returns = links.some(({ source, target }) => docs.findLink(document, { source: target, target: source }));
  const oneWay = {
    name: "one-way", label: "One way", kind: "flag", values: links.map((link) => Boolean(link.one_way)),
    take: (value) => (!value && returns ? "The way back has a link of its own; delete that first." : change({ one_way: value })),
  };
  const fields = [...conditionFields(links, change), oneWay];
  if (links.length > 1) return { title: `${links.length} links`, fields };
  const [{ source, target, one_way }] = links;
  const swap = {
    label: "Swap direction",
    press: () => edit(docs.changeLinks(document, ends, { source: target, target: source }), { links: [{ source: target, target: source }] }),
  };
  return {
    title: "Link", fields, actions: one_way && !returns ? [swap] : [],
    notes: [one_way ? `From ${source} to ${target}.` : `Between ${source} and ${target}, both ways.`],
  };
}

function pairSection(document, pairs, edit) {
  const found = pairs.map((regions) => docs.findPair(document, regions));
  const fields = conditionFields(found, (change) => edit(docs.changePairs(document, pairs, change)));
  if (pairs.length > 1) return { title: `${pairs.length} region pairs`, fields };
  return { title: "Region pair", fields, notes: [`Between devices of ${pairs[0][0]} and devices of ${pairs[0][1]}.`] };
}

function defaultSection(document, edit) {
  const fields = conditionFields([document.default], (change) => edit({ ...document, default: { ...document.default, ...change } }));
  const notes = document.devices.length
    ? ["Used wherever no link, region or region pair says otherwise.", "Click a thing to edit it. Shift-click or shift-drag selects several."]
    : ["Press D and click to add devices. L links two by dragging. G makes a region of the selected ones."];
  return { title: "All other pairs", fields, notes };
}

function conditionFields(things, change) {
  return [
    {
      name: "latency", label: "Latency (ms)", kind: "number", values: things.map((thing) => thing.latency_ms),
      take: (text) => refuseNumber(text, "Latency", "a number of ms, 0 or more", (value) => value >= 0) ?? change({ latency_ms: Number(text) }),
    },
    {
      name: "bandwidth", label: "Bandwidth (Gbit/s)", kind: "number", values: things.map((thing) => thing.bandwidth_gbps),
      take: (text) => refuseNumber(text, "Bandwidth", "a number of Gbit/s above 0", (value) => value > 0) ?? change({ bandwidth_gbps: Number(text) }),
    },
  ];
}

function refuseNumber(text, what, wanted, holds) {
  const value = text === "" ? NaN : Number(text);
  if (Number.isFinite(value) && holds(value)) return null;
  return `${what} must be ${wanted}; ${text === "" ? "nothing was" : `“${text}” was`} entered.`;
}

function refuseName(things, from, to, kind) {
  if (!to) return `A ${kind} needs a name.`;
  if (to !== from && docs.named(things, to)) return `There is already a ${kind} named “${to}”.`;
  return null;
}
