"""DT-FM: its authors' seconds on five networks and on uniform links, and the ratios that its paper derives from
them."""

from collections.abc import Iterator

from dtfm_lab.extensions.published.calibration import median
from dtfm_lab.extensions.published.paper.settings import (
    BATCHES,
    CASES,
    DATACENTER,
    LAYERS,
    MEASURED,
    WORLDWIDE,
    Setting,
    is_fitted,
    own_factors,
    timed_plan,
    timed_seconds,
)
from dtfm_lab.extensions.published.paper.systems import SYSTEMS
from dtfm_lab.extensions.published.paper.table import STATED, Entry, PapersTable, papers_table
from dtfm_lab.extensions.published.row import Evidence, Row, assumptions, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import interval_of
from dtfm_lab.simulation import simulate

FIRST = (LAYERS[0], BATCHES[0])
"""(layers, batch) of the first of the paper's nine settings. The paper's ratios compare it with ``LAST``. The other
seven would take minutes; see ``lab.published.papers_table``."""
LAST = (LAYERS[-1], BATCHES[-1])
"""(layers, batch) of the last of the nine settings."""
PIPELINES = {"1": "one pipeline", "2": "two pipelines", "4": "four pipelines", "8": "eight pipelines"}
ASSUMED = assumptions()["dt-fm"]


@published("dt-fm")
def dt_fm() -> Iterator[Row]:
    """Yield the rows of DT-FM: seconds of each network's first setting and of the last world-wide setting, the ratios
    that the paper states, and measurements with uniform links."""
    first = papers_table(layers=FIRST[:1], batches=FIRST[1:], systems=tuple(ASSUMED))
    last = papers_table(cases=(WORLDWIDE,), layers=LAST[:1], batches=LAST[1:], systems=tuple(ASSUMED))
    # One ratio divides by Megatron-LM in the data centre.
    center = papers_table(cases=(DATACENTER,), layers=LAST[:1], batches=LAST[1:], systems=("megatron",))
    table = PapersTable((*first, *last, *center), wanted=len(first) + len(last) + len(center))
    yield from (_seconds(entry) for entry in (*first, *last) if entry.published_s is not None)
    yield from _ratios(table)
    yield from _even_links()


def _seconds(entry: Entry) -> Row:
    assert entry.published_s is not None, "the caller has looked"
    predicted_s, plan = entry.iteration_s or 0.0, entry.outcome.found
    return Row(
        group="five networks" if entry.setting.case in CASES[:2] else "shaped networks",
        setting=f"{entry.setting}, {SYSTEMS[entry.system]}",
        quantity="iteration",
        unit="s",
        published=entry.published_s,
        predicted=predicted_s,
        interval=None if plan is None else interval_of("iteration", predicted_s, simulate(plan)),
        evidence=Evidence.PURE,
        assumptions=ASSUMED[entry.system],
    )


def _ratios(table: PapersTable) -> Iterator[Row]:
    def ours(system: str, setting: Setting) -> float | None:
        return table.entry(system, setting.case, setting.layers, setting.batch).iteration_s

    for stated in STATED:
        for at in stated.at:
            setting, what = Setting(at["case"], at["layers"], at["batch"]), stated.name.split(", ")[-1]
            yield Row(
                group="the paper's ratios",
                setting=f"{setting}, {what}",
                quantity="ratio",
                unit="",
                published=at["ratio"],
                predicted=stated.of(setting, ours) or 0.0,
                evidence=Evidence.DUPLICATE,
                assumptions=("as the seconds", "Megatron-LM at random ranks where GPUs are single"),
                cite="Yuan et al., NeurIPS 2022, abstract and section 4",
            )


def _even_links() -> Iterator[Row]:
    lines, factors = numbers(MEASURED), own_factors()
    number = 0
    for line in lines:
        fits = is_fitted(line)
        # Without its own factor, or the row would predict itself.
        others = [factor for i, factor in enumerate(factors) if not (fits and i == number)]
        # There are factors only for the lines that are fitted, in the same order.
        number += fits
        how = f", {line['synchronisation']}" if line["synchronisation"] else ""
        pipelines = f"{PIPELINES[line['replicas']]}{how}"
        yield Row(
            group="even links",
            setting=f"{line['latency_ms']} ms, {line['bandwidth_gbps']} Gbit/s, {pipelines}",
            quantity="iteration",
            unit="s",
            published=float(line["seconds"]),
            predicted=timed_seconds(timed_plan(line), median(others)),
            evidence=Evidence.LEAVE_ONE_OUT,
            assumptions=("GPipe of 96 micro-batches, overlapped, blocks recomputed",),
            fitted=f"efficiency to {len(others)} other rows, of one pipeline at 5 Gbit/s or more",
            cite="DT-FM's authors, results/gpt3_xl_fp16.md of DS3Lab/Decentralized_FM_alpha",
        )
