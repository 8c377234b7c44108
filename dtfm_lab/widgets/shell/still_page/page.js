// Stands in for a notebook and its kernel: mounts the lab's views on a page, with models that only hold traits.

/** The page's JSON, its binary values as DataViews; see `_packed` of __init__.py. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const whole = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true), begin = 4 + length;
  const revive = (_, value) => (Array.isArray(value?.buffer) ? new DataView(whole, begin + value.buffer[0], value.buffer[1]) : value);
  return JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)), revive);
}

/** A model of anywidget without a kernel: `answer(content)` takes the messages that would go to it. */
function modelOf(traits, answer) {
  const handlers = new Map();
  const heard = (event) => handlers.get(event) ?? [];
  return {
    get: (name) => traits[name],
    set(name, value) {
      if (traits[name] === value) return;
      traits[name] = value;
      for (const handler of [...heard(`change:${name}`)]) handler();
    },
    save_changes() {},
    send: answer,
    on: (event, handler) => handlers.set(event, [...heard(event), handler]),
    off: (event, handler) => handlers.set(event, heard(event).filter((one) => one !== handler)),
  };
}

/** Follows the reader's system: the body is named as JupyterLab names it, which is where views look. */
function dress() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => { document.body.dataset.jpThemeLight = String(!system.matches); };
  system.addEventListener("change", show);
  show();
}

/** What is selected in one view is selected in the other, as the lab's state has it. */
function linked(map, gantt) {
  const follow = (from, to) => from.on("change:selected", () => {
    if (JSON.stringify(from.get("selected")) !== JSON.stringify(to.get("selected"))) to.set("selected", from.get("selected"));
  });
  follow(map, gantt);
  follow(gantt, map);
  gantt.on("change:selected_stage", () => {
    const { stage: _, ...highlight } = map.get("highlight"), stage = gantt.get("selected_stage");
    map.set("highlight", stage < 0 ? highlight : { ...highlight, stage });
  });
}

async function mount(lab, { styles, scripts, models }) {
  dress();
  document.head.append(Object.assign(document.createElement("style"), { textContent: styles.join("\n") }));
  const box = (className, ...children) => {
    const element = Object.assign(document.createElement("div"), { className });
    element.append(...children);
    return element;
  };
  const places = Object.fromEntries(Object.keys(scripts).map((name) => [name, box(`dtfm-still-${name}`)]));
  const { top_bar: bar, map, player, gantt, legend, glossary } = places;
  lab.append(bar, box("dtfm-panes", box("dtfm-cause", box("dtfm-picture", map), player), box("dtfm-effect", gantt)), legend, glossary);
  const made = {};
  for (const name of Object.keys(scripts)) {
    const answer = (content) => { if (content?.name === "words") made.glossary.set("is_open", true); };
    made[name] = modelOf(models[name], answer);
  }
  linked(made.map, made.gantt);
  for (const [name, source] of Object.entries(scripts)) {
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const { default: view } = await import(address);
    URL.revokeObjectURL(address);
    view.render({ model: made[name], el: places[name] });
  }
  lab.dataset.shown = "true";
}

await mount(document.querySelector(".dtfm-still"), await unpacked(document.getElementById("dtfm-packed").textContent));
