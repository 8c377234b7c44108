"""Step 10: messages between two GPUs by NCCL; between two processes by gloo where it is rehearsed."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from figures import Figure, NotRun, Setting

SIZES = (2**12, 2**20, 2**28)
"""Bytes of a message."""
PATIENCE = timedelta(seconds=90)


def measure(setting: Setting) -> Iterator[Figure]:
    if not setting.rehearses:
        if (n := torch.cuda.device_count()) < 2:
            raise NotRun(f"{n} GPU is here; wanted two")
        if not dist.is_nccl_available():
            raise NotRun("this torch has no NCCL")
    with tempfile.TemporaryDirectory(prefix="dtfm-two-ranks-") as folder:
        arguments = folder, "gloo" if setting.rehearses else "nccl", SIZES[:2] if setting.rehearses else SIZES
        torch.multiprocessing.spawn(one_rank, arguments, nprocs=2)
        rows = json.loads((Path(folder) / "rows.json").read_text())
    for n_bytes, seconds, equal in rows:
        yield Figure(
            name=f"{n_bytes} bytes there and back",
            value=2 * n_bytes / seconds / 1e9,
            unit="GB/s",
            goal="the same bits",
            met=equal,
            note=f"{seconds / 2 * 1e6:.4g} us one way",
        )


def one_rank(rank: int, folder: str, backend: str, sizes: tuple[int, ...]) -> None:
    """Send a message to the other rank and take it back, for each size; rank 0 writes what it found."""
    store = dist.FileStore(f"{folder}/store", 2)
    device = torch.device("cpu") if backend == "gloo" else torch.device("cuda", rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, store=store, rank=rank, world_size=2, timeout=PATIENCE)
    rows = []
    for n_bytes in sizes:
        sent = torch.randint(0, 256, (n_bytes,), dtype=torch.uint8, generator=torch.Generator().manual_seed(7)).to(
            device
        )
        received = torch.empty_like(sent)
        taken_s = []
        for _ in range(5):
            began_s = time.perf_counter()
            if rank == 0:
                dist.send(sent, 1)
                dist.recv(received, 1)
            else:
                dist.recv(received, 0)
                dist.send(received, 0)
            if device.type == "cuda":
                torch.cuda.synchronize()
            taken_s.append(time.perf_counter() - began_s)
        rows.append((n_bytes, sorted(taken_s)[2], torch.equal(sent, received)))
    if rank == 0:
        (Path(folder) / "rows.json").write_text(json.dumps(rows))
    dist.destroy_process_group()
