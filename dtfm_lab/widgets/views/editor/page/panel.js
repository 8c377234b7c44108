// The side panel: sections of fields. It is updated in place where it can be, so that typing,
// Tab and a screen reader keep their spot while the document changes underneath.
import { h } from "shared/dom.js";
import { there } from "shared/there.js";
/** @import { Field, Section } from "../types.d.ts" */

const MIXED = "(mixed)";

/** @typedef {(input: HTMLElement, take: (value: string) => string | null | void, value: string) => boolean} Attempt */
/** @typedef {{ element: HTMLElement, update: (now: Section) => void }} Held */
/** @typedef {{ element: HTMLElement, control?: HTMLElement, update: (field: Field, attempt: Attempt, fresh: boolean) => void }} Input */

/**
 * `show(sections)` with sections of {title, subject, notes, fields, actions}; `subject` names what
 * is edited. A field is
 * {name, label, kind: "text" | "number" | "choice", half, values, placeholder, options, take(value)}:
 * `values` are those of everything selected, `take` applies one and returns a refusal or nothing; two
 * that are `half` share a row. Between fields may stand {kind: "heading" | "note", label}.
 * @type {(element: HTMLElement) => { show: (sections: Section[]) => void }}
 */
export function sidePanel(element) {
  /** @type {{ shape: string, sections: Held[] } | null} */
  let shown = null;
  element.tabIndex = -1;

  /** @type {(sections: Section[]) => void} */
  function show(sections) {
    const shape = JSON.stringify(
      sections.map(({ title, notes = [], fields = [], actions = [] }) => [
        title.split(" ")[0].replace(/\d+/g, "#"),
        notes.length,
        fields.map(({ name, kind, options }) => [name, kind, options]),
        actions.map(({ label }) => label),
      ]),
    );
    if (shown?.shape !== shape) shown = build(sections, shape);
    shown.sections.forEach((held, at) => held.update(sections[at]));
  }

  /** @type {(sections: Section[], shape: string) => { shape: string, sections: Held[] }} */
  function build(sections, shape) {
    const focused = element.contains(document.activeElement) ? /** @type {HTMLInputElement} */ (document.activeElement).name : null;
    const held = sections.map(section);
    if (focused) element.focus({ preventScroll: true }); // removing a focused field would give the focus to the notebook's cell
    element.replaceChildren(...held.map((one) => one.element));
    if (focused) element.querySelector(`[name="${focused}"]`)?.focus({ preventScroll: true });
    return { shape, sections: held };
  }

  return { show };
}

/** @type {(section: Section) => Held} */
function section({ notes = [], fields = [], actions = [] }) {
  const title = h("h4");
  const inputs = fields.map(makeField);
  const texts = notes.map(() => h("p"));
  const refusal = h("p", { class: "dtfm-refusal", role: "alert", hidden: true });
  const buttons = actions.map(() => h("button", { type: "button" }));
  const element = h(
    "section",
    {},
    title,
    h("div", { class: "dtfm-fields" }, ...inputs.map((input) => input.element)),
    refusal,
    ...(buttons.length ? [h("div", { class: "dtfm-actions" }, ...buttons)] : []),
    ...texts,
  );

  /** @type {string | null | undefined} */
  let subject = null;

  /**
   * Applies a value and shows, or clears, the reason it was refused.
   * @type {Attempt}
   */
  const attempt = (input, take, value) => {
    const reason = take(value) ?? "";
    refusal.textContent = reason;
    refusal.hidden = !reason;
    input.setAttribute("aria-invalid", String(Boolean(reason)));
    return !reason;
  };

  return {
    element,
    /** @type {(now: Section) => void} */
    update(now) {
      const fresh = subject !== now.subject; // an entry refused for one thing does not concern the next
      subject = now.subject;
      title.textContent = now.title;
      texts.forEach((text, at) => {
        text.textContent = (now.notes ?? [])[at];
      });
      (now.fields ?? []).forEach((field, at) => inputs[at].update(field, attempt, fresh));
      (now.actions ?? []).forEach(({ label, press, hint }, at) => {
        buttons[at].textContent = label;
        buttons[at].title = hint ?? "";
        buttons[at].onclick = press;
      });
      if (!inputs.some((input) => input.control?.getAttribute("aria-invalid") === "true")) refusal.hidden = true;
    },
  };
}

/** @type {(field: Field) => Input} */
function makeField({ kind, half }) {
  const field = kind === "choice" ? choiceField() : kind === "heading" || kind === "note" ? wording(kind) : textField(kind);
  if (half) field.element.classList.add("dtfm-half");
  return field;
}

/**
 * A line of text between fields.
 * @type {(kind: "heading" | "note") => Input}
 */
function wording(kind) {
  const element = h(kind === "heading" ? "h5" : "p");
  return {
    element,
    update({ label }) {
      element.textContent = label;
    },
  };
}

/** @type {(values: (string | number)[]) => string | number | undefined} */
const agreed = (values) => (values.every((value) => value === values[0]) ? values[0] : undefined);

/** @type {(kind: "text" | "number") => Input} */
function textField(kind) {
  const control = h("input", { type: "text", autocomplete: "off", spellcheck: "false", inputmode: kind === "number" ? "decimal" : "text" });
  const label = h("span");
  let standing = "";

  /** A number is rounded for reading, and whole while it is edited. */
  function restore() {
    const read = kind === "number" && standing !== "" && Number.isFinite(Number(standing)) && document.activeElement !== control;
    control.value = read ? String(Number(Number(standing).toPrecision(4))) : standing;
    control.removeAttribute("aria-invalid");
  }
  for (const event of ["focus", "blur"])
    control.addEventListener(event, () => {
      if (control.getAttribute("aria-invalid") !== "true") restore();
    });
  control.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && control.value !== standing) {
      restore();
      event.stopPropagation();
    }
    if (event.key === "Enter") control.onchange?.(event); // so that its change event has nothing left to do
  });

  return {
    control,
    element: h("label", {}, label, control),
    update(field, attempt, fresh) {
      const value = agreed(field.values ?? []);
      const text = value === undefined ? "" : String(value);
      const changed = fresh || text !== standing;
      const typing = control === document.activeElement || control.getAttribute("aria-invalid") === "true";
      standing = text;
      label.textContent = field.label;
      control.name = field.name ?? "";
      control.placeholder = value === undefined && field.values?.length ? MIXED : (field.placeholder ?? "");
      if (changed || !typing) restore();
      control.onchange = () => {
        if (control.value.trim() === standing && standing !== "") return attempt(control, () => null, "") && restore();
        if (value === undefined && control.value.trim() === "") return attempt(control, () => null, "");
        attempt(control, there(field.take), control.value.trim());
      };
    },
  };
}

/** @type {() => Input} */
function choiceField() {
  const control = h("select");
  const label = h("span");
  return {
    control,
    element: h("label", {}, label, control),
    update(field, attempt) {
      const value = agreed(field.values ?? []);
      const options = there(field.options).map(([choice, text]) => h("option", { value: choice }, text));
      if (value === undefined) options.unshift(h("option", { value: MIXED, disabled: true }, MIXED));
      label.textContent = field.label;
      control.name = field.name ?? "";
      control.replaceChildren(...options);
      control.value = String(value ?? MIXED);
      control.onchange = () => attempt(control, there(field.take), control.value);
    },
  };
}
