import type { TopologyEditor } from "shared/traits.d.ts";
import type { Between, Conditions, Context, Document, DocumentShapes, Filled, Kind, Link, Point, Shaped, Task, Tasks, Theme } from "shared/types.d.ts";

export type Traits = Shaped<TopologyEditor, DocumentShapes & { links: Link[] }>;

/** A link joins two devices, a pair two regions. */
export type LineKind = "link" | "pair";
export type Line = Partial<Link & Between> & Conditions;
/** Two names; of a line of one way, where it comes from first. */
export type Ends = string[];
/** What rules a way: its own line or null, and where its numbers come from. */
export type Found = Conditions & { line: Line | null; origin: string };
/** One line that is drawn. */
export type Chosen = { ends: Ends; oneWay: boolean };
/** What is selected on the canvas. */
export type Selection = { devices: string[]; regions: string[]; links: Chosen[]; pairs: Chosen[] };
/** What is to be selected; `links` and `pairs` are ends. */
export type Choice = { devices?: string[]; regions?: string[]; links?: Ends[]; pairs?: Ends[] };
export type Edit = (document: Document, chosen?: Choice) => void;

export type Use = "hop" | "averaging";
export type SceneLine = Conditions & {
  id: string;
  kind: LineKind;
  ends: Ends;
  oneWay: boolean;
  own: boolean;
  about: boolean;
  across: boolean;
  uses: Set<Use>;
  suspect?: boolean;
  binds?: boolean;
};
export type Shape = "circle" | "box" | "triangle" | "host" | "cell";
/** The outline of what stands somewhere on the screen. */
export type Frame = Point & { shape: Shape; width: number; height: number };
export type SceneDevice = Point & {
  name: string;
  gpu: string;
  shape: Shape;
  region: string;
  task: Task | null;
  /** Of a host its devices, and the task of each; else empty. */
  members: string[];
  cells: (Task | null)[];
  suspect: boolean;
  binds: boolean;
};
export type SceneBox = { name: string; count: number; labels: string[] };
export type Scene = {
  devices: SceneDevice[];
  boxes: SceneBox[];
  lines: SceneLine[];
  nStages: number;
  tasks: Tasks;
  /** {device of a host: the host} */
  hostOf: Map<string, string>;
  /** Devices of hosts that limit the plan. */
  bound: Set<string>;
  /** Devices and hosts that are suspects. */
  slow: Set<string>;
  absent: Set<string>;
  shortNames: Map<string, string>;
  hasDefault: boolean;
};

export type Rectangle = { x1: number; x2: number; y1: number; y2: number };
export type Inside = (place: Point) => boolean;
/** A bent line, drawn from t = `from` to t = `to`. */
export type Curve = { a: Point; c: Point; b: Point; from: number; to: number };
/** A line that is to be bent. */
export type Bendable = { id: string; a: Point; b: Point; ends: Ends; twin?: boolean };
export type Obstacle = Rectangle & { owner: string };
/** Sizes of a device, and the room of a host's box. */
export type Size = { width: number; height: number; padding: number; host: { width: number; height: number } };
/** Sizes and places on the screen. */
export type View = Size & {
  zoom: number;
  apart: number;
  toScreen: (place: Point) => Point;
  device: (name: string) => Point | null;
  box: (name: string) => Rectangle | null;
  bend: (id: string) => number;
};
/** Where everything is on the screen, and the rectangles that labels keep off. */
export type Laid = {
  frames: Map<string, Frame>;
  boxes: Map<string, Rectangle | null>;
  curves: Map<string, Curve>;
  names: Map<string, Point & { text: string; whole: boolean }>;
  titles: Map<string, Point & { text: string }>;
  taken: Obstacle[];
};
export type LabelPlace = Point & { brief: boolean };

/** A badge on its way. */
export type Badge = Point & { device: string; stage: number; flying: boolean };
export type Light = { device: (name: string) => boolean; line: (line: SceneLine) => boolean };
/** A message, or a square of a state that comes from a peer, whose `share` is its colour. */
export type Dot = Point & ({ kind: Kind; share: number } | { kind: "state"; share: string });
export type Running = { computing: { device: string; kind: Kind; share: number }[]; messages: { source: string; target: string; kind: Kind; share: number }[] };
export type Look = {
  theme: Theme;
  width: number;
  height: number;
  conditions: Record<string, string>;
  hovered: string;
  run: Running | null;
  found: Set<string>;
  stage: number;
  aimed: string;
  under: string | null;
  selected: (kind: string, name: string) => boolean;
  /** Devices of hosts that are selected alone. */
  parts: Set<string>;
  nSelected: number;
  light: Light | null;
  shade: number;
  badges: Badge[];
  travelling: Dot[];
  beat: { grown: number; strength: number } | null;
};

export type Option = [value: string, text: string];
/** A field of the side panel, or words between fields; what a field refuses it says. */
export type Field = {
  name?: string;
  label: string;
  kind: "text" | "number" | "choice" | "heading" | "note";
  half?: boolean;
  values?: (string | number)[];
  placeholder?: string;
  options?: Option[];
  take?: (value: string) => string | null | void;
};
export type Action = { label: string; hint?: string; press: () => void };
export type Section = { title: string; subject?: string; notes?: string[]; fields?: Field[]; actions?: Action[] };
export type Command = { name: string; label: string; keys: string; hint: string; run: () => void; possible: () => boolean; why: string };
export type { Context, Filled };
