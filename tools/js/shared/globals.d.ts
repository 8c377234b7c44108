// What the DOM's own types do not say.

/** Anything but the name of a tag, whose element the DOM's own types know. */
type Selector = `${string}${"." | "[" | ":" | "#"}${string}`;

interface ParentNode {
  /** By class or attribute: views look only for HTML elements that they have made. Those in SVG are cast where they are used. */
  querySelector(selectors: Selector): HTMLElement | null;
  querySelectorAll(selectors: Selector): NodeListOf<HTMLElement>;
}

/** Views make HTML and SVG alone, which both have a dataset, a style, a focus and a place among the Tab key's stops. */
interface Element extends HTMLOrSVGElement, ElementCSSInlineStyle {
  closest(selectors: Selector): HTMLElement | null;
}

interface Array<T> {
  /** As `array[index]` is typed: without undefined, though the array may be empty. */
  at(index: number): T;
}

// Region Capture, which only Chromium has.
interface DisplayMediaStreamOptions {
  preferCurrentTab?: boolean;
}
interface MediaStreamTrack {
  cropTo?(target: object): Promise<void>;
}
// eslint-disable-next-line no-var -- a global has no other word
declare var CropTarget: { fromElement(element: Element): Promise<object> } | undefined;

declare module "cytoscape-edgehandles" {
  const edgehandles: import("cytoscape").Ext;
  export default edgehandles;
}
