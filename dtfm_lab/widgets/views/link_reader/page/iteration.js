// An iteration in a link: who waits for whom, and for how long. `still_page/linked.py` writes it.
import { FAMILIES, MOST_BARS, MOST_S, list, number, wanted, whole } from "./shapes.js";
/** @import { Traits } from "../types.d.ts" */

const [NOTHING, A_BAR, A_MESSAGE] = [0, 1, 2]; // what a bar waited for

/**
 * Signed numbers of seven bits per byte, in columns of these lengths.
 * @type {(bytes: Uint8Array, counts: number[]) => number[][]}
 */
function columnsOf(bytes, counts) {
  let at = 0;
  const columns = counts.map((count) =>
    Array.from({ length: count }, () => {
      let coded = 0;
      for (let scale = 1; ; scale *= 128) {
        wanted(at < bytes.length && scale <= 128 ** 6);
        coded += (bytes[at] & 127) * scale;
        if (bytes[at++] < 128) break;
      }
      return coded % 2 ? -(coded + 1) / 2 : coded / 2;
    }),
  );
  wanted(at === bytes.length);
  return columns;
}

/** @type {(column: number[]) => number[]} */
const summed = (column) => {
  let sum = 0;
  return column.map((one) => (sum += one));
};

/** @type {<A extends ArrayLike<number> & { buffer: ArrayBufferLike }>(ArrayType: { from: (values: number[]) => A }, values: number[]) => DataView} */
const bytesOf = (ArrayType, values) => new DataView(/** @type {ArrayBuffer} */ (ArrayType.from(values).buffer));

/**
 * The bars, messages and critical path of an iteration, for the chart and for the map.
 * @type {(data: any, bytes: Uint8Array, kinds: { family: string, message: boolean }[], nRows: number) => { gantt: Traits, playback: DataView, length_s: number }}
 */
export function iterationOf(data, bytes, kinds, nRows) {
  wanted(number(0, MOST_S)(data.tick_s) && list(whole(-1e12, 1e12), MOST_BARS)(data.ticks) && list(whole(0, MOST_BARS), 12, 12)(data.counts));
  const [n, m] = [data.counts[0], data.counts[8]];
  wanted(data.counts.every((/** @type {number} */ count, /** @type {number} */ at) => at === 11 || count === (at < 8 ? n : m)));
  const [rowSteps, kindSteps, microbatch, stages, what, which, wait, length, senders, target, transit, along] = columnsOf(bytes, data.counts);
  const [row, kind, sender] = [summed(rowSteps), summed(kindSteps), summed(senders)];
  const below = (/** @type {number[]} */ column, /** @type {number} */ most) => column.every((value) => value >= 0 && value < most);
  wanted(below(row, nRows) && below(kind, kinds.length) && below(target, nRows) && below(sender, n));
  wanted([wait, length, transit].every((column) => below(column, data.ticks.length)) && below(stages, 65_536) && below(what, 3));
  wanted(microbatch.every((value) => value >= -1 && value < 1e9) && along.every((value) => value < n && value >= -m));
  /** @type {number[]} */
  const message = []; // that each bar waits for
  let last = 0;
  for (let bar = 0; bar < n; bar++) {
    if (what[bar] === A_MESSAGE) last += which[bar];
    message.push(last);
    wanted(what[bar] === NOTHING || (what[bar] === A_BAR ? bar - which[bar] >= 0 && bar - which[bar] < n : last >= 0 && last < m));
  }
  const { start, end, arrives } = timesOf(
    (bar) => (what[bar] === NOTHING ? -1 : what[bar] === A_BAR ? bar - which[bar] : sender[message[bar]]),
    (bar) => (what[bar] === A_MESSAGE ? data.ticks[transit[message[bar]]] : 0) + data.ticks[wait[bar]],
    (bar) => data.ticks[length[bar]],
    (one, ends) => ends[sender[one]] + data.ticks[transit[one]],
    [n, m],
    data.tick_s,
  );
  const byTime = Array.from(sender.keys()).sort((a, b) => start[sender[a]] - start[sender[b]] || a - b);
  const ofMessages = (/** @type {number[]} */ column) => byTime.map((one) => column[one]); // of the messages
  const ofSenders = (/** @type {number[]} */ column) => byTime.map((one) => column[sender[one]]); // of the bars that send them
  const turn = /** @type {number[]} */ ([]); // of a message in the order in which they leave
  byTime.forEach((one, at) => (turn[one] = at));
  const after = row.map((_, bar) => (what[bar] === NOTHING ? -1 : what[bar] === A_BAR ? bar - which[bar] : -2 - turn[message[bar]]));
  const isBar = along.map((one) => one >= 0);
  const stops = { row: along.map((one) => (one >= 0 ? row[one] : target[-1 - one])), end: along.map((one) => (one >= 0 ? end[one] : arrives[-1 - one])) };
  return {
    gantt: {
      start: bytesOf(Float32Array, start),
      end: bytesOf(Float32Array, end),
      row: bytesOf(Uint16Array, row),
      kind: bytesOf(Uint8Array, kind),
      microbatch: bytesOf(Int32Array, microbatch),
      stage: bytesOf(Uint16Array, stages),
      after: bytesOf(Int32Array, after),
      messages: {
        source: bytesOf(Uint16Array, ofSenders(row)),
        target: bytesOf(Uint16Array, ofMessages(target)),
        leaves: bytesOf(Float32Array, ofSenders(end)),
        arrives: bytesOf(Float32Array, ofMessages(arrives)),
        kind: bytesOf(Uint8Array, ofSenders(kind)),
        microbatch: bytesOf(Int32Array, ofSenders(microbatch)),
      },
      path: {
        row: bytesOf(Uint16Array, stops.row),
        start: bytesOf(
          Float32Array,
          along.map((one, at) => (isBar[at] ? start[one] : stops.end[at])),
        ),
        end: bytesOf(Float32Array, stops.end),
        bar: bytesOf(
          Int32Array,
          along.map((one) => Math.max(one, -1)),
        ),
      },
    },
    ...played({ row, kind, start, end, sender, target, arrives }, kinds),
  };
}

/**
 * Start and end of each bar and the arrival of each message, in seconds: a bar begins when what it waits for is over.
 * @type {(before: (bar: number) => number, wait: (bar: number) => number, length: (bar: number) => number, arrival: (one: number, ends: number[]) => number, counts: number[], tick_s: number) => { start: number[], end: number[], arrives: number[] }}
 */
function timesOf(before, wait, length, arrival, [n, m], tick_s) {
  const [start, end] = [new Array(n).fill(NaN), new Array(n).fill(NaN)];
  for (let bar = 0; bar < n; bar++) {
    const chain = [];
    for (let one = bar; one >= 0 && Number.isNaN(end[one]); one = before(one)) {
      wanted(chain.length <= n); // else bars wait for each other
      chain.push(one);
    }
    for (const one of chain.reverse()) {
      start[one] = (before(one) < 0 ? 0 : end[before(one)]) + wait(one);
      end[one] = start[one] + length(one);
    }
  }
  const arrives = Array.from({ length: m }, (_, one) => arrival(one, end));
  for (const column of [start, end, arrives])
    column.forEach((ticks, at) => {
      column[at] = ticks * tick_s;
      wanted(column[at] >= -1e-6 && column[at] <= MOST_S);
    });
  return { start, end, arrives };
}

/**
 * The rows that the map plays, see `running/playback.py`: computations, and messages from the start of their send.
 * @type {(columns: Record<string, number[]>, kinds: { family: string, message: boolean }[]) => { playback: DataView, length_s: number }}
 */
function played({ row, kind, start, end, sender, target, arrives }, kinds) {
  const number = (/** @type {number} */ bar) => FAMILIES.indexOf(kinds[kind[bar]].family);
  /** @type {number[][]} */
  const rows = [];
  row.forEach((at, bar) => {
    if (!kinds[kind[bar]].message) rows.push([start[bar], end[bar], number(bar), at >> 1, -1]);
  });
  sender.forEach((bar, one) => rows.push([start[bar], arrives[one], number(bar), row[bar] >> 1, target[one] >> 1]));
  rows.sort(([a], [b]) => a - b);
  return { playback: bytesOf(Float32Array, rows.flat()), length_s: Math.fround(rows.reduce((most, [, until]) => Math.max(most, until), 0)) };
}
