import type { Binary, GanttView } from "shared/traits.d.ts";
import type { Context, Kind, Point, Pointed, Shaped, Theme } from "shared/types.d.ts";
import type { Bars } from "./page/bars.js";

/** What is drawn in rows that belong together: a stage or a device; its `members` are drawn once it is open. */
export type GivenUnit = { label: string; rows: number[]; device?: string; stage?: number; replica?: number; tip?: string; members?: GivenUnit[] };
export type GivenKind = {
  name: string;
  color?: string;
  shades?: string[];
  dark_shades?: string[];
  family?: Kind;
  message?: boolean;
};
/** A line where an iteration ends. */
export type End = { at: number; text: string; dashed?: boolean };
export type Gap = { device: string; from: number; to: number; text: string; tip: string; open?: boolean };
export type Share = { name: string; share: number; tone: string };
export type Traits = Shaped<
  GanttView,
  {
    kinds: GivenKind[];
    units: GivenUnit[];
    ends: End[];
    gaps: Gap[];
    shares: Share[];
    messages: Record<string, Binary>;
    path: Record<string, Binary>;
    ghost: Record<string, Binary>;
  }
>;

export type NumberArray = Float32Array<ArrayBuffer> | Uint16Array<ArrayBuffer> | Uint8Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;
export type ArrayType = { new (length: number): NumberArray; new (buffer: ArrayBuffer): NumberArray };
export type Types = Record<string, ArrayType>;
/** Bars in columns of equal length. */
export type Columns = {
  start: Float32Array;
  end: Float32Array;
  row: Uint16Array;
  kind: Uint8Array;
  microbatch: Int32Array;
  stage: Uint16Array;
  /** Of measured bars only. */
  late?: Float32Array;
};
/** The columns of bars that are only a line. */
export type GhostColumns = Pick<Columns, "start" | "end" | "row" | "kind"> & Partial<Columns>;
export type Messages = {
  source: Uint16Array;
  target: Uint16Array;
  leaves: Float32Array;
  arrives: Float32Array;
  kind: Uint8Array;
  microbatch: Int32Array;
  reach: Float32Array;
};
export type Path = { row: Uint16Array; start: Float32Array; end: Float32Array; bar: Int32Array; reach: Float32Array };
/** Everything known about one bar. */
export type Bar = { row: number; kind: number; start: number; end: number; microbatch: number; stage: number; id: number; late: number; turn: number };

/** Which lane of a row each kind is in, and how many lanes there are. */
export type Lanes = { of: (kind: number) => number; count: (kind: number) => number; countIn: (row: number) => number };
/** A kind of action as the chart has it; `family` is its number among those that are waited for. */
export type KindLook = { name: string; family?: number; message: boolean; fills: boolean };
export type DressedKind = Omit<KindLook, "looks"> & { color: string; shades: string[]; inks: string[] };

/** A unit as it is drawn. */
export type Unit = {
  label: string;
  device: string;
  stage: number;
  replica: number;
  tip: string;
  rows: number[];
  id: number;
  depth: number;
  nMembers: number;
  isOpen: boolean;
  names: (string | undefined)[];
};
export type Arranged = { shown: Unit[]; slotOf: Map<number, number>; hasBadges: boolean };
export type LaneBox = { top: number; height: number; ghostTop: number; ghostHeight: number };
/** A label on the axis, from one pixel to another. */
export type Label = { from: number; to: number; isBeyond?: boolean };
export type EndLabel = End & Label & { x: number; isBeyond: boolean };
/** Where everything is. */
export type Place = {
  left: number;
  right: number;
  top: number;
  bottom: number;
  rowsBottom: number;
  from: number;
  to: number;
  scale: number;
  shown: Unit[];
  contentHeight: number;
  hasBadges: boolean;
  rowsIn: (slot: number) => number[];
  lane: (slot: number, index: number) => LaneBox;
  bandIn: (slot: number, index: number, kind: number) => [top: number, height: number];
  heightOf: (slot: number) => number;
  slotTop: (slot: number) => number;
  x: (time: number) => number;
  time: (x: number) => number;
  isShown: (row: number) => boolean;
  slotOf: (row: number) => number;
  band: (row: number, kind: number) => [top: number, height: number];
  middle: (row: number) => number;
  slotAt: (height: number) => number;
  under: (height: number) => { slot: number; row: number; lane: number } | null;
  /** What the axis says; the painting of it sets them. */
  labels: EndLabel[];
  ticks: Label[];
};
/** What a raster needs of a place. */
export type RasterPlace = Pick<
  Place,
  "left" | "right" | "top" | "rowsBottom" | "from" | "to" | "scale" | "shown" | "rowsIn" | "heightOf" | "slotTop" | "bandIn"
> & {
  lane: (slot: number, index: number) => { top: number; height: number; ghostTop?: number; ghostHeight?: number };
};
export type RasterLooks = { kinds: DressedKind[]; families?: string[]; lastFamily?: number; ink?: string };
export type Side = { bars: Bars; ghost?: Bars | null };

export type AxisUnit = { name: string; perSecond: number; decimals: number };
/** What is drawn: columns and labels, no pixels. */
export type State = {
  upper: Bars;
  lower: Bars;
  ghost: Bars;
  overlays: boolean;
  open: number;
  columns: Columns & { after: Int32Array };
  messages: Messages;
  path: Path;
  names: string[];
  kinds: KindLook[];
  devices: string[];
  kindsIn: (dark: boolean) => DressedKind[];
  lit: (unit: Unit) => boolean;
  lanes: Lanes;
  perPipeline: number;
  nStages: number;
  arranged: Arranged;
  ends: End[];
  interval: number[];
  gaps: Gap[];
  averages: boolean;
  showPath: boolean;
  showMessages: boolean;
  isGliding?: boolean;
};
export type Look = {
  width: number;
  height: number;
  theme: Theme;
  ratio: number;
  span: number[];
  whole: number[];
  moving: boolean;
  scroll?: number;
  fill: boolean;
};
export type Glide = { at: (share: number) => Bars };
export type View = {
  visible: () => number[];
  look: (from: number, to: number) => void;
  zoom: (factor: number, around?: number) => void;
  reset: () => void;
  isWhole: () => boolean;
  dragging: () => boolean;
};
/** Words about a bar need these. */
export type Known = Pick<State, "names" | "kinds" | "columns" | "messages"> & { several: boolean; unit: AxisUnit };
/** What bars of less than a few pixels cover. */
export type Thin = { share: Float32Array; color: Uint32Array; owed: number };
export type { Context, Point, Pointed, Theme };
