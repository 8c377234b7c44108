// Types that several views share. What Python sends is in traits.d.ts, which is generated.
import type { Binary } from "./traits.d.ts";

/** A trait's value or a message's buffer, as a view gets it. */
export type Bytes = Binary | ArrayBuffer | null | undefined;

/**
 * A message of the kernel, by its `kind`. Any: Python declares no types of messages, only of traits; what a view takes
 * out of one is given a type there.
 */
export type Message = { kind: string; [what: string]: any };

/** What may be told when the kernel has taken what was sent. */
export type Callbacks = { iopub: { status: (message: { content: { execution_state: string } }) => void } };

/** anywidget's model of a view with these traits: another name than theirs is a type error. */
export interface Model<T> {
  get<K extends keyof T & string>(name: K): T[K];
  set<K extends keyof T & string>(name: K, value: T[K]): void;
  save_changes(callbacks?: Callbacks): void;
  send(content: object, callbacks?: undefined, buffers?: ArrayBuffer[]): void;
  on(event: `change:${keyof T & string}`, handler: () => void): void;
  on(event: "msg:custom", handler: (message: Message, buffers: DataView[]) => void): void;
  off(event: `change:${keyof T & string}`, handler: () => void): void;
  off(event: "msg:custom", handler: (message: Message, buffers: DataView[]) => void): void;
  /** Any: JupyterLab's and Voila's managers have no common type, and other hosts of anywidget have none. */
  widget_manager: any;
}

/** What a view is given to draw itself; it returns what undoes that. */
export type Render<T> = (given: { model: Model<T>; el: HTMLElement }) => () => void;

/** Traits with what is in their dictionaries and lists; a name that is no trait is a type error. */
export type Shaped<T, S extends { [K in keyof S]: K extends keyof T ? T[K] : never }> = Omit<T, keyof S> & S;

/** Collects what a view must undo when it goes. */
export type CleanUps = { add: (step: () => void) => void };

export type Attribute = string | number | boolean | null | undefined;
export type Child = Node | string | null | undefined;
/** Any: each listener says which event it takes, and `on...` of an element has that. */
type Listener = (event: any) => unknown;
type Listeners<E> = { [K in keyof HTMLElementEventMap as `on${K}`]?: (event: HTMLElementEventMap[K] & { currentTarget: E }) => unknown };
/** Attributes of an element, and its listeners as `on...`. */
export type Properties<E = HTMLElement> = Listeners<E> & { [name: string]: Attribute | Listener };

/** The colours in force where an element stands. */
export type Theme = {
  text: string;
  softText: string;
  surface: string;
  raised: string;
  border: string;
  softBorder: string;
  dark: boolean;
  font: string;
};

export type Context = CanvasRenderingContext2D;
export type Paint = (context: Context, width: number, height: number, theme: Theme) => void;

/** What is pointed at. */
export type Pointed = { devices?: string[]; stage?: number; replica?: number; link?: string[] } | null;
/** A moment of the iteration; `by` is the row that plays it. */
export type Moment = { t_s: number; playing: boolean; by?: object } | null;

/** Kinds of action that have a hue. */
export type Kind = "forward" | "backward" | "averaging" | "step";

export type Conditions = { latency_ms: number; bandwidth_gbps: number };

export type Point = { x: number; y: number };
/** [x, y] in pixels. */
export type Spot = [number, number];

/** What goes on at a moment: devices as indices, the share of the action that is over from 0 to 1. */
export type Computing = { device: number; kind: Kind; share: number };
export type Travelling = { source: number; target: number; kind: Kind; share: number };

/** Lines of one curve of a chart, and what else is drawn, see `lineChart`. */
export type ChartLine = {
  ys: (number | null)[];
  color: string;
  width: number;
  dash?: number[];
  alpha?: number;
  stepped?: boolean;
  marked?: number[];
};
export type Chart = {
  x: { low: number; high: number; label: string; format: (value: number) => string; log?: boolean; whole?: boolean };
  y: { low: number; high: number; label: string; log?: boolean; times?: number };
  curves: { xs: number[]; lines: ChartLine[] }[];
  between: [number, number] | null;
  ends: { value: number; text: string; color: string; bold: boolean }[];
  marks?: { x: number; text: string; color: string }[];
};

// The document of a drawing, as `DocumentView.document` has it.

/** A device; a host that stands for several has the names of all in `members`. */
export type Device = {
  name: string;
  region: string;
  gpu: string;
  x: number;
  y: number;
  host?: string;
  members?: string[];
  inside?: Conditions;
  measured_as?: unknown;
  price_per_hour?: number;
  uplink_gbps?: number;
  downlink_gbps?: number;
};
export type Region = { name: string } & Conditions;
export type Link = { source: string; target: string; one_way?: boolean } & Conditions;
/** Between two regions: `regions` both ways, or `from` and `to`. */
export type Between = { regions?: string[]; from?: string; to?: string } & Conditions;
export type Document = {
  name: string;
  devices: Device[];
  regions: Region[];
  between: Between[];
  links: Link[];
  default: Conditions;
  fill?: string;
};
/** A pair of regions whose latency and bandwidth follow from their distance. */
export type Filled = { regions: [string, string]; distance_km: number } & Conditions;

/** [stage, replica]. */
export type Task = [stage: number, replica: number];
export type Tasks = Record<string, Task>;
/** `cells` are the tasks of each device of a host, `parts` the devices inside of what `binds`. */
export type Highlight = {
  tasks?: Tasks;
  stages?: Record<string, number>;
  cells?: Record<string, (Task | null)[]>;
  stage?: number;
  suspects?: string[][];
  binds?: string[];
  parts?: string[];
  absent?: string[];
};
export type Condition = "killed" | "slow" | "paused" | "recovered";

/** What is in the traits that every `DocumentView` has. */
export type DocumentShapes = {
  filled: Filled[];
  highlight: Highlight;
  conditions: Record<string, Condition>;
  restored_from: Record<string, string>;
};

/** Listeners by the names of their events. Any: each name has an event of its own, which its function says. */
export type Listening = Record<string, (event: any) => void>;
