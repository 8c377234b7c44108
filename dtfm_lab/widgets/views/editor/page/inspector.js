// What the side panel says of a selection, and what each of its fields does to the document.
import { duplicateDevices, duplicateRegions } from "./copies.js";
import * as docs from "./document.js";
import { takenApart } from "./hosts.js";
import * as lines from "./lines.js";
/** @import { Conditions, Device, Document, Filled } from "shared/types.d.ts" */
/** @import { Action, Chosen, Edit, Ends, Field, Found, LineKind, Section, Selection } from "../types.d.ts" */

const NO_REGION = "";

/**
 * `edit(document, chosen)` makes a change; `chosen` says what to select after it, if not the same. `peek` is the
 * way [a, b] that is looked at without being drawn, `facing` the way from which a pair was looked at, or null.
 * @type {(document: Document, chosen: Selection, look: { peek: Ends | null, facing: Ends | null, gpus: string[], filled: Filled[] }, edit: Edit) => Section[]}
 */
export function describe(document, chosen, { peek, facing, gpus, filled }, edit) {
  const { devices, regions, links, pairs } = chosen;
  /** @type {Section[]} */
  const sections = [];
  /** @type {(ends: Ends | null) => Ends | null} */
  const faced = (ends) => (ends && facing && lines.samePair(ends, facing) ? facing : ends);
  const link = faced(links.length === 1 ? links[0].ends : peek);
  const pair = faced(pairs.length === 1 ? pairs[0].ends : regions.length === 2 ? regions : null);
  if (links.length > 1) sections.push(linesSection(document, "link", links, edit));
  else if (link) sections.push(lineSection(document, "link", link, filled, edit));
  if (pairs.length > 1) sections.push(linesSection(document, "pair", pairs, edit));
  else if (pair) sections.push(lineSection(document, "pair", pair, filled, edit));
  if (devices.length) sections.push(deviceSection(document, devices, gpus, edit));
  if (regions.length) sections.push(regionSection(document, regions, edit));
  const subject = JSON.stringify([chosen, peek]);
  return (sections.length ? sections : [defaultSection(document, edit)]).map((section) => ({ ...section, subject }));
}

/** @type {(document: Document, names: string[], gpus: string[], edit: Edit) => Section} */
function deviceSection(document, names, gpus, edit) {
  const devices = names.flatMap((name) => docs.named(document.devices, name) ?? []);
  const known = [...new Set([...gpus, ...devices.map((device) => device.gpu)])].filter(Boolean);
  /** @type {(part: Partial<Device>) => void} */
  const change = (part) => edit(docs.changeDevices(document, names, part));
  /** @type {(name: string, label: string, key: "price_per_hour" | "uplink_gbps" | "downlink_gbps", what: string, wanted: string, holds: (value: number) => boolean, placeholder: string) => Field} */
  const own = (name, label, key, what, wanted, holds, placeholder) => ({
    name,
    label,
    kind: "number",
    half: true,
    placeholder,
    values: devices.map((device) => device[key] ?? ""),
    take: (text) => (text === "" ? change({ [key]: undefined }) : (refuseNumber(text, what, wanted, holds) ?? change({ [key]: Number(text) }))),
  });
  /** @type {Field[]} */
  const fields = [
    {
      name: "gpu",
      label: "GPU",
      kind: "choice",
      values: devices.map((device) => device.gpu),
      options: known.map((gpu) => [gpu, gpu]),
      take: (gpu) => change({ gpu, price_per_hour: undefined }), // a new GPU model brings its own price
    },
    {
      name: "region",
      label: "Region",
      kind: "choice",
      values: devices.map((device) => device.region),
      options: [[NO_REGION, "(none)"], ...document.regions.map(({ name }) => /** @type {[string, string]} */ ([name, name]))],
      take: (region) => change({ region }),
    },
    {
      name: "host",
      label: "Host",
      kind: "text",
      values: devices.map((device) => device.host ?? ""),
      take: (host) => change({ host: host.trim() || undefined }), // devices of one host share its NIC
    },
    {
      ...own("price", "Price (per hour)", "price_per_hour", "Price", "a number per hour, 0 or more", (value) => value >= 0, "unknown"),
      half: false,
      values: devices.map((device) => priceOf(document, device)),
    },
    own("uplink", "Uplink (Gbit/s)", "uplink_gbps", "Uplink", "a number of Gbit/s above 0", (value) => value > 0, "no cap"),
    own("downlink", "Downlink (Gbit/s)", "downlink_gbps", "Downlink", "a number of Gbit/s above 0", (value) => value > 0, "no cap"),
  ];
  /** @type {(device: Device) => number} */
  const gpusOf = (device) => device.members?.length ?? 1;
  const total = devices.reduce((sum, device) => sum + gpusOf(device), 0);
  if (total > names.length)
    fields.splice(
      fields.findIndex(({ name }) => name === "host"),
      1,
    ); // it is the host
  /** @type {Action} */
  const duplicate = {
    label: "Duplicate",
    hint: "Copies with new names and the same links (Ctrl+D)",
    press: () => duplicated(duplicateDevices(document, names), "devices", edit),
  };
  const actions = [duplicate];
  if (total > names.length) {
    const members = devices.flatMap((device) => device.members ?? [device.name]);
    const press = () => edit(takenApart(document, names), { devices: members });
    actions.push({ label: "Separate", hint: "Draw each device by itself, to change it alone", press });
  }
  if (names.length > 1) return { title: total > names.length ? `${names.length} hosts, ${total} devices` : `${names.length} devices`, fields, actions };
  /** @type {(to: string) => string | null | void} */
  const rename = (to) => refuseName(document.devices, names[0], to, "device") ?? edit(docs.renameDevice(document, names[0], to), { devices: [to] });
  return {
    title: total > 1 ? `Host of ${total} devices` : "Device",
    fields: [{ name: "device-name", label: "Name", kind: "text", values: names, take: rename }, ...fields],
    actions,
  };
}

/**
 * Its own price, or that of another device with its GPU.
 * @type {(document: Document, device: Device) => number | ""}
 */
const priceOf = (document, device) =>
  device.price_per_hour ?? document.devices.find((one) => one.gpu === device.gpu && one.price_per_hour)?.price_per_hour ?? "";

/** @type {(copies: [Document, string[]], kind: "devices" | "regions", edit: Edit) => void} */
const duplicated = ([document, names], kind, edit) => edit(document, { [kind]: names });

/** @type {(document: Document, names: string[], edit: Edit) => Section} */
function regionSection(document, names, edit) {
  const regions = names.flatMap((name) => docs.named(document.regions, name) ?? []);
  const members = document.devices.filter((device) => names.includes(device.region)).map((device) => device.name);
  const actions = [
    { label: "Select devices", hint: "All devices of it (double click on the box)", press: () => edit(document, { devices: members }) },
    { label: "Duplicate", hint: "With its devices and its pairs (Ctrl+D)", press: () => duplicated(duplicateRegions(document, names), "regions", edit) },
  ];
  const fields = conditionFields(regions, (change) => edit(docs.changeRegions(document, names, change)));
  const notes = [`Latency and bandwidth between the ${members.length === 1 ? "one device" : `${members.length} devices`} inside.`];
  if (document.fill === "drawn")
    notes.push("To other regions by distance, unless a line says otherwise: cities as on the globe, others as drawn (100 pixels are 1,000 km).");
  if (names.length > 1) return { title: `${names.length} regions`, notes, fields, actions };
  /** @type {(to: string) => string | null | void} */
  const rename = (to) => refuseName(document.regions, names[0], to, "region") ?? edit(docs.renameRegion(document, names[0], to), { regions: [to] });
  return { title: "Region", notes, fields: [{ name: "region-name", label: "Name", kind: "text", values: names, take: rename }, ...fields], actions };
}

/**
 * One link or one pair of regions, in both directions, whether it is drawn or not.
 * @type {(document: Document, kind: LineKind, ends: Ends, filled: Filled[], edit: Edit) => Section}
 */
function lineSection(document, kind, ends, filled, edit) {
  const [a, b] = ends;
  const [there, back] = [
    [a, b],
    [b, a],
  ].map((way) => lines.conditionsOf(document, kind, way, filled));
  const even = there.latency_ms === back.latency_ms && there.bandwidth_gbps === back.bandwidth_gbps;
  const joined = even && there.line === back.line;
  const chosen = kind === "link" ? { links: [ends] } : { pairs: [ends] };
  /** @type {(way: Ends, both: boolean) => (change: Partial<Conditions>) => void} */
  const set = (way, both) => (change) => edit(lines.setConditions(document, kind, way, change, both, filled), chosen);
  const title = `${kind === "link" ? "Link" : "Region pair"} ${a} ${joined ? "–" : "→"} ${b}`;
  /** @type {(way: Found) => string[]} */
  const origin = (way) => (way.line ? [] : [`${capital(way.origin)}: type a number to give it its own.`]);
  const backFields = conditionFields(joined ? [] : [back], set([b, a], false), "back-", "same");
  /** @type {Action[]} */
  const actions = [];
  if (!joined) actions.push({ label: "Same both ways", hint: `As from ${a} to ${b}`, press: () => edit(lines.evenOut(document, kind, ends, filled), chosen) });
  if (there.line || back.line)
    actions.push({
      label: "As elsewhere",
      hint: "Remove its own numbers in both directions",
      press: () => edit(lines.clear(document, kind, ends), kind === "link" ? { devices: ends } : { regions: ends }),
    });
  return {
    title,
    fields: [
      ...conditionFields([there], set([a, b], joined)),
      ...notesOf(origin(there)),
      { kind: "heading", label: joined ? "Way back, if it differs" : `${b} → ${a}` },
      ...backFields,
      ...(joined ? [] : notesOf(origin(back))),
    ],
    actions,
    notes: kind === "pair" ? [`Between devices of ${a} and devices of ${b}.`] : [],
  };
}

/** @type {(texts: string[]) => Field[]} */
const notesOf = (texts) => texts.map((label) => ({ kind: "note", label }));
/** @type {(text: string) => string} */
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * Several drawn lines. Each keeps its directions.
 * @type {(document: Document, kind: LineKind, chosen: Chosen[], edit: Edit) => Section}
 */
function linesSection(document, kind, chosen, edit) {
  const selected = lines.linesOf(document, kind).filter((line) => lines.isChosen(line, chosen));
  /** @type {Field[]} */
  const fields = conditionFields(selected, (change) => edit(lines.changeLines(document, kind, chosen, change)));
  return { title: `${chosen.length} ${kind === "link" ? "links" : "region pairs"}`, fields };
}

/** @type {(document: Document, edit: Edit) => Section} */
function defaultSection(document, edit) {
  /** @type {Field[]} */
  const fields = [
    {
      name: "network-name",
      label: "Name of the network",
      kind: "text",
      values: [document.name],
      take: (/** @type {string} */ name) => (name ? edit({ ...document, name }) : "A network needs a name."),
    },
    { kind: "heading", label: "Any other pair of devices" },
    ...conditionFields([document.default], (change) => edit({ ...document, default: { ...document.default, ...change } })),
  ];
  const notes = ["For two devices without a link, a region or a pair of regions between them."];
  if (document.devices.length)
    notes.push("Click anything to edit it. Shift-click or shift-drag selects several.", "N and Shift+N go from device to device, / searches, arrows move.");
  return { title: "Network", fields, notes };
}

/** @type {(things: Conditions[], change: (part: Partial<Conditions>) => void, prefix?: string, placeholder?: string) => Field[]} */
function conditionFields(things, change, prefix = "", placeholder = undefined) {
  return [
    {
      name: `${prefix}latency`,
      label: "Latency (ms)",
      kind: "number",
      half: true,
      placeholder,
      values: things.map((thing) => thing.latency_ms),
      take: (text) => refuseNumber(text, "Latency", "a number of ms, 0 or more", (value) => value >= 0) ?? change({ latency_ms: Number(text) }),
    },
    {
      name: `${prefix}bandwidth`,
      label: "Bandwidth (Gbit/s)",
      kind: "number",
      half: true,
      placeholder,
      values: things.map((thing) => thing.bandwidth_gbps),
      take: (text) => refuseNumber(text, "Bandwidth", "a number of Gbit/s above 0", (value) => value > 0) ?? change({ bandwidth_gbps: Number(text) }),
    },
  ];
}

/** @type {(text: string, what: string, wanted: string, holds: (value: number) => boolean) => string | null} */
function refuseNumber(text, what, wanted, holds) {
  const value = text === "" ? NaN : Number(text);
  if (Number.isFinite(value) && holds(value)) return null;
  return `${what} must be ${wanted}; ${text === "" ? "nothing was" : `“${text}” was`} entered.`;
}

/** @type {(things: { name: string }[], from: string, to: string, kind: string) => string | null} */
function refuseName(things, from, to, kind) {
  if (!to) return `A ${kind} needs a name.`;
  if (to !== from && docs.named(things, to)) return `There is already a ${kind} named “${to}”.`;
  return null;
}
