"""What the screen says, what Python holds, and where the two, or two parts of the screen, contradict each other."""

from __future__ import annotations

import re
from typing import Any

from browser import LabInBrowser

HOLDS = """
import json
from dtfm_lab.domain.units import format_gbps, format_s, to_gbps
from dtfm_lab.figures.measures import format_count, format_dollars
from dtfm_lab.planning import price_placement
from dtfm_lab.simulation import simulate
def at_rest():
    state, bar = the_lab.lab_state, the_lab.bar
    analysed = state.plan is None or state.plan_is_stale or bar._reason[0] == bar._asked
    searches = the_lab.replanning._task is not None or state.searches_on
    return analysed and not searches and not state.busy and not the_lab.schedule_panel.is_predicting
def holds():
    state = the_lab.lab_state
    topology, job, plan, predicted = state.topology, state.job, state.plan, state.predicted
    held = {"message": state.message, "not_planned": state.not_planned, "lacking": state.lacking, "pane": state.pane}
    held |= {"undo": state.history.undo_label, "drawn": topology is not None and topology.fingerprint}
    held["state"] = [held["drawn"], repr(job), state.schedule, repr(sorted(state.choices.items()))]
    if topology is None or job is None or plan is None:
        return held
    regions = {device.region for device in topology.devices} - {""}
    where = f" in {len(regions)} regions" if len(regions) > 1 else ""
    held |= {"network": topology.name, "consists": f"{len(topology)} devices{where}", "job": job.name}
    held |= {"stale": state.plan_is_stale, "objective": plan.objective, "clock": predicted and predicted.context.clock}
    held["cost"] = format_s(price_placement(plan.topology, plan.job, plan.placement.devices).total_s)
    held["planned"] = "" if plan.iteration_s is None else format_s(plan.iteration_s)
    shape = [len(plan.stages), len(plan.stages[0])]
    held["shape"] = [f"{n} {noun}{'s' * (n != 1)}" for n, noun in zip(shape, ("stage", "replica"))]
    held["batch"] = f"batch {state.choices.get('global_batch', plan.job.global_batch):,}"
    held["others"] = [name for group in plan.stages for name in group if name not in plan.topology.names]
    if predicted is not None and not state.plan_is_stale and plan.job.model is not None:
        again = simulate(state.shown_plan, state.schedule, queueing=state.queueing)
        held |= {"iteration": format_s(again.iteration_s), "kept": format_s(predicted.iteration_s)}
        held["rate"] = f"{format_count(again.metrics['tokens_per_s'])} {plan.job.counted}/s"
        price = again.metrics["price_per_million_tokens"]
        held["price"] = format_dollars(1e3 * price) if price else ""
        held["bounded"] = state.bounded_plan.iteration_lower_bound_s
        held["iteration_s"] = again.iteration_s
    if len(state.binding) == 2:
        a, b = map(topology.index, state.binding)
        links = topology.bandwidth_bytes_per_s
        held["binds"] = format_gbps(float(to_gbps(min(links[a, b], links[b, a]))))
    return held
"""
SHOWS = """() => {
    const lab = document.querySelector(".dtfm-lab");
    const all = (selector) => [...lab.querySelectorAll(selector)].filter((one) => one.checkVisibility());
    const text = (selector) => all(selector)[0]?.textContent.trim() ?? "";
    const own = (one) => [...one.childNodes].filter(({ nodeName }) => !["S", "EM", "BUTTON"].includes(nodeName))
        .map(({ textContent }) => textContent).join("");
    const numbers = Object.fromEntries(all(".dtfm-number").map((one) => {
        const value = one.querySelector(".dtfm-number-value");
        const was = value.querySelector("s")?.textContent.replace("→", "").trim() ?? "";
        const said = (part) => one.querySelector(part)?.textContent ?? "";
        const label = said(".dtfm-number-label");
        const [note, under] = [said("em.dtfm-long"), said(".dtfm-number-under .dtfm-long")];
        return [label, { label, value: own(value), was, note, under }];
    }));
    const [network, job] = all(".dtfm-pick").map((one) => [...one.children].map(({ textContent }) => textContent));
    const inspector = lab.querySelector(".dtfm-inspector");
    return {
        network, job, numbers, text: all(".dtfm-lab > *").map(({ innerText }) => innerText).join(" "),
        headline: text(".dtfm-headline .dtfm-sentence"), kind: lab.querySelector(".dtfm-headline").dataset.kind ?? "",
        handle: text(".dtfm-handle"), foot: text(".dtfm-out-schedule .dtfm-caption"),
        inspector: inspector.dataset.kind, sum: inspector.querySelector("p b")?.textContent ?? "",
        note: text(".dtfm-plan-note"), searched: text(".dtfm-out-plan .dtfm-convergence .dtfm-caption"),
        groups: text(".dtfm-out-groups .dtfm-path-told b"),
        what_if: text(".dtfm-what-if-numbers b"), was: text(".dtfm-what-if-numbers i").replace("→", "").trim(),
        worth: text(".dtfm-worth-caption"), stale: all(".dtfm-stale").map(({ className }) => className),
        tabs: Object.fromEntries(all(".dtfm-tab").map((one) => [one.dataset.name, one.title])),
        ours: all(".dtfm-systems-rows button").map((one) => one.getAttribute("aria-label"))
            .find((words) => /the lab's plan/.test(words)) ?? "",
    };
}"""
WRONG = re.compile(r"\b(?:NaN|undefined|null|Infinity|nan|None)\b|\[object|this should not have happened[^\n]*")
"""Words of a program that a person must never read."""
TIME = r"[\d,.]+ (?:µs|ms|s|min|h|d)\b(?: \d+ (?:s|min|h))?"


def shown(browser: LabInBrowser) -> dict[str, Any]:
    found: dict[str, Any] = browser.page.evaluate(SHOWS)
    return found


def contradictions(says: dict[str, Any], held: dict[str, Any]) -> list[str]:
    """Return one line for each number on the screen that is not Python's, or not the bar's."""
    found = [f"the screen shows the word {word[0]!r}" for word in WRONG.finditer(says["text"])]
    if "network" not in held or says["numbers"] == {}:
        return found
    wanted: list[tuple[str, str, str]] = [
        ("the network in the bar", says["network"][0], held["network"]),
        ("the devices in the bar", says["network"][1], held["consists"]),
        ("the job in the bar", says["job"][0], held["job"]),
    ]
    if held.get("not_planned"):
        return [*found, *_unequal(wanted)]
    found += [f"the plan places {held['others']}, which the network lacks"] if held["others"] else []
    found += ["at rest, the plan is out of date"] if held["stale"] and not held["message"] else []
    if "iteration" in held:
        wanted += _of_iteration(says, held)
    found += [f"the job in the bar is {says['job'][1]!r}, {part} planned" for part in _missing(says, held)]
    return [*found, *_unequal(wanted)]


def _missing(says: dict[str, Any], held: dict[str, Any]) -> list[str]:
    parts = [*held["shape"], held["batch"]] if "iteration" in held else held["shape"]
    return [part for part in parts if part not in says["job"][1]]


def _of_iteration(says: dict[str, Any], held: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (where, shown, wanted) of each number that follows from the predicted iteration or the plan."""
    iteration, numbers = held["iteration"], says["numbers"]
    bar = next((one for label, one in numbers.items() if label.startswith("Iteration")), None)
    wanted = [("the prediction that Python keeps", held["kept"], iteration)]
    if bar is not None:
        wanted.append(("the iteration in the bar", bar["value"], iteration))
        under = _first(rf"communication cost (?:.* → )?({TIME})", bar["under"])
        wanted.append(("the cost in the bar", under, held["cost"]))
        wanted += _of_edit(says, bar)
        if bound := re.search(r"at most ([\d.]+) ×", bar["note"]):
            times = f"at most {bound[1]} "
            wanted.append(("the bound in Search", _first(r"iteration .*?(at most [\d.]+ )times", says["note"]), times))
    for label, key in (("Throughput", "rate"), ("Price", "price")):
        wanted += [(f"{label} in the bar", one["value"], held[key]) for name, one in numbers.items() if label in name]
    wanted.append(("the foot of the time line", _first(rf"predicted ({TIME})", says["foot"]), iteration))
    wanted.append(("the tab Plan", _first(rf"predicted ({TIME})", says["tabs"].get("schedule", "")), iteration))
    wanted.append(("the tab Search", _first(rf"^iteration ({TIME})", says["tabs"].get("plan", "")), held["planned"]))
    wanted.append(("the note in Search", _first(rf"iteration ({TIME})", says["note"]), held["planned"]))
    wanted.append(("the cost in Search", _first(rf"communication cost ({TIME})", says["note"]), held["cost"]))
    wanted.append(("the cost in Groups", says["groups"], held["cost"]))
    if says["inspector"] == "pipeline":
        wanted.append(("the cost in the inspector", says["sum"], held["cost"]))
    wanted.append(("what What if starts from", says["was"] or says["what_if"], iteration))
    listed = "" if says["worth"].startswith("before") else says["worth"]
    wanted.append(("the iteration in Worth", _first(rf"takes ({TIME}) now", listed), iteration))
    if held["objective"] == "iteration" and not says["searched"].startswith("before"):
        best = _first(rf"kept at ({TIME})", says["searched"]) or _first(rf": .*?iteration ({TIME})", says["searched"])
        wanted.append(("the best in Search", best, held["planned"]))
    if says["ours"]:
        wanted.append(("the lab's row in Systems", _first(rf"({TIME}) an iteration", says["ours"]), held["planned"]))
    if "Gbit/s" in says["handle"] and "binds" in held:
        wanted.append(("the link in the headline", _first(r"([\d.,]+ Gbit/s)", says["handle"]), held["binds"]))
    return wanted


def _of_edit(says: dict[str, Any], bar: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return what the headline says of an edit: from and to the bar's numbers."""
    edit = re.search(rf": ({TIME}) → ({TIME})\.", says["headline"])
    if edit is not None and says["what_if"] and edit[1] != bar["was"]:  # it tells of the setting, not of the edit
        return [("the headline's first time", edit[1], bar["value"]), ("its second", edit[2], says["what_if"])]
    if edit is None or not bar["was"]:
        return []
    return [("the headline's first time", edit[1], bar["was"]), ("the headline's second time", edit[2], bar["value"])]


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


def _unequal(wanted: list[tuple[str, str, str]]) -> list[str]:
    """Return the numbers that are on the screen and are others."""
    return [f"{where}: {is_now!r}, wanted {value!r}" for where, is_now, value in wanted if is_now and is_now != value]
