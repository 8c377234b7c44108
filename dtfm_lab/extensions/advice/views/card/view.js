// A card: a picture from Python, with a row that copies it as a PNG or as text, and saves it as an SVG.
import { cleanUps, h, onTraits } from "shared/dom.js";
import { there } from "shared/there.js";
import { view } from "shared/view.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Traits } from "./types.d.ts" */

const RATIO = 2; // pixels of the PNG for each of the picture: sharp where it is shown large
const PNG = "image/png";

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const picture = h("div", { class: "dtfm-card-picture" });
  const done = h("span", { role: "status" });
  const copy = h("button", { type: "button", onclick: () => told(copyPicture()) }, "Copy picture");
  const text = h("button", { type: "button", onclick: () => told(copyText()) }, "Copy sentence");
  const save = h("button", { type: "button", onclick: () => offer(blobOf(), `${model.get("name")}.svg`) }, "Save SVG");
  const root = h("div", { class: "dtfm dtfm-card" }, picture, h("div", { class: "dtfm-card-row" }, copy, text, save, done));
  el.append(root);

  const blobOf = () => new Blob([model.get("svg")], { type: "image/svg+xml" });

  /** @type {(work: Promise<string>) => Promise<void>} */
  async function told(work) {
    done.textContent = await work;
  }

  async function copyText() {
    try {
      await navigator.clipboard.writeText(model.get("words"));
      return "Copied.";
    } catch {
      return "The browser does not allow copying.";
    }
  }

  /** Copies the picture, or saves it where the browser does not let a page copy. */
  async function copyPicture() {
    const png = pngOf(blobOf());
    try {
      await navigator.clipboard.write([new ClipboardItem({ [PNG]: png })]);
      return "Copied as a PNG.";
    } catch {
      offer(await png, `${model.get("name")}.png`);
      return "The browser does not allow copying: saved as a PNG.";
    }
  }

  function show() {
    const given = model.get("svg");
    root.hidden = !given;
    done.textContent = "";
    if (!given) return;
    const { documentElement } = new DOMParser().parseFromString(given, "image/svg+xml");
    picture.replaceChildren(document.importNode(documentElement, true));
  }

  onTraits(model, ["svg"], show, cleanUp);
  show();
  return cleanUp.run;
}

/** @type {(svg: Blob) => Promise<Blob>} */
async function pngOf(svg) {
  const address = URL.createObjectURL(svg);
  const image = Object.assign(new Image(), { src: address });
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: RATIO * image.naturalWidth, height: RATIO * image.naturalHeight });
  there(canvas.getContext("2d")).drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(there(blob)), PNG));
}

/** @type {(blob: Blob, name: string) => void} */
function offer(blob, name) {
  const address = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export default view(render);
