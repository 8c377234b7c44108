import type { TopBar } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

/** A live number, see `shell.bar`. */
export type Number = {
  label: string;
  value: string;
  was?: string;
  note?: string;
  short?: string;
  bad?: boolean;
  word?: string;
  why?: string;
  under?: [text: string, brief: string] | [];
  ask?: { name?: string; label?: string; title?: string };
};
export type Headline = { lead?: string; rest?: string; kind?: string };
export type Action = { name?: string; label?: string; why_not?: string };
export type Traits = Shaped<TopBar, { numbers: Number[]; headline: Headline; action: Action }>;
