// The losses of a run as they come: training, held-out text, and what could be had without context.
import { cleanUps, frame, h, onTraits, typed } from "shared/dom.js";
import { sharpCanvas, tooltip } from "shared/canvas.js";
import { paintLosses } from "./page/paint.js";

function render({ model, el }) {
  const cleanUp = cleanUps();
  let training = new Float64Array(1024); // grows by doubling: a run may have many thousand iterations
  let n = 0;
  let heldOut = []; // [iterations done, loss]
  let pointerX = null;

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" });
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" }, "No training loss yet");
  const caption = h("div", { class: "dtfm-caption" });
  const root = frame("dtfm-losses", "Losses", "img");
  root.removeAttribute("tabindex"); // nothing in it is pressed
  root.append(h("div", { class: "dtfm-heading" }, title, h("span", { class: "dtfm-grow" }), legend), box, caption);
  el.append(root);

  const { element, draw } = sharpCanvas(box, paint, cleanUp);
  box.append(empty);
  const tip = tooltip(box);
  element.addEventListener("pointermove", (event) => { pointerX = event.offsetX; draw(); });
  element.addEventListener("pointerleave", () => { pointerX = null; tip.hide(); draw(); });

  function receive(message, buffers) {
    if (message.kind !== "losses") return;
    const values = typed(buffers[0], Float64Array);
    n = message.from;
    while (training.length < n + values.length) {
      const wider = new Float64Array(training.length * 2);
      wider.set(training);
      training = wider;
    }
    training.set(values, n);
    n += values.length;
    if (message.held_out) heldOut = message.held_out;
    showTexts();
    draw();
  }

  function showTexts() {
    const reference = model.get("reference");
    box.style.height = `${model.get("height")}px`;
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    empty.hidden = n > 0;
    root.dataset.points = String(n);
    const marks = [["training", "training"], ...(heldOut.length ? [["held-out", "held-out text"]] : []),
      ...(reference === null ? [] : [["level", "unigram entropy: without context"]])];
    legend.replaceChildren(...(n ? marks : []).map(([kind, text]) => h("span", {}, h("i", { class: `dtfm-losses-${kind}` }), text)));
    const first = model.get("first");
    const told = n ? `${model.get("title")}: ${training[0].toFixed(3)} to ${training[n - 1].toFixed(3)} nats per token, iterations ${first} to ${first + n - 1}`
      : `${model.get("title")}: none yet`;
    root.setAttribute("aria-label", told);
  }

  function paint(context, width, height, theme) {
    if (!n) return tip.hide();
    const shown = { training: training.subarray(0, n), heldOut, first: model.get("first"), total: model.get("total"), reference: model.get("reference") };
    const view = paintLosses(context, width, height, shown, theme, pointerX);
    if (view.readout) tip.show(view.readout, pointerX, 6);
    else tip.hide();
  }

  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  onTraits(model, ["title", "caption", "height", "reference", "total", "first"], () => { showTexts(); draw(); }, cleanUp);
  showTexts();
  model.send({ kind: "hello" }); // Python answers with every point so far
  return cleanUp.run;
}

export default { render };
