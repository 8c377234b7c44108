// Lines: a link joins two devices, a pair joins two regions, both ways or one way. Also the numbers without a line.
/** @import { Between, Conditions, Document, Filled, Link } from "shared/types.d.ts" */
/** @import { Chosen, Ends, Found, LineKind, Line } from "../types.d.ts" */

/** @type {{ link: { list: "links", make: (ends: Ends, oneWay: boolean) => Partial<Link> }, pair: { list: "between", make: (ends: Ends, oneWay: boolean) => Partial<Between> } }} */
const KINDS = {
  link: { list: "links", make: ([source, target], oneWay) => ({ source, target, one_way: oneWay }) },
  pair: { list: "between", make: ([from, to], oneWay) => (oneWay ? { from, to } : { regions: [from, to] }) },
};

/** @type {(document: Document, kind: LineKind) => Line[]} */
export const linesOf = (document, kind) => document[KINDS[kind].list];

/** @type {(document: Document, kind: LineKind, lines: Line[]) => Document} */
const withLines = (document, kind, lines) => ({ ...document, [KINDS[kind].list]: lines });

/**
 * Both names. A one-way line's source comes first.
 * @type {(line: Line) => Ends}
 */
export const endsOf = (line) => line.regions ?? (line.from === undefined ? [line.source ?? "", line.target ?? ""] : [line.from, line.to ?? ""]);

/** @type {(line: Line) => boolean} */
export const isOneWay = (line) => !line.regions && (line.from !== undefined || Boolean(line.one_way));

/**
 * Whether two pairs of names are the same pair, either way round.
 * @type {(one: string[], other: string[]) => boolean}
 */
export const samePair = ([a, b], [c, d]) => (a === c && b === d) || (a === d && b === c);

/** @type {(line: Line, ends: Ends) => boolean} */
const joins = (line, ends) => samePair(endsOf(line), ends);

/** @type {(line: Line, ends: Ends) => boolean} */
const leads = (line, [a, b]) => {
  const [c, d] = endsOf(line);
  return a === c && b === d;
};

/** @type {(line: Conditions) => Conditions} */
const conditions = ({ latency_ms, bandwidth_gbps }) => ({ latency_ms, bandwidth_gbps });

/**
 * The line that sets the link from a to b: its one-way line, else the last two-way one, as in files.
 * @type {(document: Document, kind: LineKind, ends: Ends) => Line | null}
 */
export function lineOf(document, kind, ends) {
  const joining = linesOf(document, kind).filter((line) => joins(line, ends));
  return joining.filter((line) => isOneWay(line) && leads(line, ends)).at(-1) ?? joining.filter((line) => !isOneWay(line)).at(-1) ?? null;
}

/**
 * {latency_ms, bandwidth_gbps, line, origin} of the way from a to b: `line` is its own or null, `origin` says in
 * words where the numbers come from if it has none. `filled` are pairs of regions that a rule has filled.
 * @type {(document: Document, kind: LineKind, ends: Ends, filled: Filled[]) => Found}
 */
export function conditionsOf(document, kind, ends, filled) {
  const line = lineOf(document, kind, ends);
  if (line) return { ...conditions(line), line, origin: "" };
  if (kind === "link") return capped(document, ends, betweenDevices(document, ends, filled));
  const rule = filled.find((one) => joins(one, ends));
  if (rule) return { ...conditions(rule), line, origin: `by distance, ≈ ${Math.round(rule.distance_km).toLocaleString("en-US")} km` };
  return { ...conditions(document.default), line, origin: "as any other pair" };
}

/** @type {(document: Document, ends: Ends, filled: Filled[]) => Found} */
function betweenDevices(document, ends, filled) {
  const [a, b] = ends.map((name) => document.devices.find((device) => device.name === name)?.region || "");
  const inside = a && a === b ? document.regions.find((region) => region.name === a) : null;
  if (inside) return { ...conditions(inside), line: null, origin: `from inside ${a}` };
  if (!a || !b || a === b) return { ...conditions(document.default), line: null, origin: "as any other pair" };
  const pair = conditionsOf(document, "pair", [a, b], filled);
  return pair.line ? { ...pair, line: null, origin: `from the regions ${a} – ${b}` } : pair;
}

/**
 * NICs cap what regions and the default say.
 * @type {(document: Document, ends: Ends, found: Found) => Found}
 */
function capped(document, [a, b], found) {
  /** @type {(name: string) => Partial<import("shared/types.d.ts").Device>} */
  const device = (name) => document.devices.find((one) => one.name === name) ?? {};
  /** @type {[number, string][]} */
  const nics = [
    [device(a).uplink_gbps ?? Infinity, `the uplink of ${a}`],
    [device(b).downlink_gbps ?? Infinity, `the downlink of ${b}`],
  ];
  const [gbps, nic] = nics[0][0] <= nics[1][0] ? nics[0] : nics[1];
  return gbps < found.bandwidth_gbps ? { ...found, bandwidth_gbps: gbps, origin: `${found.origin}, capped by ${nic}` } : found;
}

/**
 * Own numbers from a to b, and with `both` for the way back, which otherwise stays unchanged.
 * @type {(document: Document, kind: LineKind, ends: Ends, change: Partial<Conditions>, both: boolean, filled: Filled[]) => Document}
 */
export function setConditions(document, kind, ends, change, both, filled) {
  const [a, b] = ends;
  const there = { ...conditions(conditionsOf(document, kind, ends, filled)), ...change };
  const line = lineOf(document, kind, [b, a]);
  const back = both ? there : line && conditions(line);
  return rewritten(document, kind, ends, there, back);
}

/**
 * The way back gets the numbers of the way there.
 * @type {(document: Document, kind: LineKind, ends: Ends, filled: Filled[]) => Document}
 */
export function evenOut(document, kind, ends, filled) {
  const there = conditions(conditionsOf(document, kind, ends, filled));
  return rewritten(document, kind, ends, there, there);
}

/** @type {(document: Document, kind: LineKind, ends: Ends, there: Conditions, back: Conditions | null) => Document} */
function rewritten(document, kind, ends, there, back) {
  const [a, b] = ends;
  const { make } = KINDS[kind];
  const lines = linesOf(document, kind);
  const held = lines.find((line) => joins(line, ends));
  const even = back && there.latency_ms === back.latency_ms && there.bandwidth_gbps === back.bandwidth_gbps;
  /** @type {Ends[]} */
  const order =
    held && leads(held, [b, a])
      ? [
          [b, a],
          [a, b],
        ]
      : [
          [a, b],
          [b, a],
        ];
  /** @type {(way: Ends) => Conditions | null} */
  const numbers = (way) => (way[0] === a ? there : back);
  /** @type {Line[]} */
  const fresh = even
    ? [{ ...make(order[0], false), ...there }]
    : order.flatMap((way) => {
        const own = numbers(way);
        return own ? [{ ...make(way, true), ...own }] : [];
      });
  const at = held ? lines.indexOf(held) : lines.length;
  /** @type {(line: Line) => boolean} */
  const kept = (line) => !joins(line, ends);
  return withLines(document, kind, [...lines.slice(0, at).filter(kept), ...fresh, ...lines.slice(at).filter(kept)]);
}

/**
 * Removes this pair's own numbers in both directions.
 * @type {(document: Document, kind: LineKind, ends: Ends) => Document}
 */
export const clear = (document, kind, ends) =>
  withLines(
    document,
    kind,
    linesOf(document, kind).filter((line) => !joins(line, ends)),
  );

/**
 * `chosen` are {ends, oneWay}; each names exactly one line.
 * @type {(line: Line, chosen: Chosen[]) => boolean}
 */
export const isChosen = (line, chosen) => chosen.some(({ ends, oneWay }) => oneWay === isOneWay(line) && (oneWay ? leads(line, ends) : joins(line, ends)));

/** @type {(document: Document, kind: LineKind, chosen: Chosen[], change: Partial<Conditions>) => Document} */
export function changeLines(document, kind, chosen, change) {
  return withLines(
    document,
    kind,
    linesOf(document, kind).map((line) => (isChosen(line, chosen) ? { ...line, ...change } : line)),
  );
}

/** @type {(document: Document, kind: LineKind, chosen: Chosen[]) => Document} */
export function removeLines(document, kind, chosen) {
  return chosen.length
    ? withLines(
        document,
        kind,
        linesOf(document, kind).filter((line) => !isChosen(line, chosen)),
      )
    : document;
}

/**
 * May a link be drawn from one device to another? Each direction holds one link at most.
 * @type {(document: Document, ends: Ends) => boolean}
 */
export const linkFits = (document, ends) => ends[0] !== ends[1] && !lineOf(document, "link", ends);

/**
 * A new line keeps the previous numbers, so drawing it changes nothing until it is edited.
 * @type {(document: Document, kind: LineKind, ends: Ends, filled: Filled[]) => Document}
 */
export function addLine(document, kind, ends, filled) {
  if (lineOf(document, kind, ends)) return document;
  const [there, back] = /** @type {Ends[]} */ ([ends, [ends[1], ends[0]]]).map((way) => conditions(conditionsOf(document, kind, way, filled)));
  return rewritten(document, kind, ends, there, back);
}
