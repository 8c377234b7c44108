# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # On a GPU
#
# This notebook shows what you can know without a GPU: what limits it, what a device would hold, what crosses a link,
# and how the lab's kernels compile. Then it asks for a run on a GPU. `make gpu` measures the rest; what an H200 gave is
# [here](../../docs/run-for-real.md#gpus).

# %%
import os
import subprocess
import sys

import pandas as pd

import dtfm_lab as lab
from dtfm_lab.domain.job import MODELS
from dtfm_lab.domain.network import HARDWARE

# %% [markdown]
# ## What is here
#
# The lab's doctor asks the driver, torch and CuPy, each in its own process.

# %%
doctor = [sys.executable, "-c", "from dtfm_lab.cli import main; main()", "doctor"]
print(subprocess.run(doctor, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"}).stdout)

# %% [markdown]
# ## The roofline
#
# For each byte that its memory moves, a GPU can compute a certain number of operations: the *ridge*, some 200 for an
# A100 40GB. A matrix product with fewer operations per byte waits for the memory. With $t$ tokens, a weight of 2 bytes
# is read once and used for $2t$ operations: $t$ per byte. So a micro-batch needs as many tokens as the ridge: 2,048 are
# plenty, eight are too few.

# %%
roofline = pd.DataFrame(
    {
        "bf16, TFLOP/s": row.peak["bf16"] / 1e12,
        "memory, GB/s": row.memory_bytes_per_s / 1e9,
        "ridge, FLOP/byte": row.peak["bf16"] / row.memory_bytes_per_s,
        "8 tokens, TFLOP/s at most": min(row.peak["bf16"], 8 * row.memory_bytes_per_s) / 1e12,
    }
    for row in HARDWARE.values()
    if "bf16" in row.peak
)
roofline.insert(0, "GPU", [name for name, row in HARDWARE.items() if "bf16" in row.peak])
roofline.round(1)

# %% [markdown]
# `make gpu` has a goal: 45 % of the peak. There, a step of a model of 1.3 billion parameters on eight sequences takes:

# %%
model = MODELS["gpt3-xl"]
step_flop = 3 * model.forward_flop * 8
(step_flop / (0.45 * 1e12 * roofline.set_index("GPU")["bf16, TFLOP/s"])).rename("seconds a step").to_frame().round(3)

# %% [markdown]
# ## What a device would hold
#
# The memory model needs no GPU. On an H200, torch's allocator agreed within 5 % for five of six cuts and schedules.

# %%
network = lab.load_topology("worldwide").subset(range(4))
job = lab.load_job("gpt3-xl", n_stages=4, n_replicas=1, global_batch=8, microbatch=1)
plan = lab.plan(network, job, steps=1, seed=0)
held = [
    lab.memory(plan, schedule).to_frame().assign(schedule=schedule)[["schedule", "device", "stage", "peak_bytes"]]
    for schedule in ("gpipe", "1f1b")
]
pd.concat(held).assign(peak_gib=lambda rows: (rows["peak_bytes"] / 2**30).round(2)).drop(columns="peak_bytes")

# %% [markdown]
# ## What crosses a link
#
# The bytes of a hop and of a stage's gradients, by coding. CuPy's kernel encodes int8 in one pass over the numbers,
# torch in several. On an H200 the kernel was nine times as fast.

# %%
pd.DataFrame(
    [
        {"coding": how, "activations of a hop, MB": coded.hop_bytes / 1e6, "gradients, MB": coded.gradient_bytes / 1e6}
        for how in ("none", "fp16", "int8")
        for coded in [lab.with_job(plan, compression=how, dtype="fp32").job]
    ]
).round(1)

# %% [markdown]
# ## What the kernels become
#
# NVRTC, NVIDIA's compiler at run time, needs no GPU. Its assembly (PTX) shows that the kernels round as torch does.
# Divisions round to the nearest (`div.rn`), and no small number becomes zero (`.ftz` would do that).

# %%
try:
    from cupy.cuda import nvrtc

    from dtfm_lab.runtime.gpu.cupy_codec import SOURCE

    codec = nvrtc.createProgram(SOURCE, "codec.cu", [], [])
    nvrtc.compileProgram(codec, ["--gpu-architecture=compute_90", "-ftz=true"])
    wanted = ("div.", "mul.rn", "cvt.rn.f16", "shfl")
    ptx = nvrtc.getPTX(codec).decode()
    lines = [line.split()[0] for line in ptx.splitlines() if line.strip().startswith(wanted)]
    print(pd.Series(lines, name="times in the PTX for compute capability 9.0").value_counts())
except Exception as why:  # CuPy or NVRTC is not installed
    print(f"not shown here: {type(why).__name__}: {str(why).splitlines()[0]}")

# %% [markdown]
# ## A run on a GPU
#
# `runs_on="cuda"` puts the workers on the GPUs of this machine. Without a GPU, the lab refuses in one line.

# %%
tiny = lab.plan(lab.load_topology("lecture-hall"), lab.load_job("tiny"), steps=1, seed=0)
try:
    trace = lab.run(tiny, runs_on="cuda", iterations=3)
    print(f"{trace.iteration_s:.3f} s an iteration on a GPU")
except lab.LabError as why:
    print(why)

# %% [markdown]
# ## The report
#
# On a machine with a GPU, this command writes a page that you can send in:
#
# ```sh
# make gpu
# ```
#
# > **Takeaway.** A GPU computes at its peak only if a micro-batch has as many tokens as the ridge.
