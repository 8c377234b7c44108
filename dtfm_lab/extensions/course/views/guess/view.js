// A question, a number field and a slider or a list of choices, and a sentence why; after the guess, how far off it was, with both on a scale.
import { cleanUps, frame, h, onTraits } from "shared/dom.js";
import { compact, figures } from "shared/axis.js";
import { there } from "shared/there.js";
import { view } from "shared/view.js";
import { axisOf, stepOf, STEPS, valueAt } from "./page/axis.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Traits } from "./types.d.ts" */

const PATIENCE_MS = 3000;
const NO_KERNEL = "No answer yet: the kernel is busy with other cells, or this page has none.";

let views = 0;

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const id = `dtfm-guess-${++views}`;
  const root = frame("dtfm-guess", "Guess first");
  root.removeAttribute("tabindex"); // its form takes the focus
  const question = h("p", { class: "dtfm-guess-question", id });
  const slider = h("input", { type: "range", min: "0", max: String(STEPS), class: "dtfm-guess-slider", "aria-label": "Your guess, on a slider" });
  const ends = [h("span"), h("span")];
  const sliding = h("div", { class: "dtfm-guess-sliding" }, ends[0], slider, ends[1]);
  const field = h("input", { type: "number", step: "any", required: true, inputmode: "decimal", id: `${id}-field`, "aria-describedby": id });
  const unit = h("span");
  const submit = h("button", { type: "submit" }, "Guess");
  const number = h("div", { class: "dtfm-guess-row" }, h("label", { for: `${id}-field` }, "Your guess"), field, unit);
  const list = h("div", { class: "dtfm-guess-choices", role: "radiogroup", "aria-labelledby": id });
  const reason = h("input", { type: "text", required: true, maxlength: "300", id: `${id}-reason`, placeholder: "in one sentence" });
  const why = h("div", { class: "dtfm-guess-row dtfm-guess-why" }, h("label", { for: `${id}-reason` }, "Because"), reason, submit);
  const form = h("form", {}, list, sliding, number, why);
  const scale = h("div", { class: "dtfm-guess-scale", "aria-hidden": "true" });
  const words = h("p", { class: "dtfm-guess-words", role: "status", tabindex: "-1" });
  const score = h("span", { class: "dtfm-guess-score" });
  const again = h("button", { type: "button", title: "Your first guess counts; this one does not change the score" }, "Guess again");
  const after = h("div", { class: "dtfm-guess-row" }, score, again);
  const problem = h("p", { class: "dtfm-guess-problem", role: "status" });
  root.append(question, form, words, scale, after, problem);
  el.append(root);

  let guessing = !model.get("words");
  /** @type {ReturnType<typeof setTimeout> | 0} */
  let waits = 0; // for the kernel to take the guess
  cleanUp.add(() => clearTimeout(waits));

  /**
   * The slider's range; without one its ends are not asked for.
   * @type {() => [number, number, boolean]}
   */
  const span = () => [there(model.get("low")), there(model.get("high")), model.get("is_log")];

  /**
   * The number in the field, or the place of the chosen answer; null before there is one.
   * @type {() => number | null}
   */
  const said = () => {
    const chosen = /** @type {HTMLInputElement | null} */ (list.querySelector("input:checked"));
    if (chosen) return Number(chosen.value);
    return field.value === "" || list.hasChildNodes() ? null : Number(field.value);
  };

  function drawChoices() {
    const choices = model.get("choices");
    if (list.children.length === choices.length) return;
    list.replaceChildren(
      ...choices.map((text, place) =>
        h("label", {}, h("input", { type: "radio", name: `${id}-choice`, value: String(place + 1), required: true }), h("span", {}, text)),
      ),
    );
  }

  /** @type {(value: number) => string} */
  const say = (value) => `${figures(value)} ${model.get("unit")}`.trim();

  slider.addEventListener("input", () => {
    const value = valueAt(Number(slider.value), ...span());
    field.value = String(value);
    slider.setAttribute("aria-valuetext", say(value));
    root.classList.add("dtfm-guess-said");
  });
  field.addEventListener("input", () => {
    if (field.value === "" || model.get("low") === null) return;
    slider.value = String(stepOf(Number(field.value), ...span()));
    slider.setAttribute("aria-valuetext", say(Number(field.value)));
    root.classList.add("dtfm-guess-said");
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target === submit) return;
    event.preventDefault(); // not every page that embeds a view lets Enter submit a form
    form.requestSubmit(submit);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const value = said();
    if (model.get("busy") || waits || value === null) return;
    const tellWhy = () => {
      problem.textContent = NO_KERNEL;
      problem.hidden = false;
    };
    try {
      model.send({ kind: "guess", value, reason: reason.value });
      waits = setTimeout(tellWhy, PATIENCE_MS);
      show();
    } catch {
      // the kernel has ended
      tellWhy();
    }
  });
  again.addEventListener("click", () => {
    guessing = true;
    field.value = "";
    show();
    (list.querySelector("input") ?? field).focus();
  });

  function taken() {
    clearTimeout(waits);
    waits = 0;
    show();
  }

  function answered() {
    clearTimeout(waits);
    waits = 0;
    const had = form.contains(document.activeElement);
    guessing = !model.get("words");
    show();
    if (had && !guessing) words.focus({ preventScroll: true });
  }

  function show() {
    const [low, high] = span();
    const [busy, done] = [Boolean(model.get("busy") || waits), !guessing];
    question.textContent = model.get("question");
    unit.textContent = model.get("unit");
    drawChoices();
    const choosing = list.hasChildNodes();
    list.hidden = !choosing;
    number.hidden = choosing;
    field.disabled = choosing; // so that the form does not ask for it
    sliding.hidden = low === null;
    if (low !== null) {
      ends[0].textContent = figures(low);
      ends[1].textContent = figures(high);
      if (field.value === "") {
        slider.value = String(STEPS / 2);
        slider.setAttribute("aria-valuetext", "no guess yet");
        root.classList.remove("dtfm-guess-said");
      }
    }
    form.hidden = done;
    field.readOnly = busy; // not disabled: it would lose the focus
    submit.textContent = busy ? "Computing…" : "Guess";
    submit.setAttribute("aria-disabled", String(busy));
    words.textContent = done ? model.get("words") : "";
    words.hidden = after.hidden = !done;
    scale.hidden = !done || !model.get("marks").length;
    score.textContent = model.get("score") && `Score: ${model.get("score")}`;
    problem.textContent = model.get("problem");
    problem.hidden = !problem.textContent;
    root.dataset.state = busy ? "busy" : done ? "done" : "asking";
    if (!scale.hidden) drawScale();
  }

  function drawScale() {
    const marks = model.get("marks");
    const axis = axisOf(
      marks.map(({ value }) => value),
      ...span(),
    );
    /** @type {(value: number) => string} */
    const at = (value) => `${(100 * axis.share(value)).toFixed(2)}%`;
    /** @type {(value: number) => string} */
    const side = (value) => (axis.share(value) > 0.75 ? "dtfm-left" : axis.share(value) < 0.25 ? "dtfm-right" : "");
    scale.replaceChildren(
      h("div", { class: "dtfm-guess-axis" }),
      ...axis.ticks.map((value) =>
        h("span", { class: "dtfm-guess-tick", style: `left:${at(value)}` }, Math.abs(value) >= 1e4 ? compact(value) : figures(value)),
      ),
      ...marks.map(({ kind, value, text }) =>
        h(
          "span",
          { class: `dtfm-guess-mark dtfm-guess-${kind} ${side(value)}`, style: `left:${at(value)}` },
          h("i"),
          h("b", {}, kind === "guess" ? `your guess ${text}` : `answer ${text}`),
        ),
      ),
    );
  }

  onTraits(model, ["words", "marks"], answered, cleanUp);
  onTraits(model, ["busy", "problem"], taken, cleanUp);
  onTraits(model, ["question", "unit", "low", "high", "is_log", "choices", "score"], show, cleanUp);
  show();
  return cleanUp.run;
}

export default view(render);
