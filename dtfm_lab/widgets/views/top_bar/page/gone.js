// The kernel has ended: the last picture stays, dimmed, and one button brings the lab back.
/** @import { CleanUps, Model } from "shared/types.d.ts" */
/** @import { Traits } from "../types.d.ts" */

const ENDED = new Set(["restarting", "autorestarting", "terminating", "dead"]);
const SHOWN = new Set(["display_data", "execute_result", "stream", "error"]);
const WIDGET = "application/vnd.jupyter.widget-view+json";

/**
 * `handler(gone)` when the kernel that the lab is of has ended, or comes back into reach.
 * @type {(model: Model<Traits>, handler: (gone: boolean) => void, cleanUp: CleanUps) => Promise<void>}
 */
export async function onGone(model, handler, cleanUp) {
  const manager = model.widget_manager;
  const own = await manager?.get_model?.(model.get("own_id"));
  const { kernel } = manager ?? {};
  if (!own || !kernel) return;
  let ended = false;
  const tell = () => handler(ended || own.comm_live === false || kernel.connectionStatus === "disconnected");
  /** @type {(kernel: unknown, status: string) => void} */
  const onStatus = (_, status) => {
    ended ||= ENDED.has(status);
    tell();
  };
  own.on("comm_live_update", tell);
  kernel.statusChanged.connect(onStatus);
  kernel.connectionStatusChanged.connect(tell);
  kernel.disposed.connect(onEnd);
  function onEnd() {
    ended = true;
    tell();
  }
  cleanUp.add(() => {
    own.off("comm_live_update", tell);
    kernel.statusChanged.disconnect(onStatus);
    kernel.connectionStatusChanged.disconnect(tell);
    kernel.disposed.disconnect(onEnd);
  });
}

/**
 * True if the lab can be restored: a notebook's from its autosave, a separate page by reloading it.
 * @type {(model: Model<Traits>) => boolean}
 */
export const canBringBack = (model) => Boolean(model.get("again") || !model.widget_manager.context);

/**
 * Restores the saved lab, in the output that it was in.
 * @type {(model: Model<Traits>) => Promise<unknown>}
 */
export async function bringBack(model) {
  const { context } = model.widget_manager;
  if (!context) return location.reload();
  const { sessionContext } = context,
    kernelOf = () => sessionContext.session?.kernel;
  if (!kernelOf() || kernelOf().status === "dead") await sessionContext.restartKernel();
  const outputs = outputsWith(context.model, model.get("shown_as"));
  const future = kernelOf().requestExecute({ code: model.get("again"), store_history: false });
  let cleared = false;
  future.onIOPub = (/** @type {{ header: { msg_type: string }, content: object }} */ { header, content }) => {
    if (!SHOWN.has(header.msg_type)) return;
    if (!cleared) outputs?.clear();
    cleared = true;
    const type = header.msg_type === "execute_result" ? "display_data" : header.msg_type; // no cell was run, so it has no number
    outputs?.add({ output_type: type, ...content });
  };
  return future.done;
}

/** @type {(notebook: any, id: string) => any} any: JupyterLab's model of a notebook and of outputs, whose types are no dependency */
function outputsWith(notebook, id) {
  for (const { outputs } of notebook.cells ?? [])
    for (let at = 0; at < (outputs?.length ?? 0); at++) if (outputs.get(at).data?.[WIDGET]?.model_id === id) return outputs;
  return null;
}
