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
/** Words of the headline that stand for a device, or for the link between two. */
export type Handle = { text?: string; devices?: string[] };
export type Headline = { lead?: string; rest?: string; kind?: string; handle?: Handle };
/** The next step of the first minute, see `shell.first_minute`. */
export type Step = { name?: string; words?: string; buttons?: { name: string; label: string }[] };
export type Action = { name?: string; label?: string; why_not?: string };
export type Traits = Shaped<TopBar, { numbers: Number[]; headline: Headline; action: Action; step: Step }>;
