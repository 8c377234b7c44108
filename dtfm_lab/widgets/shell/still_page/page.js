// Stands in for a notebook and its kernel: mounts the lab's views on a page, with models that only hold traits.

/** The page's JSON, its binary values as DataViews; see `_packed` of __init__.py. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const whole = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true),
    begin = 4 + length;
  const revive = (_, value) => (Array.isArray(value?.buffer) ? new DataView(whole, begin + value.buffer[0], value.buffer[1]) : value);
  return JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)), revive);
}

/** A model of anywidget without a kernel: `answer(content)` takes the messages that would go to it. */
function modelOf(traits, answer) {
  const handlers = new Map();
  const heard = (event) => handlers.get(event) ?? [];
  return {
    traits,
    get: (name) => traits[name],
    set(name, value) {
      if (traits[name] !== value) this.setAll({ [name]: value });
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

/** What is selected in one view is selected in the other, as the lab's state has it. */
function linked(map, gantt) {
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

const sorted = (pair) => JSON.stringify([...pair].sort());
const endsOf = (line) => line.regions ?? [line.from, line.to];

/**
 * Answers changes with what was found beforehand, one at a time: a link's label that is dragged shows the nearest of its
 * answers, and takes its number when it is let go.
 */
function answering(made, { pairs, batches }, batchOf) {
  const first = Object.fromEntries(Object.entries(made).map(([name, model]) => [name, { ...model.traits }]));
  const { document } = first.map;
  let shown = {},
    drawn = document;

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
    batchOf(batches.find((one) => one[1] === answer)?.[0] ?? batches.find(([, one]) => !Object.keys(one).length)[0]);
  }

  const written = (of) => new Map(of.between.map((line) => [sorted(endsOf(line)), line]));
  let nearest = null;
  made.map.on("change:document", () => {
    const next = made.map.get("document"),
      before = written(drawn),
      base = written(document);
    const dragged = [...written(next)].find(([pair, line]) => JSON.stringify(line) !== JSON.stringify(before.get(pair)));
    if (next === drawn || !dragged) return;
    const [pair, { bandwidth_gbps: gbps }] = dragged;
    const own = (base.get(pair) ?? document.default).bandwidth_gbps;
    const near = [[own, {}], ...(pairs[pair] ?? [])].sort(([a], [b]) => Math.abs(Math.log(a / gbps)) - Math.abs(Math.log(b / gbps)));
    nearest = near[0][1];
    if (nearest !== shown) show(nearest, false);
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

/** The line of what can be asked: batches, the way back, other networks, and how it was found. */
function asksOf({ batches, others, note }, act) {
  const make = (tag, traits, ...children) => {
    const element = Object.assign(document.createElement(tag), traits);
    element.append(...children);
    return element;
  };
  const choices = batches.map(([batch]) => make("button", { type: "button", textContent: batch, onclick: () => act.batch(batch) }));
  const elsewhere = make(
    "select",
    {
      onchange: ({ target }) => {
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

async function mount(lab, { styles, scripts, models, asked }) {
  dress();
  document.head.append(Object.assign(document.createElement("style"), { textContent: styles.join("\n") }));
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
  const made = {};
  let answers = null;
  for (const name of Object.keys(scripts)) {
    const answer = (content) => {
      if (content?.name === "words") made.glossary.set("is_open", true);
      if (content?.kind === "gesture" && content.phase === "end") answers?.letGo();
    };
    made[name] = modelOf(models[name], answer);
  }
  linked(made.map, made.gantt);
  if (asked) {
    const asks = asksOf(asked, { back: () => answers.back(), batch: (batch) => answers.show(asked.batches.find(([one]) => one === batch)[1]) });
    answers = answering(made, asked, asks.mark);
    bar.after(asks.line);
    answers.back();
  }
  for (const [name, source] of Object.entries(scripts)) {
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const { default: view } = await import(address);
    URL.revokeObjectURL(address);
    view.render({ model: made[name], el: places[name] });
  }
  lab.dataset.shown = "true";
}

await mount(document.querySelector(".dtfm-still"), await unpacked(document.getElementById("dtfm-packed").textContent));
