// A page without a kernel. Any: its models are of several views at once, whose traits are told apart by their names alone.

export type Traits = Record<string, any>;
export type Message = { kind?: string; name?: string; phase?: string };
export type Model = {
  traits: Traits;
  get: (name: string) => any;
  set: (name: string, value: unknown) => void;
  /** All of them before anybody hears of one, as they belong together. */
  setAll: (values: Traits) => void;
  save_changes: (callbacks?: { iopub?: { status: (message: object) => void } }) => void;
  send: (content: Message) => void;
  on: (event: string, handler: () => void) => void;
  off: (event: string, handler: () => void) => void;
};
export type Models = Record<string, Model>;
export type Line = { regions?: string[]; from?: string; to?: string; bandwidth_gbps: number };
export type Document = { between: Line[]; default: { bandwidth_gbps: number } };
/** The traits of each view that an answer changes. */
export type Answer = Record<string, Traits>;
/** What can be asked, with its answers: bandwidths of pairs of regions, batches, and the addresses of other networks. */
export type Asked = {
  pairs: Record<string, [gbps: number, answer: Answer][]>;
  batches: [batch: number, answer: Answer][];
  others: Record<string, string>;
  note: string;
};
export type Packed = {
  styles: string[];
  scripts: Record<string, string>;
  models: Record<string, Traits>;
  asked: Asked | null;
  /** The script that takes the models' traits from the address; empty for a page of one plan. */
  reader: string;
};
