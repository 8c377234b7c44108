import type { GroupsView } from "shared/traits.d.ts";
import type { Point, Shaped } from "shared/types.d.ts";

export type Group = {
  stage: number;
  devices: string[];
  cost_s: number;
  letter?: string;
  layers?: string;
  regions?: string[];
  gpus?: string[];
  device_s?: number[];
};
/** The slowest pair of a hop. */
export type Hop = { seconds: number; devices: string[]; gbps: number; ms: number };
/** What the communication cost consists of; empty where it is not known. */
export type Cost = { total_s?: number; averaging_s: number; hops?: Hop[]; bound_s: number; is_proven: boolean };
/** Two devices, seconds, and perhaps the seconds there and the seconds back. */
export type Pair = [source: string, target: string, seconds: number, there?: number, back?: number];
/** Two ends as indices, strength, and ms and Gbit/s there and back. */
export type LinkRow = [a: number, b: number, strength: number, ms: number, gbps: number, msBack: number, gbpsBack: number];
export type Ground = { x: number; y: number; half: [number, number]; round: boolean; name: string };
export type Network = { devices?: ({ name: string; region?: string; gpu?: string } & Point)[]; regions?: Ground[]; links?: LinkRow[]; bundles?: LinkRow[] };
/** The price of a move to a group, in exchange with one of its devices. */
export type Offer = { stage: number; cost_s: number; change_s: number; partner: string; iteration_change_s?: number | null };
export type Offers = {
  device?: string;
  now_s: number;
  iteration_s: number;
  groups: Offer[];
  devices: Record<string, [cost_s: number, change_s: number]>;
};
export type Traits = Shaped<
  GroupsView,
  { groups: Group[]; weights: number[][]; matchings: Pair[][]; other_matching: Pair[]; cost: Cost; network: Network; offers: Offers }
>;
export type Step = GroupsView["step"];

export type Place = { stage: number; replica: number };
export type Places = Map<string, Place>;
/** What is drawn of a plan, and what of it is selected; -1 is no group. */
export type Data = {
  groups: Group[];
  places: Places;
  edge: number[] | null;
  pairs: Pair[];
  link: string[] | undefined;
  weights: number[][];
  idle: string[];
  network: Network;
  selected: string[];
  group: number;
  cost: Cost;
};
export type Dot = Point & { r: number };
/** A group's middle, the direction outwards, its radius in (b) and from (c) on. */
export type Node = Point & { dx: number; dy: number; open: number; shut: number };
export type Strip = { x: number; y: number; width: number; height: number } | null;
export type Placed = {
  groups: Node[];
  devices: Record<"a" | "b" | "c", Map<string, Dot>>;
  regions: Ground[];
  strip: Strip;
};
/** What is under a point. */
export type Under = { device?: string; stage: number } | null;
export type Link = { from: Point; to: Point; strength: number; bundle: boolean; words: string };
/** What is pressed: an edge where there is neither a device nor a group. */
export type Pressed = { device?: string; stage?: number; edge?: HTMLElement | null };
export type Choose = (name: string, adding: boolean) => void;
export type Actions = { choose: Choose; point: (names: string[] | null) => void };
export type Grid = { left: number; top: number; cell: number; n: number; order: number[] };
export type Held = Pressed & { name?: string; x: number; y: number; dragging: boolean; target: Under; stage?: number; at?: Point };
