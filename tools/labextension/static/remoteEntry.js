// The lab in JupyterLab's launcher and among its commands. Written by hand as what JupyterLab loads: a container with
// `init`, which gets the modules that JupyterLab shares, and `get`, which returns the plugin. Nothing is built.
(() => {
  const OPEN = "dtfm-lab:open";
  const SOURCE = "import dtfm_lab as lab\n\nlab.Lab()";
  const ICON =
    '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24" viewBox="0 0 24 24"><path d="M5 17 10 7l4 9 5-10" fill="none" '
    + 'stroke="#8d8a99" stroke-width="1.4"/><circle cx="5" cy="17" r="3.4" fill="#3a2d96"/><circle cx="10" cy="7" r="3.4" fill="#7a4fb5"/>'
    + '<circle cx="14" cy="16" r="3.4" fill="#c46bbf"/><circle cx="19" cy="6" r="3.4" fill="#f5a3cd"/></svg>';
  // In a tab of its own the lab fills the tab, however high that is.
  const STYLE = `
    .dtfm-lab-tab { position: relative; container-type: size; overflow: hidden; background: var(--jp-layout-color1); }
    .dtfm-lab-tab :is(.jp-OutputArea, .jp-OutputArea-child, .jp-OutputArea-output) { padding: 0; margin: 0; overflow: hidden; }
    .dtfm-lab-tab :is(.jp-OutputPrompt, .jp-OutputArea-promptOverlay) { display: none; }
    .dtfm-lab-tab .dtfm-lab { height: 100cqh !important; min-height: 0 !important; max-height: none !important; margin: 0; border: 0; }
    .dtfm-lab-tab > p { position: absolute; inset: 0; display: flex; flex-direction: column; gap: 14px; align-items: center; justify-content: center;
      margin: 0; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1); font: 15px var(--jp-ui-font-family); }
    .dtfm-lab-tab > p button { padding: 9px 18px; border: 0; border-radius: 8px; background: var(--jp-ui-font-color0); color: var(--jp-layout-color1);
      font: 650 14px var(--jp-ui-font-family); cursor: pointer; }
    .dtfm-lab-tab > p[hidden] { display: none; }
  `;
  const [TRIES, TRIES_LOST, WAIT_MS] = [12, 4, 1500]; // a widget's view may come some seconds after the kernel has answered
  const LOST = "Error displaying widget"; // what ipywidgets writes where the kernel does not know the widget
  /** @type {any} any: JupyterLab's types are no dependency: this file is what JupyterLab loads, and nothing builds it */
  let shared = {};

  /**
   * A module that JupyterLab shares, or null where this application has none, such as a launcher in Notebook 7.
   * @type {(name: string) => Promise<any>}
   */
  async function load(name) {
    const versions = Object.values(shared[name] ?? {});
    return versions.length ? (await versions[0].get())() : null;
  }

  /**
   * A path in the folder that is not taken yet.
   * @type {(contents: any, folder: string) => Promise<string>}
   */
  async function freePath(contents, folder) {
    const listed = await contents.get(folder, { content: true });
    const taken = new Set(listed.content.map((/** @type {{ name: string }} */ { name }) => name));
    for (let number = 0; ; number++) {
      const name = number ? `dtfm-lab-${number}.ipynb` : "dtfm-lab.ipynb";
      if (!taken.has(name)) return folder ? `${folder}/${name}` : name;
    }
  }

  /** @type {(manager: any) => string} */
  function pythonKernel(manager) {
    const { specs } = manager.kernelspecs;
    /** @type {(name: string) => boolean} */
    const isPython = (name) => specs?.kernelspecs[name]?.language?.toLowerCase() === "python";
    return isPython(specs?.default) ? specs.default : (Object.keys(specs?.kernelspecs ?? {}).find(isPython) ?? "python3");
  }

  /**
   * Writes a notebook with one cell; its path.
   * @type {(manager: any, folder: string) => Promise<string>}
   */
  async function write(manager, folder) {
    const name = pythonKernel(manager);
    const path = await freePath(manager.contents, folder);
    const cell = { cell_type: "code", id: "lab", execution_count: null, metadata: {}, outputs: [], source: SOURCE };
    const metadata = { kernelspec: { name, display_name: name, language: "python" } };
    await manager.contents.save(path, { type: "notebook", format: "json", content: { cells: [cell], metadata, nbformat: 4, nbformat_minor: 5 } });
    return path;
  }

  /** @type {(holds: () => any, ms: number) => Promise<boolean>} */
  const until = async (holds, ms) => {
    for (const end = Date.now() + ms; Date.now() < end;) {
      if (holds()) return true;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return false;
  };

  /**
   * A tab that shows the output of the notebook's first cell, and offers to run it again where its kernel has ended.
   * @type {(path: string, parts: any) => any}
   */
  function tabOf(path, { Panel, MainAreaWidget, icon }) {
    const content = new Panel();
    content.addClass("dtfm-lab-tab");
    const line = document.createElement("p");
    line.setAttribute("role", "status");
    line.textContent = "Opening the lab …";
    content.node.append(line);
    const tab = new MainAreaWidget({ content });
    Object.assign(tab.title, { label: "dtfm lab", caption: `The lab of ${path}`, closable: true, ...(icon && { icon }) });
    tab.id = `dtfm-lab-${path}`;
    tab.toolbar.hide();
    return Object.assign(tab, { path, line });
  }

  /**
   * Shows the output, which may come late. A copy that was made before the notebook's widgets were ready stays empty, so it is made anew.
   * @type {(tab: any, panel: any) => Promise<void>}
   */
  async function show(tab, panel) {
    const { content, line } = tab;
    for (let tries = 0; tries < (content.node.textContent.includes(LOST) ? TRIES_LOST : TRIES) && !tab.isDisposed; tries++) {
      for (const old of [...content.widgets]) old.dispose();
      content.addWidget(panel.content.widgets[0].cloneOutputArea());
      const patience = WAIT_MS * (1 + tries / 2); // a busy machine may need longer for each copy
      if (await until(() => tab.isDisposed || content.node.querySelector(".dtfm-lab"), patience)) {
        line.hidden = true;
        return;
      }
    }
    offer(tab, panel, "The lab is not running.");
  }

  /** @type {(tab: any, panel: any, words: string) => void} */
  function offer(tab, panel, words) {
    if (tab.isDisposed) return;
    const again = document.createElement("button");
    again.textContent = "Open it again";
    again.onclick = () => run(tab, panel);
    tab.line.replaceChildren(words, again);
    tab.line.hidden = false;
  }

  /** @type {(tab: any, panel: any) => Promise<void>} */
  async function run(tab, panel) {
    tab.line.textContent = "Opening the lab …";
    tab.line.hidden = false;
    await panel.sessionContext.ready;
    const running = tab.actions.runAll(panel.content, panel.sessionContext);
    running.then(() => panel.context.save()); // so that the tab is there again after the page is loaded anew
    await until(() => panel.content.widgets[0].model.outputs.length, 120_000);
    await show(tab, panel);
  }

  /** @type {(app: any, tab: any, isNew: boolean) => Promise<void>} */
  async function fill(app, tab, isNew) {
    const panel = await app.commands.execute("docmanager:open", { path: tab.path, factory: "Notebook", options: { activate: false } });
    await panel.context.ready;
    panel.disposed.connect(() => tab.dispose());
    panel.sessionContext.statusChanged.connect((/** @type {unknown} */ _, /** @type {string} */ status) => {
      if (["restarting", "autorestarting", "dead", "terminating"].includes(status)) offer(tab, panel, "The lab's kernel has ended.");
    });
    if (isNew) return run(tab, panel);
    await panel.sessionContext.ready;
    return show(tab, panel);
  }

  async function plugin() {
    const names = ["notebook", "launcher", "apputils", "application", "ui-components"].map((name) => `@jupyterlab/${name}`);
    const [notebook, launching, utilities, application, components, lumino] = await Promise.all([...names, "@lumino/widgets"].map(load));
    const icon = components && new components.LabIcon({ name: "dtfm-lab:icon", svgstr: ICON });
    const kit = { ...lumino, ...utilities, Panel: lumino.Panel, icon };
    const optional = [launching?.ILauncher, utilities.ICommandPalette, application.ILayoutRestorer];
    return {
      id: "dtfm-lab:plugin",
      description: "Opens the lab in a tab of its own.",
      autoStart: true,
      requires: [notebook.INotebookTracker],
      optional: optional.filter(Boolean),
      activate(/** @type {any} */ app, /** @type {any} */ notebooks, /** @type {any[]} */ ...others) {
        const [launcher, palette, restorer] = optional.map((token) => (token ? others.shift() : null));
        const tabs = new utilities.WidgetTracker({ namespace: "dtfm-lab" });
        document.head.append(Object.assign(document.createElement("style"), { textContent: STYLE }));

        /** `path` is of a notebook whose tab is put back; without it, a new notebook is written and run. */
        async function open(/** @type {{ path?: string, cwd?: string }} */ { path, cwd = "" }) {
          const tab = tabOf(path ?? (await write(app.serviceManager, cwd)), kit);
          tab.actions = notebook.NotebookActions;
          app.shell.add(tab, "main");
          await tabs.add(tab);
          const filled = fill(app, tab, !path);
          if (!path) {
            app.shell.activateById(tab.id);
            if (window.innerWidth < 1700) app.shell.collapseLeft?.();
          }
          filled.catch((error) => {
            tab.line.textContent = `The lab could not be opened: ${error.message ?? error}`;
          });
          return tab;
        }

        app.commands.addCommand(OPEN, {
          label: (/** @type {{ isPalette?: boolean }} */ args) => (args.isPalette ? "dtfm lab: open" : "dtfm lab"),
          caption: "Plan, predict, run and compare training on machines far apart",
          icon,
          execute: (/** @type {{ path?: string, cwd?: string } | undefined} */ args) => open(args ?? {}),
        });
        restorer?.restore(tabs, {
          command: OPEN,
          args: (/** @type {{ path: string }} */ { path }) => ({ path }),
          name: (/** @type {{ path: string }} */ { path }) => path,
          when: notebooks.restored,
        });
        launcher?.add({ command: OPEN, category: "Notebook", rank: 2, kernelIconUrl: `data:image/svg+xml,${encodeURIComponent(ICON)}` });
        palette?.addItem({ command: OPEN, category: "dtfm lab", args: { isPalette: true } });
      },
    };
  }

  const page = /** @type {Window & { _JUPYTERLAB?: Record<string, object> }} */ (window);
  page._JUPYTERLAB = page._JUPYTERLAB || {};
  page._JUPYTERLAB["dtfm-lab"] = {
    init: (/** @type {any} */ scope) => {
      shared = scope;
    },
    get: async () => {
      const made = { __esModule: true, default: await plugin() };
      return () => made;
    },
  };
})();
