// Where rows and times are on the canvas. A unit is a stage or a device: its computations above, its messages
// below. The time axis is on top and stays there; units share the height, and scroll where they have too little.
/** @import { Arranged, GivenUnit, LaneBox, Lanes, Place, Unit } from "../types.d.ts" */

export const AXIS = 28;
const EDGE = 6;
const RIGHT = 14;
const WIDEST_LABELS = 168;
const LABELS_SHARE = 0.32; // of a narrow page that labels take at most
export const BADGE = 10; // radius of a stage's number
const LEAST = { member: 15, stacked: 22, single: 7 };
const MOST = { member: 30, stacked: 88, single: 48 }; // in a pane; few units do not become walls
const MEMBER_WEIGHT = 0.55;
const STACKED_MEMBER = 22; // a member's messages are drawn from this height on
const GHOST = 2; // pixels of the line of what was
const LOWEST_WITH_GHOST = 8;

/**
 * The units that are drawn, from top to bottom, each with its rows, and how deep it is; those of no unit of their own
 * go with the first of their device. `open` is the unit whose members are drawn, -1 for none.
 * @type {(given: { units: GivenUnit[], nRows: number, labels: string[], devices: string[], open: number }) => Arranged}
 */
export function arrange({ units, nRows, labels, devices, open }) {
  /** @type {GivenUnit[]} */
  const given = units.length
    ? units
    : Array.from({ length: nRows }, (_, row) => ({ label: labels[row] ?? `row ${row}`, rows: [row], device: devices[row] ?? "" }));
  /** @type {Unit[]} */
  const shown = [];
  /** @type {Map<number, number>} */
  const slotOf = new Map();
  /** @type {(unit: GivenUnit, fields: Pick<Unit, "id" | "depth" | "nMembers" | "isOpen" | "names">) => void} */
  const place = (unit, fields) => {
    const { label, device = "", stage = -1, replica = -1, tip = "" } = unit;
    const rows = unit.rows.filter((row) => row < nRows);
    for (const row of rows) slotOf.set(row, shown.length);
    shown.push({ label, device, stage, replica, tip, rows, ...fields });
  };
  given.forEach((unit, id) => {
    const { members = [] } = unit;
    place(unit, { id, depth: 0, nMembers: members.length, isOpen: id === open, names: [unit.device, ...members.map(({ device }) => device)] });
    if (id === open) for (const member of members) place(member, { id, depth: 1, nMembers: 0, isOpen: false, names: [member.device] });
    else for (const row of members.flatMap(({ rows }) => rows)) if (!slotOf.has(row)) slotOf.set(row, shown.length - 1);
  });
  return { shown, slotOf, hasBadges: shown.some(({ stage }) => stage >= 0) };
}

/**
 * The height of each unit: shares of the room, no less than it needs.
 * @type {(shown: Unit[], room: number, fill: boolean) => number[]}
 */
function heights(shown, room, fill) {
  /** @type {(unit: Unit) => "member" | "stacked" | "single"} */
  const kindOf = ({ depth, rows }) => (depth ? "member" : rows.length > 1 ? "stacked" : "single");
  const least = shown.map((unit) => LEAST[kindOf(unit)]);
  const most = shown.map((unit) => (fill ? MOST[kindOf(unit)] : Infinity));
  const weight = shown.map(({ depth }) => (depth ? MEMBER_WEIGHT : 1));
  /** @type {(number | null)[]} */
  const fixed = new Array(shown.length).fill(null);
  for (let turn = 0; turn < 4; turn++) {
    let [left, weights] = [room, 0];
    shown.forEach((_, slot) => {
      if (fixed[slot] === null) weights += weight[slot];
      else left -= fixed[slot];
    });
    const each = weights ? left / weights : 0;
    const before = fixed.slice();
    shown.forEach((_, slot) => {
      if (before[slot] !== null) return;
      if (each * weight[slot] < least[slot]) fixed[slot] = least[slot];
    });
    if (fixed.every((height, slot) => height === before[slot])) return shown.map((_, slot) => fixed[slot] ?? Math.min(most[slot], each * weight[slot]));
  }
  return fixed.map((height, slot) => height ?? least[slot]);
}

/**
 * `span` is the visible [from, to] in seconds, `scroll` by how many pixels the units are scrolled. With `ghost`, a line
 * under each lane has room.
 * @type {(look: { width: number, height: number, labelWidth: number, span: number[], ghost: boolean, lanes: Lanes, arranged: Arranged, scroll?: number, fill?: boolean }) => Place}
 */
export function layout({ width, height, labelWidth, span, ghost, lanes, arranged, scroll = 0, fill = false }) {
  const { shown, slotOf, hasBadges } = arranged;
  const wanted = Math.ceil(Math.max(24, labelWidth)) + 16 + (hasBadges ? 2 * BADGE + 12 : 0);
  const left = Math.min(WIDEST_LABELS, Math.round(LABELS_SHARE * width), wanted);
  const right = Math.max(left + 40, width - RIGHT);
  const top = AXIS;
  const bottom = height - EDGE;
  const rowsBottom = Math.max(top + 10, bottom);
  const each = heights(shown, rowsBottom - top, fill);
  const tops = new Float64Array(shown.length);
  let y = top - scroll;
  shown.forEach((_, slot) => {
    tops[slot] = y;
    y += each[slot];
  });
  const contentHeight = y + scroll - top;
  const [from, to] = span;
  const scale = (right - left) / (to - from || 1);
  /** @type {(slot: number) => number[]} */
  const rowsIn = (slot) => (shown[slot].depth && each[slot] < STACKED_MEMBER ? shown[slot].rows.slice(0, 1) : shown[slot].rows);

  /**
   * Top, height and ghost line of a row of a unit.
   * @type {(slot: number, index: number) => LaneBox}
   */
  function lane(slot, index) {
    const whole = each[slot];
    const pad = whole > 40 ? 4 : whole > 14 ? 1.5 : whole > 5 ? 0.5 : 0;
    const between = whole > 30 ? 2 : whole > 14 ? 1 : 0;
    const n = rowsIn(slot).length;
    const high = (whole - 2 * pad - (n - 1) * between) / n;
    const begin = tops[slot] + pad + index * (high + between);
    const hasRoom = ghost && high >= LOWEST_WITH_GHOST;
    const bars = hasRoom ? high - GHOST - 1 : high;
    return { top: begin, height: bars, ghostTop: begin + (hasRoom ? bars + 1 : bars - 1), ghostHeight: hasRoom ? GHOST : 1 };
  }

  /**
   * Top and height of a kind's bars in a row of a unit.
   * @type {(slot: number, index: number, kind: number) => [number, number]}
   */
  function bandIn(slot, index, kind) {
    const { top: begin, height: high } = lane(slot, index);
    const mine = lanes.of(kind);
    if (mine < 0) return [begin, Math.max(1, high)];
    const laneHeight = high / lanes.count(kind);
    return [begin + mine * laneHeight, Math.max(1, laneHeight - (mine + 1 < lanes.count(kind) && laneHeight > 6 ? 1 : 0))];
  }

  /** @type {(row: number) => [number, number] | null} */
  const spotOf = (row) => {
    const slot = slotOf.get(row);
    return slot === undefined ? null : [slot, Math.max(0, rowsIn(slot).indexOf(row))];
  };
  return {
    left,
    right,
    top,
    bottom,
    rowsBottom,
    from,
    to,
    scale,
    shown,
    contentHeight,
    rowsIn,
    lane,
    bandIn,
    hasBadges,
    labels: [],
    ticks: [],
    heightOf: (slot) => each[slot],
    slotTop: (slot) => tops[slot],
    x: (time) => left + (time - from) * scale,
    time: (x) => from + (x - left) / scale,
    isShown: (row) => {
      const slot = slotOf.get(row);
      return slot !== undefined && rowsIn(slot).includes(row);
    },
    slotOf: (row) => slotOf.get(row) ?? -1,
    /** Top and height of a kind's bars in a row. */
    band: (row, kind) => {
      const spot = spotOf(row);
      return spot ? bandIn(spot[0], spot[1], kind) : [top, 0];
    },
    middle(row) {
      const spot = spotOf(row);
      if (!spot) return top;
      const { top: begin, height: high } = lane(spot[0], spot[1]);
      return begin + high / 2;
    },
    slotAt: (height) => (height < top || height > rowsBottom ? -1 : tops.findLastIndex((begin, slot) => begin <= height && height < begin + each[slot])),
    /** Which unit, row and lane is at a height. */
    under(height) {
      const slot = this.slotAt(height);
      if (slot < 0) return null;
      const rows = rowsIn(slot);
      for (let index = rows.length - 1; index >= 0; index--) {
        const { top: begin, height: high } = lane(slot, index);
        if (height < begin && index) continue;
        const count = lanes.countIn(rows[index]);
        return { slot, row: rows[index], lane: Math.min(count - 1, Math.max(0, Math.floor(((height - begin) / high) * count))) };
      }
      return null;
    },
  };
}
