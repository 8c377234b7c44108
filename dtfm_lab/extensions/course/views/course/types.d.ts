import type { CourseView } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Mission = { name: string; title: string; minutes: number; passed: boolean; note: string };
export type Lesson = { name: string; title: string; question: string; minutes: number; missions: Mission[] };
export type Detail = {
  name: string;
  task: string;
  wanted: string;
  checks: string;
  busy: boolean;
  why_not: string;
  network: string;
  typed: boolean;
  is_number: boolean;
  cell: string;
  verdict: { passed?: boolean; reason?: string };
  hints: string[];
  n_hints: number;
  answer: string;
  has_answer: boolean;
  off: string;
};
export type Traits = Shaped<CourseView, { lessons: Lesson[]; detail: Detail }>;
