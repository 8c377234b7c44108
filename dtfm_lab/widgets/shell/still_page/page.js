// Stands in for a notebook and its kernel: mounts the lab's views on a page, with models that only hold traits.
/** @import { Answer, Asked, Document, Line, Message, Model, Models, Packed, Traits } from "./types.d.ts" */

/**
 * The page's JSON, its binary values as DataViews; see `_packed` of __init__.py.
 * @type {(text: string) => Promise<Packed>}
 */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const whole = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true),
    begin = 4 + length;
  /** @type {(name: string, value: any) => any} */
  const revive = (_, value) => (Array.isArray(value?.buffer) ? new DataView(whole, begin + value.buffer[0], value.buffer[1]) : value);
  return JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)), revive);
}

/**
 * A model of anywidget without a kernel: `answer(content)` takes the messages that would go to it.
 * @type {(traits: Traits, answer: (content: Message) => void) => Model}
 */
function modelOf(traits, answer) {
  /** @type {Map<string, (() => void)[]>} */
  const handlers = new Map();
  /** @type {(event: string) => (() => void)[]} */
  const heard = (event) => handlers.get(event) ?? [];
  /** @type {Model} */
  const model = {
    traits,
    get: (name) => traits[name],
    set(name, value) {
      if (traits[name] !== value) model.setAll({ [name]: value });
    },
    /** All of them before anybody hears of one, as they belong together. */
    setAll(values) {
      Object.assign(traits, values);
      for (const name of Object.keys(values)) for (const handler of [...heard(`change:${name}`)]) handler();
    },
    save_changes(callbacks) {
      callbacks?.iopub?.status({ content: { execution_state: "idle" } });
    },
    send: answer,
    on: (event, handler) => handlers.set(event, [...heard(event), handler]),
    off: (event, handler) =>
      handlers.set(
        event,
        heard(event).filter((one) => one !== handler),
      ),
  };
  return model;
}

/** Follows the reader's system: the body is named as JupyterLab names it, which is where views look. */
function dress() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    document.body.dataset.jpThemeLight = String(!system.matches);
  };
  system.addEventListener("change", show);
  show();
}

/**
 * What is selected in one view is selected in the other, as the lab's state has it.
 * @type {(map: Model, gantt: Model) => void}
 */
function linked(map, gantt) {
  /** @type {(from: Model, to: Model) => void} */
  const follow = (from, to) =>
    from.on("change:selected", () => {
      if (JSON.stringify(from.get("selected")) !== JSON.stringify(to.get("selected"))) to.set("selected", from.get("selected"));
    });
  follow(map, gantt);
  follow(gantt, map);
  gantt.on("change:selected_stage", () => {
    const { stage: _, ...highlight } = map.get("highlight"),
      stage = gantt.get("selected_stage");
    map.set("highlight", stage < 0 ? highlight : { ...highlight, stage });
  });
}

/** @type {(pair: string[]) => string} */
const sorted = (pair) => JSON.stringify([...pair].sort());
/** @type {(line: Line) => string[]} */
const endsOf = (line) => line.regions ?? [line.from ?? "", line.to ?? ""];

/**
 * Answers changes with what was found beforehand, one at a time: a link's label that is dragged shows the nearest of its
 * answers, and takes its number when it is let go.
 * @type {(made: Models, asked: Asked, batchOf: (batch: number) => void) => { show: (answer: Answer, letGo?: boolean) => void, letGo: () => void, back: () => void }}
 */
function answering(made, { pairs, batches }, batchOf) {
  const first = Object.fromEntries(Object.entries(made).map(([name, model]) => [name, { ...model.traits }]));
  const { document } = first.map;
  /** @type {Answer} */
  let shown = {};
  let drawn = /** @type {Document} */ (document);

  /** @type {(answer: Answer, letGo?: boolean) => void} */
  function show(answer, letGo = true) {
    for (const [name, model] of Object.entries(made)) {
      const changed = { ...Object.fromEntries(Object.keys(shown[name] ?? {}).map((what) => [what, first[name][what]])), ...answer[name] };
      if (name === "map" && !letGo) delete changed.document;
      if (Object.keys(changed).length) model.setAll(changed);
    }
    shown = answer;
    if (letGo) {
      drawn = answer.map?.document ?? document;
      made.map.set("document", drawn);
    }
    batchOf(batches.find((one) => one[1] === answer)?.[0] ?? batches.find(([, one]) => !Object.keys(one).length)?.[0] ?? 0);
  }

  /** @type {(of: Document) => Map<string, Line>} */
  const written = (of) => new Map(of.between.map((line) => [sorted(endsOf(line)), line]));
  let nearest = /** @type {Answer | null} */ (null);
  made.map.on("change:document", () => {
    const next = made.map.get("document"),
      before = written(drawn),
      base = written(document);
    const dragged = [...written(next)].find(([pair, line]) => JSON.stringify(line) !== JSON.stringify(before.get(pair)));
    if (next === drawn || !dragged) return;
    const [pair, { bandwidth_gbps: gbps }] = dragged;
    const own = (base.get(pair) ?? document.default).bandwidth_gbps;
    const near = [[own, {}], ...(pairs[pair] ?? [])].sort(([a], [b]) => Math.abs(Math.log(a / gbps)) - Math.abs(Math.log(b / gbps)));
    const [[, found]] = near;
    nearest = found;
    if (found !== shown) show(found, false);
  });
  return {
    show,
    letGo: () => {
      if (nearest) show(nearest);
      nearest = null;
    },
    back: () => show({}),
  };
}

/**
 * The line of what can be asked: batches, the way back, other networks, and how it was found.
 * @type {(asked: Asked, act: { back: () => void, batch: (batch: number) => void }) => { line: HTMLElement, mark: (batch: number) => void }}
 */
function asksOf({ batches, others, note }, act) {
  /** @type {<K extends keyof HTMLElementTagNameMap>(tag: K, traits: object, ...children: (Node | string)[]) => HTMLElementTagNameMap[K]} */
  const make = (tag, traits, ...children) => {
    const element = Object.assign(document.createElement(tag), traits);
    element.append(...children);
    return element;
  };
  const choices = batches.map(([batch]) => make("button", { type: "button", textContent: batch, onclick: () => act.batch(batch) }));
  const elsewhere = make(
    "select",
    {
      onchange: (/** @type {{ target: HTMLSelectElement }} */ { target }) => {
        location.href = target.value;
      },
    },
    ...Object.entries(others).map(([title, address]) => make("option", { textContent: title, value: address, selected: !address })),
  );
  elsewhere.setAttribute("aria-label", "Network");
  const line = make(
    "div",
    { className: "dtfm-still-asks" },
    elsewhere,
    make("b", { textContent: "Drag a link's label sideways" }),
    ...(batches.length > 1 ? [make("span", { textContent: "or train with a batch of" }), make("span", { className: "dtfm-still-batches" }, ...choices)] : []),
    make("button", { type: "button", textContent: "As it was", onclick: act.back }),
    make("small", { textContent: note, title: note }),
  );
  return { line, mark: (batch) => choices.forEach((one, at) => one.setAttribute("aria-pressed", String(batches[at][0] === batch))) };
}

/** @type {(lab: HTMLElement, packed: Packed) => Promise<void>} */
async function mount(lab, { styles, scripts, models, asked }) {
  dress();
  document.head.append(Object.assign(document.createElement("style"), { textContent: styles.join("\n") }));
  /** @type {(className: string, ...children: Node[]) => HTMLElement} */
  const box = (className, ...children) => {
    const element = Object.assign(document.createElement("div"), { className });
    element.append(...children);
    return element;
  };
  const places = Object.fromEntries(Object.keys(scripts).map((name) => [name, box(`dtfm-still-${name}`)]));
  const { top_bar: bar, map, player, gantt, legend, glossary } = places;
  const panes = box("dtfm-panes", box("dtfm-cause", box("dtfm-picture", map), player), box("dtfm-effect", gantt));
  panes.prepend(Object.assign(document.createElement("h1"), { textContent: document.title }));
  panes.setAttribute("role", "main");
  bar.setAttribute("role", "banner");
  legend.setAttribute("role", "complementary");
  lab.append(bar, panes, legend, glossary);
  /** @type {Models} */
  const made = {};
  let answers = /** @type {ReturnType<typeof answering> | null} */ (null);
  for (const name of Object.keys(scripts)) {
    /** @type {(content: Message) => void} */
    const answer = (content) => {
      if (content?.name === "words") made.glossary.set("is_open", true);
      if (content?.kind === "gesture" && content.phase === "end") answers?.letGo();
    };
    made[name] = modelOf(models[name], answer);
  }
  linked(made.map, made.gantt);
  if (asked) {
    const asks = asksOf(asked, {
      back: () => answers?.back(),
      batch: (batch) => answers?.show((asked.batches.find(([one]) => one === batch) ?? asked.batches[0])[1]),
    });
    answers = answering(made, asked, asks.mark);
    bar.after(asks.line);
    answers.back();
  }
  for (const [name, source] of Object.entries(scripts)) {
    const { default: view } = await imported(source);
    view.render({ model: made[name], el: places[name] });
  }
  lab.dataset.shown = "true";
}

/**
 * A script that is imported, though it is no file.
 * @type {(source: string) => Promise<any>} any: what it exports
 */
async function imported(source) {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return await import(address);
  } finally {
    URL.revokeObjectURL(address);
  }
}

/**
 * A line in place of the lab, and a field for a link.
 * @type {(lab: HTMLElement, line: string, mark: string) => void}
 */
function showLine(lab, line, mark) {
  const field = Object.assign(document.createElement("input"), { type: "text", placeholder: "Paste a link of the lab", spellcheck: false });
  field.setAttribute("aria-label", "Link");
  const form = document.createElement("form"),
    open = Object.assign(document.createElement("button"), { textContent: "Open" }),
    said = Object.assign(document.createElement("p"), { textContent: line });
  said.setAttribute("role", "alert");
  const how = "In the lab, press Share, then Copy link. This page shows its network, plan and predicted iteration: nothing is sent anywhere.";
  form.append(field, open);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const at = field.value.indexOf(mark);
    if (at < 0) said.textContent = `The text has no ${mark} in it, so it is no link of the lab.`;
    else location.hash = field.value.slice(at).trim();
  });
  document.querySelector("footer")?.remove();
  const box = Object.assign(document.createElement("main"), { className: "dtfm-still-line" });
  box.append(
    Object.assign(document.createElement("h1"), { textContent: "A plan in a link" }),
    said,
    form,
    Object.assign(document.createElement("p"), { textContent: how }),
  );
  lab.replaceChildren(box);
}

/**
 * Shows what the link in the address holds, or says in a line why it cannot.
 * @type {(lab: HTMLElement, packed: Packed, reader: string) => Promise<void>}
 */
async function openLink(lab, packed, reader) {
  const { readLink, LinkError, MARK } = await imported(reader);
  window.addEventListener("hashchange", () => location.reload());
  const failed = () => showLine(lab, "The link is damaged: it cannot be drawn. Copy it again, whole.", MARK);
  dress();
  try {
    const { title, made, views } = await readLink(location.hash, packed.models);
    document.title = title;
    for (const [name, traits] of Object.entries(views)) Object.assign(packed.models[name], traits);
    const foot = document.querySelector("footer");
    if (foot) foot.textContent += ` ${made}.`;
    window.addEventListener("error", failed);
    await mount(lab, packed);
  } catch (error) {
    if (error instanceof LinkError) showLine(lab, /** @type {Error} */ (error).message, MARK);
    else failed();
  }
}

const lab = /** @type {HTMLElement} */ (document.querySelector(".dtfm-still"));
const page = await unpacked(/** @type {HTMLElement} */ (document.getElementById("dtfm-packed")).textContent ?? "");
if (page.reader) await openLink(lab, page, page.reader);
else await mount(lab, page);
