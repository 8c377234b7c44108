/** What a device may wait for: the families of kinds of action that hatch its idle time. */
export const WAITED = ["forward", "backward", "averaging"];
