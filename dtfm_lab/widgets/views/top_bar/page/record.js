// A few seconds of the lab as a video: the browser captures its own tab, cut to the shown result, or to the whole lab
// while a device is killed.
import { there } from "shared/there.js";
/** @import { CleanUps } from "shared/types.d.ts" */

const RESULT_S = 10;
const KILL_S = 8; // long enough to see the device go and its copy take over
/** @type {[string, string][]} */
const FORMATS = [
  ["video/mp4", "mp4"],
  ["video/webm", "webm"],
]; // the first that the browser can write
const BITS_PER_S = 8e6; // small letters stay sharp

/**
 * `start(pane, isKill)` when the lab's button Record, or Record a kill, is pressed.
 * @type {(el: HTMLElement, start: (pane: HTMLElement, isKill: boolean) => void, cleanUp: CleanUps) => void}
 */
export function onRecord(el, start, cleanUp) {
  /** @type {(event: MouseEvent) => void} */
  const onClick = ({ target }) => {
    const lab = el.closest(".dtfm-lab");
    if (!(target instanceof Element) || !lab?.contains(target)) return;
    if (target.closest(".dtfm-record-kill")) start(lab, true);
    else if (target.closest(".dtfm-record")) start(there(lab.querySelector(".dtfm-effect")), false);
  };
  document.addEventListener("click", onClick);
  cleanUp.add(() => document.removeEventListener("click", onClick));
}

/**
 * Records `pane` and hands the video over as a download; resolves to its name.
 *
 * `tell(seconds, stop)` is called each second with how many are left. If there is a `kill`, it is called once the reader
 * has allowed the capture, and the video begins when it resolves, shortly before the device is killed. Rejects where the
 * browser cannot, the reader does not allow it, or `kill` rejects.
 * @type {(pane: HTMLElement, tell: (seconds: number, stop: () => void) => void, kill?: () => Promise<void>) => Promise<string>}
 */
export async function record(pane, tell, kill) {
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
    let left = kill ? KILL_S : RESULT_S;
    // The reader may end the capture with the browser's own button.
    const ended = over.then(() => Promise.reject(new Error("the capture was ended")));
    if (kill) await Promise.race([kill(), ended]);
    ended.catch(() => {}); // from now on, that is how a video ends
    recorder.start();
    tell(left, stop);
    const clock = setInterval(() => {
      if (--left > 0) tell(left, stop);
      else stop();
    }, 1000);
    await over;
    clearInterval(clock);
    const name = `${kill ? "kill" : "lab"}.${ending}`,
      address = URL.createObjectURL(new Blob(parts, { type }));
    Object.assign(document.createElement("a"), { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    return name;
  } finally {
    track.stop();
  }
}
