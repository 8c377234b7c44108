import type { ResidualsView } from "shared/traits.d.ts";
import type { Kind, Shaped } from "shared/types.d.ts";

export type Row = {
  id: string;
  label: string;
  predicted_s: number;
  measured_s: number;
  error_s: number;
  relative: number | null;
  second_s: number | null;
  low_s: number | null;
  high_s: number | null;
  stage: number;
  hue?: Kind | "";
  suspect: boolean;
};
export type Table = {
  key: ResidualsView["table"];
  name: string;
  noun: string;
  own: string;
  second: string;
  measured?: string;
  count: number;
  rows: Row[];
};
export type Traits = Shaped<ResidualsView, { tables: Table[] }>;
export type By = ResidualsView["sort_by"];
export type ColumnKey = Exclude<By, "suspicion">;
export type Scale = { low: number; high: number; at: (value: number) => number };
