"""The formats that the lab reads, each with valid files: what mutants.py damages and reads."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
RECORDED = DATA.parent / "extensions" / "machines" / "recorded"
RUN = DATA.parent / "extensions" / "hosts" / "saved" / "run"


@dataclass(frozen=True)
class Format:
    """Files of one kind: their ending, valid ones, and what reads one."""

    ending: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], object]


def formats() -> dict[str, Format]:
    """Every format by name, its valid files read or written here."""
    from dtfm_lab import files, lab
    from dtfm_lab.extensions.course.api import missions
    from dtfm_lab.extensions.course.graded import read_students
    from dtfm_lab.extensions.course.handed_in import pack
    from dtfm_lab.extensions.course.marking.files import HandIn, cells_of, missions_in
    from dtfm_lab.extensions.course.progress import Progress, read_progress, save_progress
    from dtfm_lab.extensions.course.teaching import assignment
    from dtfm_lab.extensions.hosts.hosts import load_hosts
    from dtfm_lab.extensions.published.own import read_rows
    from dtfm_lab.extensions.systems.api import from_flags
    from dtfm_lab.files.models import load_model
    from dtfm_lab.files.workspaces import WorkspaceState, load_workspace, save_workspace
    from dtfm_lab.planning.evaluate import evaluate
    from dtfm_lab.runtime.protocol.run_options import RunSpec
    from dtfm_lab.simulation.schedules import schedules
    from dtfm_lab.simulation.simulate import simulate

    def texts(*names: str) -> tuple[bytes, ...]:
        return tuple((DATA / name).read_bytes() for name in names)

    def with_others(*names: str) -> Callable[[Path], object]:
        return lambda path: files.load_topology([path, *(RECORDED / name for name in names)])

    def written(write: Callable[[Any, Path], object], thing: object, ending: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            write(thing, path := Path(folder) / f"valid{ending}")
            return path.read_bytes()

    small = files.load_topology("volunteers").subset(["amy", "eve", "gus", "mia"])
    plan = evaluate(small, files.load_job("tiny", n_stages=2, n_replicas=2), stages=[[0, 1], [3, 2]])
    zero_bubble = schedules["zb-h1"](2, 4)
    spec = RunSpec.from_line((RUN / "spec.json").read_text())

    def topology(ending: str) -> Format:
        return Format(ending, (written(files.save_topology, small, ending),), files.load_topology)

    def priced(path: Path) -> object:
        """A job that is read, and a plan of it. Batches between have so many micro-batches that to simulate them takes
        long, but may."""
        job = files.load_job(path)
        if job.model is not None and not 10**5 < job.global_batch < 10**8:
            lab.evaluate("lecture-hall", job, stages=[[0, 1], [2, 3]])
        return job

    def handed_in(path: Path) -> object:
        hand_in = HandIn("ada", path, path.parent)
        return missions_in(hand_in, cells_of(hand_in))

    def swept(plan: object, path: Path) -> object:
        """A sweep that goes on from rows: each is of one that it wants."""
        return lab.sweep(plan, executor="here", resume=path, schedule=["gpipe", "1f1b"])

    jobs = (*texts("saved/job.yaml"), JOB.encode(), JOB_OF_SIZES.encode())
    sky = json.dumps({"metadata": {"gap_seconds": 30}, "data": [2, 0, 1, 3]}).encode()
    configs = sorted((DATA / "hf_configs").glob("*.json"))
    machines = {
        "nvidia-smi -q -x": (".smi.xml", ["gpubox.smi.xml"], ["gpu01.topo.txt"]),
        "nvidia-smi topo -m": (".topo.txt", ["gpu01.topo.txt", "gpu03.topo.txt"], ["scontrol.txt"]),
        "iperf3": (".json", ["ada-to-alan.iperf.json", "ada-and-alan.iperf.json"], ["ssh_config", "task.yaml"]),
        "nccl-tests": (".txt", ["all_reduce.txt"], []),
        "kubernetes": (".json", ["nodes.json"], []),
        "slurm": (".txt", ["scontrol.txt", "sinfo.txt", "scontrol-states.txt", "sinfo-cut.txt"], []),
        "skypilot task": (".yaml", ["task.yaml"], ["vms.csv"]),
        "skypilot catalogue": (".csv", ["vms.csv"], ["task.yaml"]),
        "ray": (".json", ["ray_list.json", "ray_nodes.json"], []),
        "ssh config": (".txt", ["ssh_config"], ["scontrol.txt"]),
    }
    answers = ([1.5, "ada", {"a": (1, None)}], np.arange(6.0).reshape(2, 3), plan, simulate(plan), zero_bubble)
    lesson = next(iter(missions.values())).lesson
    notebook = json.dumps(assignment(lesson, solved=False)).encode()
    return {
        "topology yaml": topology(".yaml"),
        "topology json": topology(".json"),
        "topology csv": topology(".csv"),
        "topology npz": topology(".npz"),
        "topology matrix": Format(".latency_ms.csv", texts("saved/two-towns.latency_ms.csv"), _matrix),
        "job yaml": Format(".yaml", jobs, priced),
        "job json": Format(".json", tuple(json.dumps(yaml.safe_load(job)).encode() for job in jobs), priced),
        "model config": Format(".json", tuple(path.read_bytes() for path in configs), load_model),
        "plan": Format(".json", (written(files.save_plan, plan, ".json"), *texts("saved/plan.json")), files.load_plan),
        "trace": Format(
            ".json",
            (written(files.save_trace, simulate(plan), ".json"), *texts("saved/measured.json")),
            files.load_trace,
        ),
        "schedule txt": Format(".txt", (written(files.save_schedule, zero_bubble, ".txt"),), files.load_schedule),
        "schedule csv": Format(".csv", (written(files.save_schedule, zero_bubble, ".csv"),), files.load_schedule),
        "measured rows csv": Format(".csv", (MEASURED.encode(),), read_rows),
        "measured rows json": Format(".json", (json.dumps(_records()).encode(),), read_rows),
        "availability csv": Format(".csv", (EVENTS.encode(), COUNTS.encode()), lab.load_availability),
        "availability json": Format(".json", (sky,), lab.load_availability),
        "launch flags": Format(".txt", tuple(map(str.encode, LAUNCHES)), lambda path: from_flags(_text(path))),
        "sweep rows": Format(".jsonl", (written(swept, plan, ".jsonl"),), lambda path: swept(plan, path)),
        "run spec": Format(".json", ((RUN / "spec.json").read_bytes(),), lambda path: RunSpec.from_line(_text(path))),
        "run hosts": Format(".yaml", ((RUN / "hosts.yaml").read_bytes(),), lambda path: load_hosts(path, spec)),
        "workspace": Format(
            ".json",
            (written(save_workspace, WorkspaceState(topology=small, plan=plan), ".json"),),
            load_workspace,
        ),
        "notebook": Format(".ipynb", (notebook,), handed_in),
        "answer": Format(".json", tuple(json.dumps(pack(one)).encode() for one in answers), _answer),
        "students": Format(".txt", (b"ada\nalan\ngrace\n",), read_students),
        "progress": Format(".json", (written(save_progress, Progress("ada", {}, []), ".json"),), read_progress),
        **{
            name: Format(ending, tuple((RECORDED / each).read_bytes() for each in names), with_others(*others))
            for name, (ending, names, others) in machines.items()
        },
    }


def _matrix(path: Path) -> object:
    """A mutant as both matrices of a network."""
    from dtfm_lab.files import load_topology

    path.with_name(path.name.replace("latency_ms", "bandwidth_gbps")).write_bytes(path.read_bytes())
    return load_topology(path)


def _answer(path: Path) -> object:
    """An answer that a student's process handed in, which may send any JSON."""
    from dtfm_lab.extensions.course.handed_in import unpack

    try:
        packed = json.loads(path.read_bytes())
    except (ValueError, RecursionError):  # the channel takes no such line
        return None
    return unpack(packed)


def _text(path: Path) -> str:
    from dtfm_lab.files.reading import read_text

    return read_text(path)


def _records() -> list[dict[str, str]]:
    head, *lines = MEASURED.splitlines()
    return [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]


JOB = """dtfm_job: 1
base: tiny
n_stages: 2
n_replicas: 2
model: {name: small, n_layers: 2, d_model: 8, n_heads: 2, seq_len: 8, vocab_size: 16}
"""
JOB_OF_SIZES = """dtfm_job: 1
base: gpt3-xl
n_stages: 2
n_replicas: 2
microbatch: 1
global_batch: 64
schedule: 1f1b
compression: int8
checkpointing: block
blocks_per_stage: [12, 12]
microbatches_per_replica: [30, 34]
"""
EVENTS = """# end_seconds: 60
# devices: ["a", "b"]
seconds,event,node
0,add,a
0,add,b
7.5,remove,a
"""
COUNTS = """seconds,count
0,4
60,2
120,3
180,3
"""
MEASURED = """setting,quantity,published,unit,gpu,gpus,inside_gbps,between_gbps,job,n_stages,n_replicas,band
one,iteration,1.5,s,A100,8,2400,100,gpt3-xl,4,2,10%
two,throughput,9000,tokens/s,A100,8,2400,100,gpt2-xl,2,4,1.3x
"""
LAUNCHES = (
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 2 --global-batch-size 64 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
    "--bf16 --use-distributed-optimizer\n",
    json.dumps(
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 2,
            "zero_optimization": {"stage": 3, "overlap_comm": True},
            "bf16": {"enabled": True},
        }
    ),
    "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
    "[parallelism]\ndata_parallel_shard_degree = 8\n[activation_checkpoint]\nmode = 'full'\n",
    "#!/bin/bash\nTP=${TP:-2}\nARGS=(--num-layers 24 --hidden-size 2048 --num-attention-heads 16)\n"
    'if [[ "$TP" -gt 1 ]]; then\n    ARGS+=(--sequence-parallel)\nfi\n'
    "torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]} --tensor-model-parallel-size $TP --seq-length 2048 "
    "--max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 64 --bf16\n",
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nnum_machines: 1\n"
    "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n  fsdp_activation_checkpointing: true\n",
)
