// Files that are dropped on a view, to be opened.
import { h } from "./dom.js";
/** @import { CleanUps } from "./types.d.ts" */

const MOST_BYTES = 8e6; // a message to the kernel may have ten megabytes

/**
 * Covers `root` while files are over it. `send(names, buffers)` takes what was dropped, `refuse(line)` says why not.
 * @type {(root: HTMLElement, send: (names: string[], buffers: ArrayBuffer[]) => void, refuse: (line: string) => void, cleanUp: CleanUps) => void}
 */
export function dropZone(root, send, refuse, cleanUp) {
  const cover = h("div", { class: "dtfm-drop", hidden: true }, "Drop to open: YAML, JSON, CSV or npz");
  root.append(cover);
  /** @type {(event: DragEvent) => boolean} */
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  /** @type {Record<string, (event: DragEvent & { dataTransfer: DataTransfer }) => void>} */
  const on = {
    dragenter: () => {
      cover.hidden = false;
    },
    dragover: (event) => {
      event.dataTransfer.dropEffect = "copy";
      cover.hidden = false;
    },
    dragleave: (event) => {
      if (!root.contains(/** @type {Node | null} */ (event.relatedTarget))) cover.hidden = true;
    },
    drop: async (event) => {
      cover.hidden = true;
      const files = [...event.dataTransfer.files];
      const size = files.reduce((sum, file) => sum + file.size, 0);
      if (size > MOST_BYTES) return refuse(`${files[0].name} has ${(size / 1e6).toFixed(1)} MB; wanted at most 8 MB here, or its path in the field “File”`);
      const buffers = await Promise.all(files.map((file) => file.arrayBuffer()));
      if (files.length)
        send(
          files.map((file) => file.name),
          buffers,
        );
    },
  };
  for (const [name, act] of Object.entries(on)) {
    /** @type {(event: Event) => void} */
    const handler = (given) => {
      const event = /** @type {DragEvent & { dataTransfer: DataTransfer }} */ (given);
      if (!hasFiles(event)) return;
      event.preventDefault();
      event.stopPropagation();
      act(event);
    };
    root.addEventListener(name, handler);
    cleanUp.add(() => root.removeEventListener(name, handler));
  }
}
