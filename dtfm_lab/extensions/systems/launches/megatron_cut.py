"""How Megatron-LM's flags cut the model into stages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened

REPEATED = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z|])\*(\d+)")
MOST_LETTERS = 100_000


def blocks_of(given: Mapping[str, Any], stages: int) -> tuple[int, ...] | None:
    """Return the blocks of each stage; None if the flags leave all stages equal. Raises LabError for flags that do not
    suit the number of layers or stages."""
    if (layout := given.get("pipeline_model_parallel_layout")) is not None:
        return _of_layout(str(layout), stages, given.get("num_layers"))
    layers = given.get("num_layers")
    if "embedding" in given.get("pp_partition_method", "") and layers is not None and not (layers + 2) % stages:
        each = (layers + 2) // stages  # Megatron-DeepSpeed counts the embedding and the head as a block each
        return (each - 1, *[each] * (stages - 2), each - 1) if stages > 1 and each > 1 else None
    first, last = (given.get(f"decoder_{which}_pipeline_num_layers") for which in ("first", "last"))
    if first is None and last is None:
        if layers is not None and layers % stages:
            raise LabError(
                f"--num-layers is {layers} and --pipeline-model-parallel-size {stages}; wanted a multiple of {stages}, "
                "or --pipeline-model-parallel-layout"
            )
        return None
    if layers is None or stages < 2:
        raise LabError("--decoder-first-pipeline-num-layers or its last without --num-layers and stages; wanted both")
    others = stages - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    if rest < 0 or (others and rest % others) or (not others and rest):
        raise LabError(
            f"--num-layers is {layers}, which leaves {rest} for {others} stages; wanted a multiple of {others}"
        )
    middle = [rest // others] * others if others else []
    return (*([first] if first else []), *middle, *([last] if last else []))


def _of_layout(layout: str, stages: int, layers: int | None) -> tuple[int, ...] | None:
    """Return the blocks of each stage of a layout such as ``Et*3|(tt|)*2,m|L``: ``t`` is a block, ``E`` the embedding,
    ``L`` the loss. ``|`` separates stages. None if all stages have the same number. Raises LabError for other layouts
    or numbers of stages, and for a stage without blocks.

    Source: megatron/core/transformer/pipeline_parallel_layer_layout.py of NVIDIA/Megatron-LM, parse_str_to_list.
    """
    text = layout.replace(",", "").replace(" ", "").strip("\"'")
    while repeated := REPEATED.search(text):
        unit, times = (repeated[1], repeated[2]) if repeated[2] else (repeated[3], repeated[4])
        # Repetitions can be nested, so a short text could become endless.
        if len(unit) * int(times) > MOST_LETTERS:
            raise LabError(f"--pipeline-model-parallel-layout is {shortened(layout)}; wanted fewer blocks")
        text = text[: repeated.start()] + unit * int(times) + text[repeated.end() :]
    if "m" in text:
        raise LabError("--pipeline-model-parallel-layout has m, multi-token prediction; wanted a layout without")
    if not re.fullmatch(r"E?[td|]*L?", text):
        raise LabError(
            f"--pipeline-model-parallel-layout is {shortened(layout)}; wanted E, t, | and L, such as Ett|ttL"
        )
    counts = tuple(part.count("t") + part.count("d") for part in text.split("|"))
    if len(counts) != stages or (layers is not None and sum(counts) != layers):
        has = "" if layers is None else f" of {layers} blocks"
        raise LabError(
            f"--pipeline-model-parallel-layout has {len(counts)} stages of {sum(counts)} blocks; wanted {stages}{has}, "
            "as stages that interleave have no model with a layout"
        )
    if min(counts) < 1:
        raise LabError("--pipeline-model-parallel-layout has a stage without blocks; wanted one or more on each")
    # Equal stages are what the strategy does anyway.
    return None if len(set(counts)) == 1 else counts


def interleaved_stages(given: Mapping[str, Any], stages: int) -> int:
    """Return the number of stages per device: more than 1 if the flags ask for an interleaved schedule.

    Raises LabError if the flags do not divide the layers evenly.
    """
    if (several := given.get("num_virtual_stages_per_pipeline_rank")) is not None:
        return int(several)
    if (layers := given.get("num_layers_per_virtual_pipeline_stage")) is None or stages == 1:
        return 1
    if "num_layers" not in given or given["num_layers"] % (stages * layers):
        raise LabError(
            f"--num-layers-per-virtual-pipeline-stage is {layers}; wanted it with --num-layers, a multiple of "
            f"{stages * layers}"
        )
    return int(given["num_layers"] // (stages * layers))
