"""Plans for the seconds of an iteration, against every opponent that we know; ours and theirs judged by the simulator.

six       the six teaching networks, gpt3-xl with its shape free: seconds, lower bound, and the least that was known
sixty     sixty mixed networks, ``mixed_networks``: against the communication plan, random placements and equal shapes
ranks     rank correlation of the compiled estimate and the simulator over random plans of each network
twelve    twelve mixed GPUs, Llama in bf16 with recomputation, against random placements
five      an A100, a V100, an RTX 4090 and two T4 together, against the A100 alone
small     brute force over all subsets, shapes, cuts and placements on twenty networks of up to six devices
first     64 devices: when the first valid plan is there, and how much of the gain after five seconds
large     512 and 1,024 devices of three kinds

``opponents`` says what opponents may do. CPU seconds stand beside wall seconds: a busy machine plans less in its time;
``--clock cpu`` gives every search so many CPU seconds instead, on a machine that others use, too.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
from machine import machine_line
from mixed_networks import DIGEST, digest, mixed_cases
from opponents import (
    Opponent,
    PlanPricer,
    as_opponent,
    communication_plan,
    described,
    equal_shapes,
    estimates,
    random_placements,
    spearman,
)

import dtfm_lab as lab
from dtfm_lab import planning, simulation
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "planning" / "iteration"))
from small_mixed import brute_force, small_job, small_network

KNOWN_S: dict[str, tuple[float, float]] = {
    "campus": (24.7, 35.2),
    "mixed-gpus": (10.3, 10.7),
    "thin-link": (13.2, 13.7),
    "ten-cities": (18.7, 36.5),
    "volunteers": (90.8, 141.0),
    "worldwide": (16.4, 30.3),
}
"""Least seconds of an iteration of gpt3-xl that a prototype or the communication planner found: any schedule, 1F1B."""
ALLOWED = 1.02
"""A plan counts as no worse up to this factor of the least seconds known."""
RANKED_PLANS = 50
SAME = 1 + 1e-9
"""Two plans of which one takes no longer than so many times the other count as equal."""


@dataclass
class Timed:
    """A plan and what it took."""

    plan: Plan
    wall_s: float
    cpu_s: float


CLOCK = {"wall": time.perf_counter, "cpu": time.process_time}
LIMITED_BY = ["wall"]
"""The clock that ends searches, a key of ``CLOCK``."""
WITH_BOUND = [True]
"""Whether searches also raise the bound."""


def planned(topology: Topology, job: Job, seconds: float, **options: Any) -> Timed:
    """Our plan, checked: it fits memory, and its seconds are the simulator's."""
    compile_kernels()
    wall, cpu, clock = time.perf_counter(), time.process_time(), CLOCK[LIMITED_BY[0]]
    began, last = clock(), None
    limit_s = seconds if LIMITED_BY == ["wall"] else 100 * seconds
    options = {"improve_bound": WITH_BOUND[0]} | options
    for step in planning.search(topology, job, objective="iteration", seconds=limit_s, **options):
        last = step
        if clock() - began >= seconds:
            break
    assert last is not None, "a search yields at least one step"
    plan = last.plan
    timed = Timed(plan, time.perf_counter() - wall, time.process_time() - cpu)
    assert simulation.memory(plan).fits, f"{plan} does not fit memory"
    assert plan.iteration_s == lab.simulate(plan).iteration_s, f"{plan} is not what the simulator says"
    return timed


@cache
def compile_kernels() -> None:
    """Compile, or load what was compiled, before a clock runs."""
    planning.plan(small_network(5, 0), small_job(), objective="iteration", steps=3)


def bound_columns(plan: Plan) -> str:
    if plan.iteration_lower_bound_s is None:
        return f"{'-':>10}{'-':>9}"
    return f"{plan.iteration_lower_bound_s:>10.4g}{plan.speed_up_left:>9.2f}"


BOUND_TITLES = f"{'bound s':>10}{'at most x':>9}"


def six(seconds: float, _: Path | None) -> None:
    title("six networks, gpt3-xl with its shape free, 1,024 sequences")
    for column, schedule in enumerate((None, "1f1b")):
        print(f"\n{'schedule ' + (schedule or 'free'):16}{'ours s':>10}{BOUND_TITLES}{'known s':>9}{'':2}", end="")
        print(f"{'plan':44}{'wall s':>8}{'CPU s':>7}")
        for name, known in KNOWN_S.items():
            job = lab.load_job("gpt3-xl", schedule=schedule)
            timed = planned(lab.load_topology(name), job, seconds)
            plan, known_s = timed.plan, known[column]
            ours_s = plan.iteration_s or math.inf
            verdict = "better" if ours_s < known_s else "met" if ours_s <= known_s * ALLOWED else "NOT MET"
            what = described(plan) + (f", {len(plan.idle_devices)} idle" if plan.idle_devices else "")
            print(f"{name:16}{ours_s:>10.4g}{bound_columns(plan)}{known_s:>9.4g}  {what:44}", end="")
            print(f"{timed.wall_s:>8.1f}{timed.cpu_s:>7.1f}  {verdict}", flush=True)


def sixty(seconds: float, kept: Path | None, only: str = "") -> None:
    title("sixty mixed networks; seconds of the simulated iteration, x: opponent over ours, - where none fits memory")
    assert digest() == DIGEST, "the sixty networks are not those that were written down"
    known: dict[str, list[list[Any]]] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    columns = ("communication", "random", "equal shape")
    print(f"{'network':20}{'job':24}{'ours s':>10}{BOUND_TITLES}  {'plan':26}", end="")
    print("".join(f"{column:>15}{'x':>7}" for column in columns) + f"  {'of shapes, best':28}{'wall s':>8}{'CPU s':>7}")
    n_worse, ratios = 0, []
    for case in mixed_cases():
        if only not in case.name:
            continue
        if case.name not in known:
            judge = PlanPricer(case.topology, case.job)
            found = [build(judge) for build in (communication_plan, random_placements, equal_shapes)]
            known[case.name] = [[one.name, one.iteration_s, one.what] for one in found]
            if kept is not None:
                kept.write_text(json.dumps(known, indent=1))
        timed = planned(case.topology, case.job, seconds)
        ours_s = timed.plan.iteration_s or math.inf
        opponents_s = [one[1] for one in known[case.name]]
        worse = ours_s > min(opponents_s) * SAME
        n_worse += worse
        ratios.append(min(opponents_s) / ours_s)
        what = f"{case.job.model.name if case.job.model else ''} {case.job.schedule or 'free'}"
        print(f"{case.name:20}{what:24}{ours_s:>10.4g}", end="")
        print(f"{bound_columns(timed.plan)}  {described(timed.plan):26}", end="")
        for opponent_s in opponents_s:
            cell = f"{'-':>15}{'':>7}" if math.isinf(opponent_s) else f"{opponent_s:>15.4g}{opponent_s / ours_s:>7.2f}"
            print(cell, end="")
        print(f"  {known[case.name][2][2]:28}{timed.wall_s:>8.1f}{timed.cpu_s:>7.1f}", end="")
        print("  WORSE" if worse else "", flush=True)
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    print(f"worse than an opponent in {n_worse} of {len(ratios)}; best opponent over ours:", end=" ")
    print(f"median {np.median(finite):.2f}, least {min(finite):.3f}, most {max(finite):.2f}")


def ranks(_seconds: float, _kept: Path | None) -> None:
    title(f"the compiled estimate against the simulator, {RANKED_PLANS} random plans of each network")
    print(f"{'network':20}{'schedule':16}{'Spearman':>10}{'median off':>12}{'95 % off':>10}{'most off':>10}")
    cases = [(name, lab.load_topology(name), lab.load_job("gpt3-xl")) for name in KNOWN_S]
    cases += [(case.name, case.topology, case.job) for case in mixed_cases()][::10]
    for name, topology, job in cases:
        for schedule in ("1f1b", "adaptive-1f1b") if job.schedule is None else (job.schedule,):
            estimated, simulated_s = np.array(list(estimates(topology, job, schedule, RANKED_PLANS))).T
            off = np.abs(estimated / simulated_s - 1)
            print(f"{name:20}{schedule:16}{spearman(estimated, simulated_s):>10.4f}{np.median(off):>12.2%}", end="")
            print(f"{np.quantile(off, 0.95):>10.2%}{off.max():>10.2%}", flush=True)


def twelve(seconds: float, _: Path | None) -> None:
    title("twelve mixed GPUs in two places, Llama 2 7B in bf16 with recomputation, 256 sequences of 2,048")
    topology = of_machines([("A100", 2), ("A100 40GB", 2), ("V100 32GB", 2), ("RTX 4090", 3), ("T4", 3)])
    job = lab.load_job("llama-2-7b", dtype="bf16", seq_len=2048, global_batch=256, recompute=True)
    judge = PlanPricer(topology, job)
    timed = planned(topology, job, seconds)
    print_opponents(timed, [communication_plan(judge), random_placements(judge, 100), equal_shapes(judge)])


def five(seconds: float, _: Path | None) -> None:
    topology = of_machines([("A100", 1), ("V100", 1), ("RTX 4090", 1), ("T4", 2)])
    peak = [device.peak_flop_per_s for device in topology.devices]
    for name, changes in (("gpt3-xl", {}), ("gpt2-medium", {"global_batch": 512, "microbatch": 4})):
        job = lab.load_job("gpt3-xl", model=name, **changes)
        title(
            f"an A100, a V100, an RTX 4090 and two T4, {name}: {sum(peak) / peak[0]:.2f} times the FLOP/s of the A100"
        )
        judge = PlanPricer(topology, job)
        alone = judge.ranked(np.array([[0]]), job.microbatch)
        assert alone is not None, "the A100 holds the model"
        by_itself = as_opponent("the A100 alone", judge.plan(alone))
        print_opponents(planned(topology, job, seconds), [by_itself, communication_plan(judge), equal_shapes(judge)])


def print_opponents(timed: Timed, opponents: Sequence[Opponent]) -> None:
    plan = timed.plan
    ours_s = plan.iteration_s or math.inf
    print(f"{'':26}{'seconds':>10}{'x':>8}  {'plan':40}{BOUND_TITLES}")
    print(f"{'ours':26}{ours_s:>10.4g}{1:>8.2f}  {described(plan):40}{bound_columns(plan)}", end="")
    print(f"  {timed.wall_s:.1f} s, CPU {timed.cpu_s:.1f} s; micro-batches {list(plan.job.microbatch_counts)}")
    for one in opponents:
        verdict = "  WORSE" if ours_s > one.iteration_s * SAME else ""
        print(f"{one.name:26}{one.iteration_s:>10.4g}{one.iteration_s / ours_s:>8.2f}  {one.what}{verdict}", flush=True)


def small(seconds: float, _: Path | None) -> None:
    title("brute force, even shares, 1f1b; and two replicas asked for, where free shares tell")
    print(f"{'network':14}{'tried':>8}{'brute s':>10}{'ours s':>10}{'ratio':>8}", end="")
    print(f"{'2 replicas':>12}{'ours s':>10}{'ratio':>8}")
    n_worse, searched_s = 0, min(seconds, 2.0)
    for seed in range(20):
        topology = small_network(4 + seed % 3, seed)
        cells, worse = [], False
        for n_replicas in (None, 2):
            job = small_job(n_replicas=n_replicas)
            best, ours = brute_force(topology, job), planned(topology, job, searched_s).plan
            ratio = (ours.iteration_s or math.inf) / best.iteration_s
            worse |= ratio > SAME
            cells.append((best, ours.iteration_s, ratio))
        n_worse += worse
        (best, ours_s, ratio), (pair, pair_s, pair_ratio) = cells
        print(f"{topology.name:14}{best.n_tried:>8}{best.iteration_s:>10.5f}{ours_s:>10.5f}{ratio:>8.4f}", end="")
        print(f"{pair.iteration_s:>12.5f}{pair_s:>10.5f}{pair_ratio:>8.4f}", "  WORSE" if worse else "", flush=True)
    print(f"worse than brute force on {n_worse} of 20 networks, {searched_s:g} s each")


def first(_seconds: float, _kept: Path | None) -> None:
    title("64 devices: the first valid plan, and the share of the gain after 5 s of 30; kernels compiled before")
    sixty_four = [case for case in mixed_cases() if len(case.topology) == 64 and case.job.schedule is None]
    cases = [("worldwide", lab.load_topology("worldwide"), lab.load_job("gpt3-xl"))]
    cases += [(case.name, case.topology, case.job) for case in sixty_four]
    print(f"{'network':20}{'first at s':>12}{'first s':>10}{'at 5 s':>10}{'at 30 s':>10}{'share of gain':>15}")
    for name, topology, job in cases:
        steps = progress(topology, job, 30.0)
        first_at, first_s = steps[0]
        at_five = min((best_s for at, best_s in steps if at <= 5.0), default=math.nan)
        last_s = steps[-1][1]
        share = (first_s - at_five) / (first_s - last_s) if first_s > last_s else 1.0
        print(f"{name:20}{first_at:>12.2f}{first_s:>10.4g}{at_five:>10.4g}{last_s:>10.4g}{share:>15.1%}", flush=True)


def progress(topology: Topology, job: Job, seconds: float) -> list[tuple[float, float]]:
    """Wall seconds and seconds of the best plan at each improvement; the first entry is the first valid plan."""
    compile_kernels()
    began, rows = time.perf_counter(), list[tuple[float, float]]()
    for step in planning.search(topology, job, objective="iteration", seconds=seconds):
        if not rows or step.best_s < rows[-1][1]:
            rows.append((time.perf_counter() - began, step.best_s))
    return rows


def large(_seconds: float, _kept: Path | None) -> None:
    title("512 and 1,024 devices of three kinds, gpt3-2.7b, 2,048 sequences")
    print("Sailor's planner is published with 4,900 s for three kinds of GPUs, on other hardware and another problem:")
    print("no comparison of two programs on one machine.")
    print(f"{'devices':>8}{'limit s':>8}{'ours s':>10}{BOUND_TITLES}  {'plan':30}{'first at s':>11}", end="")
    print(f"{'wall s':>8}{'CPU s':>8}{'communication':>15}{'random':>10}")
    for n, limit_s in ((512, 60.0), (1024, 120.0)):
        topology = three_kinds(n)
        job = lab.load_job("gpt3-xl", model="gpt3-2.7b", global_batch=2048)
        wall, cpu, first_at, last = time.perf_counter(), time.process_time(), math.nan, None
        for step in planning.search(topology, job, objective="iteration", seconds=limit_s):
            last = step
            first_at = first_at if math.isfinite(first_at) else time.perf_counter() - wall
        assert last is not None, "a search yields at least one step"
        plan = last.plan
        spent = time.perf_counter() - wall, time.process_time() - cpu
        assert simulation.memory(plan).fits, f"{plan} does not fit memory"
        print(f"{n:>8}{limit_s:>8g}{plan.iteration_s:>10.4g}{bound_columns(plan)}  {described(plan):30}", end="")
        print(f"{first_at:>11.2f}{spent[0]:>8.1f}{spent[1]:>8.1f}", end="", flush=True)
        judge = PlanPricer(topology, job)
        opponents = communication_plan(judge, seconds=20.0), random_placements(judge, 100)
        print(
            "".join(f"{one.iteration_s:>{width}.4g}" for one, width in zip(opponents, (15, 10), strict=True)),
            flush=True,
        )


def of_machines(gpus: Sequence[tuple[str, int]]) -> Topology:
    """A machine for each kind, on 25 Gbit/s Ethernet, its GPUs on PCIe; RTX 4090s and T4s are elsewhere, 1 Gbit/s and
    5 ms away from the others where there are twelve GPUs."""
    devices = [Device(name=f"{gpu} {i}", region=gpu, gpu=gpu) for gpu, count in gpus for i in range(count)]
    kind = np.array([device.gpu for device in devices])
    elsewhere = np.isin(kind, ("RTX 4090", "T4")) & (len(devices) == 12)
    same, apart = kind[:, None] == kind, elsewhere[:, None] != elsewhere
    bandwidth_gbps = np.where(apart, 1.0, np.where(same, 128.0, 25.0))
    latency_ms = np.where(apart, 5.0, np.where(same, 0.02, 0.05))
    return Topology(
        tuple(devices), latency_ms * 1e-3, bandwidth_gbps * 1e9 / 8, name=f"{len(devices)}-mixed"
    ).with_typical_prices()


def three_kinds(n: int) -> Topology:
    """(n) A100 40GB, V100 and T4 in machines of eight, in four cities: 100, 10 and 1 Gbit/s within each and between."""
    machine = np.arange(n) // 8
    city = machine // (n // 32)
    gpu = np.array(["A100 40GB", "V100", "T4"])[machine % 3]
    devices = tuple(
        Device(name=f"d{i}", region=f"city-{c}", gpu=str(g)) for i, (c, g) in enumerate(zip(city, gpu, strict=True))
    )
    near, close = machine[:, None] == machine, city[:, None] == city
    bandwidth_gbps = np.where(near, 100.0, np.where(close, 10.0, 1.0))
    latency_ms = np.where(near, 0.02, np.where(close, 0.1, 20.0 + 10.0 * np.abs(city[:, None] - city)))
    return Topology(devices, latency_ms * 1e-3, bandwidth_gbps * 1e9 / 8, name=f"three-kinds-{n}").with_typical_prices()


def title(text: str) -> None:
    print(f"\n== {text}\n{machine_line()}", flush=True)


PARTS: dict[str, Callable[[float, Path | None], None]] = {
    "six": six,
    "sixty": sixty,
    "ranks": ranks,
    "twelve": twelve,
    "five": five,
    "small": small,
    "first": first,
    "large": large,
}


@click.command(help=__doc__)
@click.option("--part", "parts", multiple=True, type=click.Choice(list(PARTS)), help="All where none is named.")
@click.option("--seconds", default=10.0, show_default=True, help="Of each search, where the part does not say it.")
@click.option("--clock", default="wall", show_default=True, type=click.Choice(list(CLOCK)), help="What ends searches.")
@click.option("--bound/--no-bound", default=True, show_default=True, help="Whether searches also raise the bound.")
@click.option("--opponents", "kept", type=click.Path(path_type=Path), help="File that keeps opponents between runs.")
def main(parts: Sequence[str], seconds: float, clock: str, bound: bool, kept: Path | None) -> None:
    LIMITED_BY[:], WITH_BOUND[:] = [clock], [bound]
    for name in parts or PARTS:
        PARTS[name](seconds, kept)
    print(machine_line())


if __name__ == "__main__":
    main()
