// The synchronised traits of every view class. Written by tools/view_traits.py: change the Python class, not this file.

/** The bytes of a trait; `typed` of dom.js makes an array of them. */
export type Binary = DataView;

/** A dictionary. What is in it is said by the docstring of its trait, and by the view that reads it. */
export type Dict = object;

export interface CandidatesView {
  caption: string;
  chosen: string;
  own_id: string;
  rows: Dict[];
  stale: boolean;
  title: string;
}

export interface CardView {
  name: string;
  own_id: string;
  svg: string;
  words: string;
}

export interface ConvergenceView {
  against: "evaluations" | "seconds";
  bound_label: string;
  clock: string;
  empty: string;
  height: number;
  noun: string;
  own_id: string;
  title: string;
  unit: "s" | "$";
}

export interface CourseView {
  caption: string;
  chosen: string;
  detail: Dict;
  lessons: Dict[];
  n_missions: number;
  n_passed: number;
  next: string;
  own_id: string;
  problem: string;
}

export interface DevicesView {
  actions: Dict[];
  caption: string;
  devices: Dict[];
  hint: string;
  own_id: string;
  running: boolean;
  selected: string[];
  states: Dict;
  title: string;
}

export interface Door {
  cards: Dict[];
  is_open: boolean;
  networks: Dict[];
  offered: boolean;
  own_id: string;
  suffixes: string;
}

export interface FrontierView {
  bounds: unknown[][];
  caption: string;
  chosen: number;
  counted: string;
  height: number;
  own_id: string;
  points: Dict[];
  title: string;
}

export interface GanttView {
  after: Binary;
  bare: boolean;
  busy: string;
  caption: string;
  devices: string[];
  devices_per_pipeline: number;
  empty_words: string;
  end: Binary;
  ends: Dict[];
  gaps: Dict[];
  ghost: Dict;
  height: number;
  interval: number[];
  kind: Binary;
  kinds: Dict[];
  measured_iteration: number;
  messages: Dict;
  microbatch: Binary;
  n_measured: number;
  n_stages: number;
  names: string[];
  overview: boolean;
  own_id: string;
  path: Dict;
  row: Binary;
  rows: string[];
  selected: string[];
  selected_stage: number;
  shares: Dict[];
  show_messages: boolean;
  show_path: boolean;
  stage: Binary;
  stale: string;
  start: Binary;
  time_unit: string;
  title: string;
  units: Dict[];
}

export interface Glossary {
  also: Dict;
  is_open: boolean;
  own_id: string;
  words: Dict;
}

export interface GroupsView {
  can_move: boolean;
  caption: string;
  cost: Dict;
  groups: Dict[];
  height: number;
  hint: string;
  idle: string[];
  matchings: unknown[][];
  mode: "path" | "ring" | "weights";
  network: Dict;
  offers: Dict;
  other_edge: number[];
  other_matching: unknown[][];
  own_id: string;
  selected: string[];
  selected_edge: number;
  selected_group: number;
  step: "a" | "b" | "c" | "d" | "e";
  title: string;
  weights: unknown[][];
}

export interface GuessView {
  busy: boolean;
  choices: string[];
  high: number | null;
  is_log: boolean;
  low: number | null;
  marks: Dict[];
  own_id: string;
  problem: string;
  question: string;
  score: string;
  unit: string;
  words: string;
}

export interface HoursView {
  chosen: string[];
  devices: string[];
  end_s: number;
  in_s: number;
  moment_s: number;
  own_id: string;
  room: number[];
  said: string;
  stays: unknown[][];
  unit: string;
}

export interface Inspector {
  facts: Dict;
  own_id: string;
}

export interface Legend {
  n_stages: number;
  own_id: string;
  shortcuts: string;
}

export interface LossView {
  beside: string;
  caption: string;
  first: number;
  height: number;
  marks: Dict[];
  own_id: string;
  reference: number | null;
  title: string;
  total: number;
  unit: string;
}

export interface MapView {
  can_redo: boolean;
  can_undo: boolean;
  cities: unknown[][];
  conditions: Dict;
  document: Dict;
  drags: boolean;
  filled: Dict[];
  gpu: string;
  gpus: string[];
  height: number;
  highlight: Dict;
  land: Binary;
  own_id: string;
  places: Dict;
  playback: Binary;
  playback_devices: string[];
  problem: string;
  restored_from: Dict;
  selected: string[];
  selected_link: string[];
  selected_members: string[];
  still: boolean;
  summary: string;
  tool: "select" | "add";
}

export interface MatrixView {
  bandwidth_gbps: Binary;
  blocks: unknown[][];
  can_redo: boolean;
  can_undo: boolean;
  conditions: Dict;
  filled: Dict[];
  gpus: string[];
  height: number;
  highlight: Dict;
  latency_ms: Binary;
  names: string[];
  origin: Binary;
  own_id: string;
  picked: number[];
  playback: Binary;
  playback_devices: string[];
  problem: string;
  restored_from: Dict;
  selected: string[];
  selected_link: string[];
  selected_members: string[];
  shows: "latency" | "bandwidth";
  summary: string;
}

export interface PlayerView {
  captions: Dict[];
  iteration: number;
  known_s: number;
  length_s: number;
  loops: boolean;
  own_id: string;
  playing: boolean;
  source: string;
}

export interface PopulationView {
  bound_s: number;
  cells: Dict;
  chosen: number;
  frame: number;
  has_curve: boolean;
  height: number;
  hint: string;
  is_over: boolean;
  own_id: string;
  planner_s: number;
  playing: boolean;
  takes: boolean;
  title: string;
  unit: "s" | "$";
}

export interface ResidualsView {
  caption: string;
  descending: boolean;
  height: number;
  hint: string;
  n_stages: number;
  own_id: string;
  selected: string[];
  sort_by: "suspicion" | "label" | "predicted_s" | "measured_s" | "error_s" | "relative";
  table: "links" | "devices" | "stages";
  tables: Dict[];
  title: string;
}

export interface SlidersView {
  own_id: string;
  sliders: Dict[];
  values: Dict;
}

export interface SystemsView {
  caption: string;
  causes: Dict[];
  changes: string;
  chosen: string;
  empty_words: string;
  not_modelled: Dict;
  own_id: string;
  rows: Dict[];
  stale: string;
  title: string;
}

export interface TabsView {
  label: string;
  numbered: boolean;
  own_id: string;
  second: string;
  tabs: Dict[];
  value: string;
}

export interface TopBar {
  action: Dict;
  again: string;
  can_undo: boolean;
  dark: boolean;
  headline: Dict;
  job: string[];
  live: boolean;
  live_note: string;
  network: string[];
  numbers: Dict[];
  own_id: string;
  shown_as: string;
  step: Dict;
  still: boolean;
  undo_label: string;
  visitor: string;
}

export interface TopologyEditor {
  can_redo: boolean;
  can_undo: boolean;
  conditions: Dict;
  filled: Dict[];
  gpus: string[];
  height: number;
  highlight: Dict;
  links: unknown[];
  outline: Dict;
  own_id: string;
  playback: Binary;
  playback_devices: string[];
  problem: string;
  restored_from: Dict;
  selected: string[];
  selected_link: string[];
  selected_members: string[];
  summary: string;
}

export interface WorthView {
  caption: string;
  own_id: string;
  rows: Dict[];
  stale: boolean;
}
