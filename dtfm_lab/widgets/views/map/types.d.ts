import type { MapView } from "shared/traits.d.ts";
import type {
  Condition,
  Conditions,
  Context,
  Device,
  Document,
  DocumentShapes,
  Filled,
  Highlight,
  Kind,
  Model,
  Moment,
  Point,
  Pointed,
  Shaped,
  Spot,
  Tasks,
  Theme,
} from "shared/types.d.ts";

/** [longitude, latitude]. */
export type Place = [longitude: number, latitude: number];
export type Traits = Shaped<
  MapView,
  DocumentShapes & { document: Document; cities: [name: string, longitude: number, latitude: number][]; places: Record<string, Place> }
>;

export type City = { name: string; place: Place };
/** A city by where it is in the layout. */
export type CitySpot = { name: string; at: Spot };
export type Region = { name: string; devices: Device[]; place: Place | null };
export type Globe = {
  project: (place: Place) => Spot;
  centre: number[];
  radius: number;
  shows: (place: Place) => boolean;
  land?: Path2D;
};
export type Ground = { x: number; y: number; scale: number };
export type Area = { left: number; top: number; right: number; bottom: number };
export type Card = Region & {
  x: number;
  y: number;
  w: number;
  h: number;
  home: Spot | null;
  slots: Spot[];
  shown: number;
  more: number;
  bar: number;
  cell: number;
  opened?: boolean;
  shelved?: boolean;
};
export type Layout = {
  cards: Card[];
  byName: Map<string, Card>;
  ground: Ground | null;
  cell: number;
  shelf: number | null;
  folded: number;
  globeOf: () => Globe | null;
};
/** [left, top, right, bottom]. */
export type Box = number[];

export type Pair = {
  key: string;
  a: string;
  b: string;
  nics: number | null;
  there: Conditions;
  back: Conditions;
  kind: "line" | "filled" | "default";
  distance_km?: number;
  gbps: number;
  ms: number;
};
export type Pairs = Map<string, Pair>;
/** A pair as it is drawn. */
export type Pipe = Pair & { points: Spot[]; used: boolean; averages: boolean; suspect: boolean; binds: boolean };
/** A pair with its way, whether it is drawn or asked for alone. */
export type Way = Pair & { points: Spot[]; used?: boolean };
export type Uses = Map<string, { hops: [string, string][]; averages: [string, string][] }>;
export type PipeState = { used: boolean; strong: boolean; suspect: boolean; opacity: number; averaging: boolean };
export type Tag = Point & { box: Box; price: number };

/** What a sprite has that moves. */
export type Parts = { cx: number; cy: number; dx: number; dy: number; size: number; seen: number };
export type Sprite = Parts & {
  key: string;
  name?: string;
  gpu?: string;
  stage?: number;
  replica?: number;
  region?: string;
  over?: boolean;
  members?: string[];
  stages?: number[];
};
export type Moving = Sprite & { from: Parts; to: Parts; moving: boolean };
/** A device where it is in the box. */
export type Badge = Moving & Point & { name: string; gpu: string; region: string; over: boolean; radius: number };

export type Camera = {
  toScreen: (x: number, y: number) => Spot;
  toLayout: (x: number, y: number) => Spot;
  zoom: (factor: number, x?: number, y?: number) => void;
  pan: (dx: number, dy: number) => void;
  home: () => void;
  fly: (x: number, y: number, closer?: number) => void;
  readonly k: number;
  readonly cardScale: number;
  readonly isHome: boolean;
  readonly flying: boolean;
};

/** What is under the pointer. */
export type Hit =
  | { kind: "device"; name: string; region?: string; key?: undefined; card?: undefined }
  | { kind: "region"; name: string; card: Card; key?: undefined }
  | { kind: "more"; name: string; card: Card; key?: undefined }
  | { kind: "pair"; key: string; a: string; b: string; name?: undefined; card?: undefined };
export type Hits = { layout: Layout; badges: Badge[]; pairs: Pipe[]; camera: Camera };
/** The region or city that something let go would come to. */
export type Goal = Point & { name: string; known: boolean; far?: number };
/** The keyboard's place. */
export type Walk = { kind: "card" | "device"; name: string; region?: string } | null;
export type Found = { name: string; place: Place | null; devices: Device[] };
export type Press = {
  kind: "box" | "pan" | "region" | "devices";
  hit: Hit | null;
  names: string[];
  start: Spot;
  now: Spot;
  button: number;
  moved: boolean;
  shift: boolean;
};
export type Hand = { readonly press: Press | null; readonly pointer: Point | null; partner: () => string | null; cancel: () => void };

/** What a picture knows of the view around it. */
export type Around = {
  model: Model<Traits>;
  chosen: () => Set<string>;
  camera: Camera;
  nameWidth: (name: string) => number;
  bare: () => string | null;
  hover: () => Hit | null;
  place: () => Walk;
  aim: () => Goal | null;
};
export type Facts = { document: Document; pairs: Pairs; tasks: Tasks; uses: Uses; slow: Set<string> };
export type GlobeFor = (places: Place[]) => Globe | null;
export type CardStyle = {
  nStages: number;
  aimed?: string;
  pointed?: string | null;
  focused?: string | null;
  chosen: (card: Card) => boolean;
  counts: (card: Card) => [stage: number, count: number][];
};
export type Drawn = Point & { gpu: string; radius: number; stage?: number; stages?: number[]; alpha: number; chosen?: boolean; focused?: boolean };
export type { Condition, Context, Device, Document, Filled, Highlight, Kind, Moment, Point, Pointed, Spot, Tasks, Theme };
