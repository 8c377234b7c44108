// Any: what a link holds is of several views at once, and is checked before it is used.

export type Traits = Record<string, any>;
/** What a link holds, for a page. */
export type Linked = { title: string; made: string; views: Record<string, Traits> };
/** Whether a value is as it must be. */
export type Shape = (value: unknown) => boolean;
