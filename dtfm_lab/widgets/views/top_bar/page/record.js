// Ten seconds of the result that is shown, as a video: the browser captures its own tab, cut to that half of the lab.
import { there } from "shared/there.js";
/** @import { CleanUps } from "shared/types.d.ts" */

const SECONDS = 10;
/** @type {[string, string][]} */
const FORMATS = [
  ["video/mp4", "mp4"],
  ["video/webm", "webm"],
]; // the first that the browser can write
const BITS_PER_S = 8e6; // small letters stay sharp

/**
 * `start(pane)` when the lab's button Record is pressed.
 * @type {(el: HTMLElement, start: (pane: HTMLElement) => void, cleanUp: CleanUps) => void}
 */
export function onRecord(el, start, cleanUp) {
  /** @type {(event: MouseEvent) => void} */
  const onClick = ({ target }) => {
    const lab = el.closest(".dtfm-lab");
    if (target instanceof Element && target.closest(".dtfm-record") && lab?.contains(target)) start(there(lab.querySelector(".dtfm-effect")));
  };
  document.addEventListener("click", onClick);
  cleanUp.add(() => document.removeEventListener("click", onClick));
}

/**
 * Records `pane` and hands the video over as a download; resolves to its name.
 *
 * `tell(seconds, stop)` is called each second with how many are left. Rejects where the browser cannot, or the reader
 * does not allow it.
 * @type {(pane: HTMLElement, tell: (seconds: number, stop: () => void) => void) => Promise<string>}
 */
export async function record(pane, tell) {
  const [type, ending] = FORMATS.find(([one]) => globalThis.MediaRecorder?.isTypeSupported(one)) ?? [];
  if (!type || !navigator.mediaDevices?.getDisplayMedia) throw new Error("this browser cannot, or the page comes neither from this machine nor over https");
  const stream = await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: 30 }, audio: false, preferCurrentTab: true });
  const [track] = stream.getVideoTracks();
  try {
    if (globalThis.CropTarget && track.cropTo) await track.cropTo(await there(CropTarget).fromElement(pane)); // others show the whole tab
    const recorder = new MediaRecorder(stream, { mimeType: type, videoBitsPerSecond: BITS_PER_S });
    /** @type {Blob[]} */
    const parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    const over = new Promise((resolve) => {
      recorder.onstop = resolve;
      track.onended = resolve;
    });
    const stop = () => {
      if (recorder.state !== "inactive") recorder.stop();
    };
    let left = SECONDS;
    recorder.start();
    tell(left, stop);
    const clock = setInterval(() => {
      if (--left > 0) tell(left, stop);
      else stop();
    }, 1000);
    await over;
    clearInterval(clock);
    const name = `lab.${ending}`,
      address = URL.createObjectURL(new Blob(parts, { type }));
    Object.assign(document.createElement("a"), { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    return name;
  } finally {
    track.stop();
  }
}
