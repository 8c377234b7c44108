// The lab in a link: on a page of its own, what stands in the address after '#' is the lab.
/** @import { CleanUps, Model } from "shared/types.d.ts" */
/** @import { Traits } from "../types.d.ts" */

const MARK = "#dtfm-lab=";
const APP = "http://127.0.0.1:8866/"; // where `dtfm-lab lab --app` serves it, for links from a notebook
const TAKEN = "dtfm-link";

const isOwnPage = () => Boolean(document.getElementById("rendered_cells")); // Voila's, without a notebook around it

/**
 * Remembers which link this tab has taken: a page that is loaded again need not lose what was done since.
 * @type {(hash: string) => boolean}
 */
function remember(hash) {
  try {
    const before = sessionStorage.getItem(TAKEN);
    sessionStorage.setItem(TAKEN, hash);
    return before === hash;
  } catch {
    // a browser that stores nothing
    return false;
  }
}

/**
 * Sends the link in the address to Python, now and whenever another is put there.
 * @type {(model: Model<Traits>, cleanUp: CleanUps) => void}
 */
export function takeLink(model, cleanUp) {
  const take = () => {
    if (!location.hash.startsWith(MARK)) return;
    const again = remember(location.hash);
    model.send({ kind: "link", link: location.hash, again });
  };
  window.addEventListener("hashchange", take);
  cleanUp.add(() => window.removeEventListener("hashchange", take));
  take();
}

/**
 * Puts the whole link on the clipboard, and on a page of its own into the address; resolves to whether it is there.
 * `address` is the page of the project's site that shows links to anybody; without one the link opens a lab of one's own.
 * @type {(hash: string, address: string) => Promise<boolean>}
 */
export async function copyLink(hash, address) {
  const own = new URL(isOwnPage() ? location.href : APP);
  own.hash = hash;
  if (isOwnPage()) {
    remember(hash);
    history.replaceState(history.state, "", own);
  }
  own.searchParams.delete("token"); // a link is no key
  try {
    await navigator.clipboard.writeText(address ? `${address}${hash}` : own.href);
    return true;
  } catch {
    // no permission, or a page that is not served securely
    return false;
  }
}
