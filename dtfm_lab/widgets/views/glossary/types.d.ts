import type { Glossary } from "shared/traits.d.ts";
import type { Shaped } from "shared/types.d.ts";

export type Traits = Shaped<Glossary, { words: Record<string, string>; also: Record<string, string> }>;
