// Files that are dropped on the editor go to Python as bytes; text comes back to be saved.
import { h } from "shared/dom.js";

const MOST_BYTES = 8e6; // a message to the kernel may have ten megabytes

/** `send(names, buffers)` takes what was dropped, `refuse(line)` says why not. */
export function dropZone(root, send, refuse, cleanUp) {
  const cover = h("div", { class: "dtfm-drop", hidden: true }, "Drop to open: YAML, JSON, CSV, npz or GraphML");
  root.append(cover);
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  const on = {
    dragenter: () => { cover.hidden = false; },
    dragover: (event) => { event.dataTransfer.dropEffect = "copy"; cover.hidden = false; },
    dragleave: (event) => { if (!root.contains(event.relatedTarget)) cover.hidden = true; },
    drop: async (event) => {
      cover.hidden = true;
      const files = [...event.dataTransfer.files];
      const size = files.reduce((sum, file) => sum + file.size, 0);
      if (size > MOST_BYTES) return refuse(`${files[0].name} has ${(size / 1e6).toFixed(1)} MB; wanted at most 8 MB here, or its path in the field “File”`);
      const buffers = await Promise.all(files.map((file) => file.arrayBuffer()));
      if (files.length) send(files.map((file) => file.name), buffers);
    },
  };
  for (const [name, act] of Object.entries(on)) {
    const handler = (event) => { if (!hasFiles(event)) return; event.preventDefault(); event.stopPropagation(); act(event); };
    root.addEventListener(name, handler);
    cleanUp.add(() => root.removeEventListener(name, handler));
  }
}

/** Saves a text that Python sent; of several views of one model only the first does. */
export function onDownload(model, cleanUp) {
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
