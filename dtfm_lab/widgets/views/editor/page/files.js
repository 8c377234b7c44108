// Files dropped on the editor go to Python as bytes. Text comes back to be saved.
import { h } from "shared/dom.js";
/** @import { CleanUps, Message, Model } from "shared/types.d.ts" */
/** @import { Traits } from "../types.d.ts" */

export { dropZone } from "shared/files.js";

/**
 * Saves a text that Python sent. Only the first of several views of one model does.
 * @type {(model: Model<Traits>, cleanUp: CleanUps) => void}
 */
export function onDownload(model, cleanUp) {
  /** @type {(content: Message) => void} */
  const handler = (content) => {
    if (content?.kind !== "download" || content.done) return;
    content.done = true;
    const url = URL.createObjectURL(new Blob([content.text], { type: "application/yaml" }));
    h("a", { href: url, download: content.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  model.on("msg:custom", handler);
  cleanUp.add(() => model.off("msg:custom", handler));
}
