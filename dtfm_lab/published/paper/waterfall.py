"""From our best Megatron grid against DT-FM's placement to what the paper measured, one assumption at a time."""

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.model import gpt
from dtfm_lab.published.paper.one_pipeline import efficiency
from dtfm_lab.published.paper.settings import BATCHES, LAYERS, VOCABULARY, WORLDWIDE, Setting
from dtfm_lab.published.paper.systems import RESULTS, DTFMOfThePaper, MegatronOfThePaper, published_name
from dtfm_lab.systems import Budget
from dtfm_lab.systems.modelled.megatron import AS_SHIPPED, Megatron
from dtfm_lab.systems.waterfall import Switch, Waterfall, waterfall

NEVER = 10**6


def papers_waterfall(layers: int = LAYERS[0], batch: int = BATCHES[0]) -> Waterfall:
    """Megatron-LM over DT-FM, world-wide, in a setting of the paper: from our rules of before to the measured ratio.

    Raises LabError for a setting that the paper does not have.
    """
    setting = Setting(WORLDWIDE, layers, batch)
    over, under = (setting.published_s(published_name(system, WORLDWIDE)) for system in ("megatron-random", "dt-fm"))
    if over is None or under is None:
        raise LabError(
            f"{layers} layers with batch {batch} are no setting of the paper; wanted {_listed(LAYERS)} layers and "
            f"{_listed(BATCHES)}"
        )
    return waterfall(
        setting.topology,
        _words(setting),
        switches(setting),
        Budget(queueing="pairs"),
        published=round(over / under, 2),
        published_source=f"{RESULTS}: {over:g} s over {under:g} s",
    )


def switches(setting: Setting) -> list[Switch]:
    """The assumptions, each on top of those before it."""
    ours = DTFMOfThePaper(case=WORLDWIDE, flush_every=NEVER, synchronisation="sharded", checkpointing="stage")
    flushed = DTFMOfThePaper(case=WORLDWIDE, synchronisation="sharded")
    papers = DTFMOfThePaper(case=WORLDWIDE)
    return [
        Switch(
            sentence="Megatron-LM's best grid of all, neighbours in a pipeline, sends that overlap; DT-FM's placement.",
            source="this lab before it modelled other systems",
            strategy=Megatron(**AS_SHIPPED | {"order": "pp-dp"}, transport="overlapped"),
            against=ours,
        ),
        Switch(
            sentence="Both train a classifier: the last stage has no words' probabilities to compute.",
            source="DT-FM's authors, results/gpt3_xl_fp16.md: QQP, an embedding and a loss of little weight",
            job=setting.job,
        ),
        Switch(
            sentence="Ranks of one data-parallel group are neighbours: pipelines stride over the regions.",
            source="Megatron-LM, megatron/core/parallel_state.py: the order tp-cp-ep-dp-pp",
            strategy=Megatron(**AS_SHIPPED, transport="overlapped"),
        ),
        Switch(
            sentence="A stage waits for each exchange of messages, both directions at once.",
            source="Megatron-LM, p2p_communication.py: batch_isend_irecv, then a wait",
            strategy=Megatron(**AS_SHIPPED),
        ),
        Switch(
            sentence="Eight stages and eight replicas, every block recomputed.",
            source=f"{RESULTS}: Megatron-P8; megatron_gpt3_xl_mp8_dp8.sh: --checkpoint-activations",
            strategy=MegatronOfThePaper(**AS_SHIPPED),
        ),
        Switch(
            sentence="DT-FM empties its pipeline after every 64 micro-batches and recomputes every block.",
            source="DT-FM, scripts/aws_run_batch_gpt3_optimal.sh and modules/gpt_modules.py",
            against=flushed,
        ),
        Switch(
            sentence="DT-FM's replicas sum gradients along a chain of NCCL's and send the average back.",
            source="DT-FM, gpt3_xl_pp8_dp8.sh: central_ps",
            against=papers,
        ),
        Switch(
            sentence="Megatron-LM's ranks are at random.",
            source=f"{RESULTS}: Megatron-P8 (wo Scheduler), which the paper's ratio divides",
            strategy=MegatronOfThePaper(**AS_SHIPPED, ranks="at random"),
        ),
        Switch(
            sentence="Passes reach the share of the peak that one pipeline without slow links reached.",
            source="fitted to DT-FM's authors' two rows of one pipeline at 5 and 10 Gbit/s, results/gpt3_xl_fp16.md",
            budget=Budget(efficiency=efficiency(), queueing="pairs"),
        ),
    ]


def _listed(counts: tuple[int, ...]) -> str:
    return ", ".join(map(str, counts[:-1])) + f" or {counts[-1]}"


def _words(setting: Setting) -> Job:
    model = gpt(
        name=f"gpt3-xl-{setting.layers}-words",
        n_layers=setting.layers,
        d_model=2048,
        n_heads=16,
        seq_len=2048,
        vocab_size=VOCABULARY,
    )
    return setting.job.with_fields(model=model)
