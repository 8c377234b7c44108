// A link without an iteration: its network and plan, as the lab's files write them (`files/workspaces.py`).
import { MOST_DEVICES, MOST_REGIONS, MOST_S, VIEWS, isRecord, list, name, number, wanted, whole } from "./shapes.js";
/** @import { Linked, Traits } from "../types.d.ts" */

const MS = 1e3;
const GBPS = 8e-9; // Gbit/s of a byte per second

/** @type {(s: number) => string} */
const seconds = (s) => (s < 1 ? `${Number((s * MS).toPrecision(3))} ms` : `${Number(s.toPrecision(4))} s`);

/**
 * A link without an iteration, as older labs copied them: its network and its plan, from their own numbers.
 * @type {(state: any, defaults: Record<string, Traits>) => Linked}
 */
export function outlined(state, defaults) {
  wanted(isRecord(state) && Object.hasOwn(state, "dtfm_workspace"), "The link holds no lab.");
  wanted(state.dtfm_workspace === 1, "The link is of another release of the lab than this page: open it with dtfm-lab open LINK.");
  const plan = state.plan ?? null,
    network = isRecord(state.topology) && state.topology.same === "plan" ? plan?.topology : state.topology;
  wanted(network, "The link holds a lab without a network: open it with dtfm-lab open LINK.");
  const n = network.devices?.length,
    square = list(list(number(0, 1e30), MOST_DEVICES), MOST_DEVICES);
  wanted(list(isRecord, MOST_DEVICES, 1)(network.devices) && square(network.latency_s) && square(network.bandwidth_bytes_per_s));
  wanted(
    [network.latency_s, network.bandwidth_bytes_per_s].every((rows) => rows.length === n && rows.every((/** @type {number[]} */ row) => row.length === n)),
  );
  const document = documentOf(network);
  wanted(VIEWS.map.document(document));
  /** @type {Traits} */
  const highlight = { stages: {}, tasks: {} };
  if (plan) {
    const fits = list(list(whole(0, n - 1), MOST_DEVICES, 1), MOST_DEVICES, 1);
    wanted(fits(plan.placement) && isRecord(plan.job) && name(plan.job.name));
    plan.placement.forEach((/** @type {number[]} */ group, /** @type {number} */ at) =>
      group.forEach((one, replica) => {
        highlight.stages[document.devices[one].name] = at;
        highlight.tasks[document.devices[one].name] = [at, replica];
      }),
    );
  }
  const cities = new Map((defaults.map?.cities ?? []).map((/** @type {any[]} */ [city, x, y]) => [city, [x, y]]));
  const places = Object.fromEntries(
    document.regions.map((/** @type {{ name: string }} */ one) => [one.name, cities.get(one.name)]).filter((/** @type {any[]} */ [, at]) => at),
  );
  const shape = plan ? `${plan.placement.length} x ${plan.placement[0].length}` : "";
  const iteration = plan && number(0, MOST_S)(plan.iteration_s) ? [{ label: "Iteration, predicted", value: seconds(plan.iteration_s) }] : [];
  return {
    title: plan ? `${plan.job.name} on ${document.name}` : document.name,
    made: plan && name(plan.planner) ? `A plan by ${plan.planner}` : "A network without a plan",
    views: {
      top_bar: {
        network: [document.name, `${n} devices`],
        job: plan ? [plan.job.name, shape] : ["", ""],
        numbers: iteration,
        headline: {
          lead: plan ? "This link has no iteration to show." : "This link has no plan.",
          rest: "An older lab copied it, or the iteration is too long for a link. The lab shows it: dtfm-lab open LINK",
          kind: "",
        },
      },
      map: { document, highlight: plan ? highlight : {}, places },
      legend: { n_stages: plan ? plan.placement.length : 0 },
    },
  };
}

/**
 * The network as the map draws it: what all links of a region or of a pair of regions share is said once.
 * @type {(network: any) => any}
 */
function documentOf(network) {
  const devices = network.devices.map((/** @type {any} */ one, /** @type {number} */ at) => ({
    name: one.name,
    region: one.region ?? "",
    gpu: one.gpu ?? "",
    x: at * 90,
    y: 0,
  }));
  /** @type {Map<string, number[]>} */
  const members = new Map();
  devices.forEach((/** @type {{ region: string }} */ { region }, /** @type {number} */ at) => members.set(region, [...(members.get(region) ?? []), at]));
  wanted(members.size <= MOST_REGIONS);
  const speedOf = (/** @type {number} */ a, /** @type {number} */ b) => ({
    latency_ms: network.latency_s[a][b] * MS,
    bandwidth_gbps: network.bandwidth_bytes_per_s[a][b] * GBPS,
  });
  /** @type {object[]} */
  const links = [];
  /** @type {(here: number[], there: number[]) => ReturnType<typeof speedOf> | null} */
  const shared = (here, there) => {
    const ways = here.flatMap((a) => there.filter((b) => a !== b).map((b) => ({ a, b, ...speedOf(a, b) })));
    if (ways.every(({ latency_ms: ms, bandwidth_gbps: gbps }) => ms === ways[0].latency_ms && gbps === ways[0].bandwidth_gbps))
      return ways.length ? speedOf(ways[0].a, ways[0].b) : null;
    for (const { a, b, ...speeds } of ways) links.push({ source: devices[a].name, target: devices[b].name, ...speeds, one_way: true });
    return null;
  };
  const some = { latency_ms: 0, bandwidth_gbps: 1 };
  const regions = [...members].map(([region, here]) => ({ name: region, ...(shared(here, here) ?? some) }));
  const pairs = [...members].flatMap(([from, here]) =>
    [...members].filter(([to]) => to !== from).map(([to, there]) => ({ from, to, speeds: shared(here, there) })),
  );
  const between = pairs.filter(({ speeds }) => speeds).map(({ from, to, speeds }) => ({ from, to, ...speeds }));
  return { name: network.name, devices, regions, between, links, default: some };
}
