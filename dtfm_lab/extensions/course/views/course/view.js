// The lessons of the course with their missions; the chosen one opens in its place.
import { cleanUps, focusedIn, frame, h, onTraits } from "shared/dom.js";
import { view } from "shared/view.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Detail, Lesson, Mission, Traits } from "./types.d.ts" */

let views = 0;

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const id = `dtfm-course-${++views}`;
  const root = frame("dtfm-course", "Course");
  root.removeAttribute("tabindex"); // its buttons take the focus
  const filled = h("i");
  const bar = h("div", { class: "dtfm-course-bar", "aria-hidden": "true" }, filled); // the caption says the same
  const caption = h("span", { class: "dtfm-course-caption" });
  const next = h("button", { type: "button", onclick: () => choose(model.get("next")) }, "Next mission");
  const problem = h("p", { class: "dtfm-course-problem", role: "alert" });
  const list = h("div", { class: "dtfm-course-lessons" });
  root.append(h("div", { class: "dtfm-course-head" }, bar, caption, next), problem, list);
  el.append(root);

  /** @type {Map<string, boolean>} */
  const touched = new Map(); // lesson -> whether a person left it open
  const detail = makeDetail(id, (kind, more = {}) => model.send({ kind, ...more }));
  /** @type {Map<string, HTMLElement>} */
  const rows = new Map(); // mission -> its button

  /** @type {(name: string) => void} */
  function choose(name) {
    model.set("chosen", model.get("chosen") === name ? "" : name);
    model.save_changes();
  }

  function showBoard() {
    const focused = focusedIn(list);
    const key = focused?.dataset.key;
    const [lessons, chosen] = [model.get("lessons"), model.get("chosen")];
    rows.clear();
    list.replaceChildren(...lessons.map((lesson) => lessonOf(lesson, chosen)));
    if (focused?.isConnected) focused.focus({ preventScroll: true });
    else if (key) list.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
    filled.style.width = `${(100 * model.get("n_passed")) / Math.max(1, model.get("n_missions"))}%`;
    caption.textContent = model.get("caption");
    next.hidden = !model.get("next") || model.get("next") === chosen;
    problem.textContent = model.get("problem");
    problem.hidden = !problem.textContent;
  }

  /** @type {(lesson: Lesson, chosen: string) => HTMLElement} */
  function lessonOf({ name, title, question, minutes, missions }, chosen) {
    const n = missions.filter(({ passed }) => passed).length;
    const all = missions.length > 0 && n === missions.length;
    const holds = missions.some((mission) => mission.name === chosen);
    const isNext = !chosen && missions.some((mission) => mission.name === model.get("next"));
    const count = missions.length ? `${n} of ${missions.length}` : "";
    const head = [
      h("b", { class: "dtfm-course-title" }, `${name.slice(0, 2)} ${title}`),
      h("span", { class: `dtfm-course-count${all ? " dtfm-done" : ""}`, title: count ? "missions won" : null }, all ? `✓ ${count}` : count),
      h("span", { class: "dtfm-course-question" }, `${question} `, h("i", {}, `notebooks/${name}, ${minutes} min`)),
    ];
    if (!missions.length) return h("div", { class: "dtfm-course-lesson" }, h("div", { class: "dtfm-course-summary" }, ...head));
    const summary = h("summary", { class: "dtfm-course-summary", "data-key": `lesson ${name}`, onclick: () => touched.set(name, !box.open) }, ...head);
    /** @type {HTMLElement & { open?: boolean }} */
    const box = h(
      "details",
      { class: "dtfm-course-lesson", open: holds || (touched.get(name) ?? isNext) },
      summary,
      ...missions.flatMap((mission) => missionOf(mission, chosen)),
    );
    return box;
  }

  /** @type {(mission: Mission, chosen: string) => HTMLElement[]} */
  function missionOf({ name, title, minutes, passed, note }, chosen) {
    const open = name === chosen;
    const button = h(
      "button",
      {
        type: "button",
        class: "dtfm-course-mission",
        "data-key": `mission ${name}`,
        "data-name": name,
        "data-passed": String(passed),
        "aria-expanded": String(open),
        "aria-controls": open ? `${id}-detail` : null,
        onclick: () => choose(name),
      },
      h("span", { class: "dtfm-course-mark", role: "img", "aria-label": passed ? "won" : "not won yet" }, passed ? "✓" : ""),
      h("span", { class: "dtfm-course-name" }, title),
      h("span", { class: "dtfm-course-note" }, [note, `${minutes} min`].filter(Boolean).join(" · ")),
    );
    rows.set(name, button);
    return open ? [button, detail.box] : [button];
  }

  let shown = "";

  function showDetail() {
    detail.show(model.get("detail"));
    const chosen = model.get("chosen");
    if (chosen && chosen !== shown) rows.get(chosen)?.scrollIntoView({ block: "nearest" });
    shown = chosen;
  }

  onTraits(model, ["lessons", "chosen", "caption", "n_passed", "n_missions", "next", "problem"], showBoard, cleanUp);
  onTraits(model, ["detail"], showDetail, cleanUp);
  showBoard();
  showDetail();
  return cleanUp.run;
}

/**
 * The open mission; it is made once, so that what is typed stays when something of it changes.
 * @type {(id: string, press: (kind: string, more?: object) => void) => { box: HTMLElement, show: (detail: Detail) => void }}
 */
function makeDetail(id, press) {
  const task = h("div", { class: "dtfm-course-task" });
  const wanted = h("p", { class: "dtfm-course-wanted" });
  const field = h("input", { type: "text", id: `${id}-field`, autocomplete: "off", spellcheck: "false" });
  const hand = h("button", { type: "submit" }, "Check this");
  const form = h("form", {}, h("label", { for: `${id}-field` }, "Your answer"), field, hand);
  const check = h("button", { type: "button", class: "dtfm-main", onclick: () => press("check") });
  const open = h("button", { type: "button", onclick: () => press("open") });
  const whyNot = h("span", { class: "dtfm-course-note" });
  const onScreen = h("div", { class: "dtfm-course-row" }, open, check, whyNot);
  const verdict = h("p", { class: "dtfm-course-verdict", role: "status" });
  const hints = h("ol", { class: "dtfm-course-hints" });
  const hint = h("button", { type: "button", onclick: () => press("hint") });
  const answer = h("button", { type: "button", onclick: () => press("answer") }, "Show the worked answer");
  const code = h("pre", { class: "dtfm-course-code", tabindex: "0", "aria-label": "The worked answer" });
  const off = h("span", { class: "dtfm-course-note" });
  const cell = h("code");
  const inCell = h("p", { class: "dtfm-course-wanted" }, "In a cell: ", cell);
  const box = h(
    "div",
    { class: "dtfm-course-detail", id: `${id}-detail`, role: "region", "aria-label": "Mission" },
    task,
    wanted,
    onScreen,
    form,
    inCell,
    verdict,
    hints,
    h("div", { class: "dtfm-course-row" }, hint, answer, off),
    code,
  );
  /** @type {(event: Event) => void} */
  const submit = (event) => {
    event.preventDefault();
    if (field.value.trim()) press("typed", { text: field.value });
  };
  form.addEventListener("submit", submit);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter") submit(event);
  });
  let name = "";

  /** @type {(detail: Detail) => void} */
  function show(detail) {
    if (detail.name !== name) field.value = "";
    name = detail.name;
    if (!name) return;
    const { hints: texts, n_hints: nHints, verdict: said, checks, busy } = detail;
    if (task.innerHTML !== detail.task) task.innerHTML = detail.task;
    wanted.textContent = detail.wanted;
    check.hidden = !checks;
    check.textContent = busy ? "Checking…" : `Check ${checks}`;
    const stopped = Boolean(busy || detail.why_not);
    check.setAttribute("aria-disabled", String(stopped)); // not disabled: it would lose the focus
    whyNot.textContent = checks ? detail.why_not : "";
    open.hidden = !detail.network;
    onScreen.hidden = !checks && !detail.network;
    open.textContent = `Draw ${detail.network}`;
    form.hidden = !detail.typed;
    field.inputMode = detail.is_number ? "decimal" : "text";
    hand.textContent = busy ? "Checking…" : "Check this";
    inCell.hidden = Boolean(checks || detail.typed);
    cell.textContent = detail.cell;
    verdict.hidden = !said.reason;
    verdict.dataset.passed = String(Boolean(said.passed));
    const words = said.reason ? `<b>${said.passed ? "✓ Won" : "Not yet"}:</b> ${said.reason}` : "";
    if (verdict.dataset.words !== words) {
      verdict.innerHTML = words;
      verdict.dataset.words = words;
    }
    hints.hidden = !texts.length;
    hints.replaceChildren(
      ...texts.map((text) => {
        const item = h("li");
        item.innerHTML = text;
        return item;
      }),
    );
    const left = nHints - texts.length;
    hint.hidden = left <= 0;
    hint.textContent = texts.length ? `Another hint (${left} left)` : `A hint (of ${nHints})`;
    answer.hidden = Boolean(detail.answer) || !detail.has_answer;
    off.textContent = detail.off;
    code.hidden = !detail.answer;
    code.textContent = detail.answer;
  }
  return { box, show };
}

export default view(render);
