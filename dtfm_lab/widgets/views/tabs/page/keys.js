const KEYS = "1234567890";

/** The key that shows the tab at this place; null where there are no more keys. @type {(at: number) => string | null} */
export const keyOf = (at) => KEYS[at] ?? null;
