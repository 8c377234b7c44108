/**
 * What a device may wait for: the families of kinds of action that hatch its idle time.
 * @type {import("shared/types.d.ts").Kind[]}
 */
export const WAITED = ["forward", "backward", "averaging"];
