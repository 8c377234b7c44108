// A question, a number field and a slider; after the guess, how far off it was, with both on a scale.
import { cleanUps, frame, h, onTraits } from "shared/dom.js";
import { compact, figures, logTicks, ticks } from "shared/axis.js";
import { view } from "shared/view.js";

const STEPS = 1000; // of the slider
const PATIENCE_MS = 3000;
const NO_KERNEL = "No answer yet: the kernel is busy with other cells, or this page has none.";
const FROM_ZERO = 20; // ratio of guess and answer from which an open scale is logarithmic

let views = 0;

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
  const form = h("form", {}, sliding, h("div", { class: "dtfm-guess-row" }, h("label", { for: `${id}-field` }, "Your guess"), field, unit, submit));
  const scale = h("div", { class: "dtfm-guess-scale", "aria-hidden": "true" });
  const words = h("p", { class: "dtfm-guess-words", role: "status", tabindex: "-1" });
  const score = h("span", { class: "dtfm-guess-score" });
  const again = h("button", { type: "button", title: "Your first guess counts; this one does not change the score" }, "Guess again");
  const after = h("div", { class: "dtfm-guess-row" }, score, again);
  const problem = h("p", { class: "dtfm-guess-problem", role: "status" });
  root.append(question, form, words, scale, after, problem);
  el.append(root);

  let guessing = !model.get("words");
  let waits = 0; // for the kernel to take the guess
  cleanUp.add(() => clearTimeout(waits));

  const span = () => [model.get("low"), model.get("high"), model.get("is_log")];

  function valueAt(step) {
    const [low, high, isLog] = span();
    const share = step / STEPS;
    if (isLog) return Number((low * (high / low) ** share).toPrecision(2));
    const grain = 10 ** Math.floor(Math.log10((high - low) / 100));
    return Number((Math.round((low + (high - low) * share) / grain) * grain).toPrecision(12));
  }

  function stepOf(value) {
    const [low, high, isLog] = span();
    const share = isLog ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
    return Math.round(STEPS * Math.min(1, Math.max(0, share)));
  }

  const say = (value) => `${figures(value)} ${model.get("unit")}`.trim();

  slider.addEventListener("input", () => {
    const value = valueAt(Number(slider.value));
    field.value = String(value);
    slider.setAttribute("aria-valuetext", say(value));
    root.classList.add("dtfm-guess-said");
  });
  field.addEventListener("input", () => {
    if (field.value === "" || model.get("low") == null) return;
    slider.value = String(stepOf(Number(field.value)));
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
    if (model.get("busy") || waits || field.value === "") return;
    const tellWhy = () => { problem.textContent = NO_KERNEL; problem.hidden = false; };
    try {
      model.send({ kind: "guess", value: Number(field.value) });
      waits = setTimeout(tellWhy, PATIENCE_MS);
      show();
    } catch { // the kernel has ended
      tellWhy();
    }
  });
  again.addEventListener("click", () => {
    guessing = true;
    field.value = "";
    show();
    field.focus();
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
    sliding.hidden = low == null;
    if (low != null) {
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
    words.hidden = scale.hidden = after.hidden = !done;
    score.textContent = model.get("score") && `Score: ${model.get("score")}`;
    problem.textContent = model.get("problem");
    problem.hidden = !problem.textContent;
    root.dataset.state = busy ? "busy" : done ? "done" : "asking";
    if (done) drawScale();
  }

  function drawScale() {
    const marks = model.get("marks");
    const axis = axisOf(marks.map(({ value }) => value), ...span());
    const at = (value) => `${(100 * axis.share(value)).toFixed(2)}%`;
    const side = (value) => (axis.share(value) > 0.75 ? "dtfm-left" : axis.share(value) < 0.25 ? "dtfm-right" : "");
    scale.replaceChildren(
      h("div", { class: "dtfm-guess-axis" }),
      ...axis.ticks.map((value) => h("span", { class: "dtfm-guess-tick", style: `left:${at(value)}` }, Math.abs(value) >= 1e4 ? compact(value) : figures(value))),
      ...marks.map(({ kind, value, text }) => h("span", { class: `dtfm-guess-mark dtfm-guess-${kind} ${side(value)}`, style: `left:${at(value)}` },
        h("i"), h("b", {}, kind === "guess" ? `your guess ${text}` : `answer ${text}`))));
  }

  onTraits(model, ["words", "marks"], answered, cleanUp);
  onTraits(model, ["busy", "problem"], taken, cleanUp);
  onTraits(model, ["question", "unit", "low", "high", "is_log", "score"], show, cleanUp);
  show();
  return cleanUp.run;
}

/** An axis that holds the values: the slider's where there is one, widened where they lie outside. */
function axisOf(values, low, high, isLog) {
  const known = low == null ? values : [low, high, ...values];
  let [from, to] = [Math.min(...known), Math.max(...known)];
  const log = from > 0 && (isLog || (low == null && to / from >= FROM_ZERO));
  if (low == null && !log) [from, to] = [Math.min(0, 1.15 * from), Math.max(0, 1.15 * to)];
  if (low == null && log) [from, to] = [from / 2, to * 2];
  if (from === to) [from, to] = [from - 1, to + 1];
  const share = log ? (value) => Math.log(value / from) / Math.log(to / from) : (value) => (value - from) / (to - from);
  return { share, ticks: log ? thinned(logTicks(from, to)) : ticks(from, to, 4) };
}

/** At most about six of them: a phone has no room for more. */
const thinned = (values) => values.filter((_, index) => index % Math.ceil(values.length / 6) === 0);

export default view(render);
