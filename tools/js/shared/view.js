// What every view exports.
/** @import { Model, Render } from "./types.d.ts" */

/**
 * Letters are no commands of the notebook while something in a view has the focus: JupyterLab asks the focused element
 * itself before those around it, and M on a button would make text of the cell.
 * @type {(event: Event) => void}
 */
export const keepLetters = ({ target }) => /** @type {Element} */ (target).setAttribute("data-lm-suppress-shortcuts", "true");

/**
 * A view of anywidget, drawn by `render`.
 * @type {<T extends { own_id: string }>(render: Render<T>) => { initialize: (given: { model: Model<T> }) => void, render: Render<T> }}
 */
export const view = (render) => ({
  initialize({ model }) {
    hearLate(model).catch(() => {}); // hosts of anywidget beside Jupyter have other models, and kernels end
  },
  render(given) {
    given.el.addEventListener("focusin", keepLetters);
    return render(given);
  },
});

/**
 * anywidget gives a model two seconds to load and drops every message of the kernel to one that takes longer: on a busy
 * machine a view would stay as it was drawn first. Such a model hears the kernel itself, and asks for what it has missed.
 * @type {<T extends { own_id: string }>(model: Model<T>) => Promise<void>}
 */
async function hearLate(model) {
  const late = await model.widget_manager.get_model(model.get("own_id"));
  const { _handle_comm_msg: hear } = Object.getPrototypeOf(late.constructor.prototype); // that of ipywidgets
  await late._handle_comm_msg({ content: { data: {} } }).catch(() => {
    late.comm?.on_msg(hear.bind(late));
    late.comm?.send({ method: "request_state" }); // fails if the kernel has ended: the page says so by itself
  });
}
