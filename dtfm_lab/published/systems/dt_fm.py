"""DT-FM: its authors' seconds on five networks and on even links, and the ratios that its paper draws from them."""

from collections.abc import Iterator

from dtfm_lab.published.calibration import median
from dtfm_lab.published.paper import one_pipeline
from dtfm_lab.published.paper.ratios import STATED
from dtfm_lab.published.paper.settings import BATCHES, CASES, DATACENTER, LAYERS, WORLDWIDE, Setting
from dtfm_lab.published.paper.systems import HAS_RANDOM, RESULTS, SYSTEMS
from dtfm_lab.published.paper.table import Entry, PapersTable, papers_table
from dtfm_lab.published.row import Band, KnownMiss, Row
from dtfm_lab.published.sources import published

FIRST, LAST = (LAYERS[0], BATCHES[0]), (LAYERS[-1], BATCHES[-1])
"""Layers and batch of the settings that the paper's ratios are of. The other seven lie between them, and take minutes;
``lab.papers_table`` has them."""
STATED_AT = (
    (0, Setting(WORLDWIDE, *FIRST), 3.8),
    (0, Setting(WORLDWIDE, *LAST), 4.8),
    (1, Setting(DATACENTER, *FIRST), 1.2),
    (1, Setting("regional", *FIRST), 2.5),
    (2, Setting(WORLDWIDE, *FIRST), 3.5),
    (2, Setting(WORLDWIDE, *LAST), 1.7),
    (3, Setting(WORLDWIDE, *LAST), 2.7),
)
"""Number of the ratio among STATED, the setting in whose measured seconds it has this value, and the value."""
GATHERED = "grids of 8 GPUs, ranks of a data-parallel group adjacent, batched exchanges, blocks recomputed"
ASSUMED = {
    "dt-fm": ("GPipe of 64 micro-batches, overlapped, blocks recomputed, averages in a ring", "40 % of the peak"),
    "dt-fm-random": ("the same, the median of the three rank maps of its scripts", "40 % of the peak"),
    "megatron": (GATHERED, "40 % of the peak"),
    HAS_RANDOM: (GATHERED, "ranks at random", "40 % of the peak"),
}
OWN_LINKS = (
    "DT-FM's micro-batches take longer within a region than messages on links of 2 Gbit/s and passes together; with "
    "the passes of its single pipelines and 42 % (first setting) or 60 % (last) of that rate they would not, while "
    "Megatron-LM's seconds on the same network are predicted within 3 %"
)
RENTED = (
    "the network is AWS's own and was not measured; eight GPUs of an instance share a card that we let carry its 25 "
    "Gbit/s, at 10 of which "
)
SINGLES = (
    "AWS promises single GPUs up to 10 Gbit/s; nothing was measured, and we let cards carry all of that: at 5 Gbit/s "
    "it would be 15.7 s, at 2.5 it would be 30.8 s"
)


@published(
    "dt-fm",
    title="DT-FM and Megatron-LM on 64 V100s and five networks, and DT-FM on even links",
    cite=RESULTS,
    licence="the repository names none; measured figures, cited",
    url="https://arxiv.org/abs/2206.01288",
    known_misses={
        ("worldwide, 24 layers, batch 1024, DT-FM", "iteration"): KnownMiss(0.73, OWN_LINKS),
        ("worldwide, 40 layers, batch 4096, DT-FM", "iteration"): KnownMiss(0.74, OWN_LINKS),
        ("datacenter, 24 layers, batch 1024, Megatron-LM", "iteration"): KnownMiss(
            0.72, f"{RENTED}4 stages of 2 GPUs a layer, not 8 stages, are the fastest of ours, too, with 13.7 s"
        ),
        ("datacenter, 24 layers, batch 1024, DT-FM without its scheduler", "iteration"): KnownMiss(
            0.53, f"{RENTED}it would be 18.6 s"
        ),
        ("spot, 24 layers, batch 1024, Megatron-LM", "iteration"): KnownMiss(0.52, SINGLES),
        ("datacenter, 24 layers, batch 1024, Megatron-LM over DT-FM", "ratio"): KnownMiss(
            0.80, f"{RENTED}the ratio would be 1.18"
        ),
    },
)
def dt_fm() -> Iterator[Row]:
    """Seconds of the first setting of each network and of the last world-wide, the stated ratios, and even links."""
    first = papers_table(layers=FIRST[:1], batches=FIRST[1:], systems=tuple(ASSUMED))
    last = papers_table(cases=(WORLDWIDE,), layers=LAST[:1], batches=LAST[1:], systems=tuple(ASSUMED))
    center = papers_table(cases=(DATACENTER,), layers=LAST[:1], batches=LAST[1:], systems=("megatron",))
    table = PapersTable((*first, *last, *center), wanted=len(first) + len(last) + len(center))
    yield from (_seconds(entry) for entry in (*first, *last) if entry.published_s is not None)
    yield from _ratios(table)
    yield from _even_links()


def _seconds(entry: Entry) -> Row:
    assert entry.published_s is not None, "the caller has looked"
    return Row(
        group="five networks" if entry.setting.case in CASES[:2] else "shaped networks",
        setting=f"{entry.setting}, {SYSTEMS[entry.system]}",
        quantity="iteration",
        unit="s",
        published=entry.published_s,
        predicted=entry.iteration_s or 0.0,
        band=Band.factor(1.3),
        assumptions=ASSUMED[entry.system],
    )


def _ratios(table: PapersTable) -> Iterator[Row]:
    def ours(system: str, setting: Setting) -> float | None:
        return table.entry(system, setting.case, setting.layers, setting.batch).iteration_s

    for number, setting, published_ratio in STATED_AT:
        stated = STATED[number]
        what = stated.name.split(", ")[-1]
        yield Row(
            group="the paper's ratios",
            setting=f"{setting}, {what}",
            quantity="ratio",
            unit="",
            published=published_ratio,
            predicted=stated.of(setting, ours) or 0.0,
            band=Band(0.8, 1.25),
            assumptions=("as the seconds", "Megatron-LM at random ranks where GPUs are single"),
            cite="Yuan et al., NeurIPS 2022, abstract and section 4",
        )


def _even_links() -> Iterator[Row]:
    lines, factors = one_pipeline.lines(), one_pipeline.own_factors()
    number = 0
    for line in lines:
        fits = one_pipeline.is_fitted(line)
        others = [factor for i, factor in enumerate(factors) if not (fits and i == number)]
        number += fits
        pipelines = "one pipeline" if line["replicas"] == "1" else f"two pipelines, {line['synchronisation']}"
        yield Row(
            group="even links",
            setting=f"{line['latency_ms']} ms, {line['bandwidth_gbps']} Gbit/s, {pipelines}",
            quantity="iteration",
            unit="s",
            published=float(line["seconds"]),
            predicted=one_pipeline.seconds_of(one_pipeline.plan_of(line), median(others)),
            band=Band.share(0.1),
            assumptions=("GPipe of 96 micro-batches, overlapped, blocks recomputed",),
            fitted=f"efficiency to {len(others)} other rows, of one pipeline at 5 Gbit/s or more",
            cite="DT-FM's authors, results/gpt3_xl_fp16.md of DS3Lab/Decentralized_FM_alpha",
        )
