// Captions of the first iteration that plays.
/** @import { Caption } from "../types.d.ts" */

/**
 * The caption at a share of the iteration: the last that has begun. Null before the first.
 * @type {(captions: Caption[], share: number) => Caption | null}
 */
export const captionAt = (captions, share) => captions.findLast(({ from }) => from <= share) ?? null;
