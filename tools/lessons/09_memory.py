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
# # Memory
#
# **What fills a device, and when?**
#
# A plan is useless if it does not fit. You can predict what a device holds before anything runs. It follows from the
# model, the cut into stages and the order of passes, without any seconds.
#
# Afterwards you can
#
# - say what fills a device: parameters, gradients, optimiser states, activations;
# - read from a schedule how many activations it holds, without simulating it;
# - choose among schedules, recomputation and ZeRO, knowing what each costs.
#
# 45 minutes. Needs [08, schedules](08_schedules.ipynb). Nothing is trained here.

# %%
import logging

import pandas as pd

import dtfm_lab as lab

logging.getLogger("dtfm_lab").setLevel(logging.ERROR)  # hides warnings: some plans here do not fit, on purpose

GIB = 2**30

# %% [markdown]
# ## 1. Four kinds of bytes
#
# GPT3-XL has 1.3 billion parameters. Training holds more than these. Guess how much.

# %%
job = lab.load_job("gpt3-xl", n_stages=1, n_replicas=1, global_batch=1, microbatch=1)
v100 = lab.load_topology("worldwide").subset([0])
alone = lab.evaluate(v100, job, stages=[[0]])
held = lab.memory(alone).to_frame().iloc[0]
print(f"{job.model.parameters:,} parameters, in {job.dtype}")

# %%
lab.guess(
    "memory-of-parameters",
    "How many GiB do parameters, gradients and optimiser states of GPT3-XL take together, trained in fp16 with Adam, "
    "before a single activation is kept?",
    of=(held,),
    unit="GiB",
    low=1,
    high=100,
)

# %%
lab.reveal("memory-of-parameters")
kinds = ["parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"]
table = pd.DataFrame({"GiB": held[kinds] / GIB, "bytes a parameter": held[kinds] / job.model.parameters})
table.astype(float).round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why.** A parameter in half precision takes 2 bytes, and its gradient 2 more. Adam keeps three numbers per parameter
# in single precision, 12 bytes: two moments, and a copy of the parameter that is precise enough for small steps.
# Together they are the 16 bytes per parameter of [Rajbhandari et al. 2020](https://arxiv.org/abs/1910.02054) (section
# 3.1). The *activations* are what a forward computes and the backward needs again. They grow with the number of tokens:
#
# </details>


# %%
def activations(n_microbatches, **changes):
    """Bytes that a middle stage of three blocks holds, of a pipeline of eight, under GPipe."""
    job = lab.load_job("gpt3-xl", n_stages=8, n_replicas=1, global_batch=n_microbatches, microbatch=1)
    network = lab.load_topology("worldwide").subset(range(8))
    plan = lab.evaluate(network, job.with_fields(**changes), stages=[[stage] for stage in range(8)])
    return lab.memory(plan, "gpipe").to_frame().activations_bytes[3]


tokens, width, blocks = 2048, 2048, 3
a_microbatch = activations(2) - activations(1)
print(f"{a_microbatch / blocks / tokens / width:.2f} bytes a block, token and width")
assert abs(a_microbatch / blocks / tokens / width - 34) < 0.1
unfused = activations(2, attention="unfused") - activations(1, attention="unfused")
print(f"with attention's matrices kept: {unfused / a_microbatch:.1f} times as many")

# %% [markdown]
# 34 bytes per block, token and unit of width is the count of
# [Korthikanti et al. 2022](https://arxiv.org/abs/2205.05198) (section 4.1) without attention scores. The scores are a
# matrix of tokens by tokens for each head. Fused kernels (FlashAttention) do not keep it.
#
# ## 2. What a schedule holds, and when
#
# A device holds a micro-batch's activations from its forward to the end of its backward. So the order of passes says
# how many it holds at once: count up at each `F`, down at each `B`. Take the paper's world-wide case, with 64
# micro-batches per pipeline on V100s of 16 GiB:

# %%
job = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=512, microbatch=1)
plan = lab.plan("worldwide", job, objective="communication", seed=0, steps=10)
in_a_row = plan.pipelines[0]
for name in ("gpipe", "1f1b"):
    needs = lab.memory(plan, name)
    print(f"{name:5}: {needs.sentence}")

# %% [markdown]
# A GPipe device holds the activations of all $M$ micro-batches. Under 1F1B, stage $s$ of $S$, counted from 0, holds
# those of $\min(S - s, M)$. The first stage holds most, because it waits longest for its gradients.
# `lab.memory(plan, schedule)` reads this from the order alone. With `trace=`, it also knows the times. Red hatching
# shows what exceeds a device's memory, here on purpose.

# %%
gpipe = lab.simulate(plan, "gpipe")
lab.figures.memory_over_time(lab.memory(plan, trace=gpipe), devices=[in_a_row[0], in_a_row[-1]])

# %%
adaptive = lab.simulate(plan, "adaptive-1f1b")
lab.figures.memory_over_time(lab.memory(plan, trace=adaptive), devices=[in_a_row[0], in_a_row[-1]])

# %% [markdown]
# The last stage's activations are twice as large. It also holds the head's logits, a number for each token and each
# word of the vocabulary. Under 1F1B this hardly matters, because the last stage holds one micro-batch at a time.
# `zb-h1` splits each backward in two and keeps what the second half needs ([08](08_schedules.ipynb), section 5).

# %%
lab.guess(
    "memory-of-zero-bubble",
    f"Under 1F1B the fullest device is the first: {lab.memory(plan, '1f1b').peak_bytes.max() / GIB:.1f} GiB, with "
    "8 micro-batches held. zb-h1 holds no more than 8 anywhere. How many GiB does its fullest device need?",
    of=(lab.memory, plan),
    unit="GiB",
    low=3,
    high=30,
)

# %%
lab.reveal("memory-of-zero-bubble")
rows = {name: lab.memory(plan, name).peak_bytes[:, 0] / GIB for name in ("gpipe", "1f1b", "zb-h1")} | {
    "adaptive-1f1b": lab.memory(plan, trace=adaptive).peak_bytes[:, 0] / GIB
}
pd.DataFrame(rows).round(2).rename_axis("stage")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why.** Every device of `zb-h1` holds up to 8 micro-batches. So does the last one, whose activations are the largest.
# Equal counts of micro-batches are not equal bytes. (The column `adaptive-1f1b` needs its trace. From the name alone,
# `lab.memory` assumes the warm-ups that hold least, those of 1F1B.)
#
# </details>
#
# ## 3. Three ways to need less, and what each costs
#
# Before you simulate anything, ask for advice:

# %%
print(lab.memory(plan, "gpipe").advice)

# %% [markdown]
# **Another order.** 1F1B holds fewer activations and computes nothing twice. On slow links it waits instead.
#
# **Recomputation**, or activation checkpointing ([Chen et al. 2016](https://arxiv.org/abs/1604.06174)): keep only the
# input of each stage (`stage`) or block (`block`). The backward computes the rest again, for one more forward per
# micro-batch.
#
# **ZeRO** ([Rajbhandari et al. 2020](https://arxiv.org/abs/1910.02054)): the replicas of a stage hold equal states, so
# each keeps a part. `zero-1` splits the optimiser states, `zero-2` also the gradients, and `zero-3` also the
# parameters, which are then gathered before every use.

# %%
lab.guess(
    "memory-of-zero-1",
    "16 bytes a parameter without ZeRO. How many does each of 8 replicas hold with ZeRO-1?",
    of=(8,),
    unit="bytes",
    low=1,
    high=16,
)

# %%
lab.reveal("memory-of-zero-1")
room = lab.load_topology("datacenter").subset(range(8))
rows = []
for sharding in ("none", "zero-1", "zero-2", "zero-3"):
    replicas = lab.load_job(
        "gpt3-xl", n_stages=1, n_replicas=8, global_batch=64, microbatch=1, sharding=sharding, checkpointing="block"
    )
    sharded = lab.evaluate(room, replicas, stages=[[*range(8)]])
    held = lab.memory(sharded, "1f1b").to_frame().iloc[0]
    static = held.parameters_bytes + held.gradients_bytes + held.optimizer_bytes
    each = static / replicas.model.parameters
    rows.append((sharding, static / GIB, each, held.peak_bytes / GIB, lab.simulate(sharded, "1f1b").iteration_s))
pd.DataFrame(rows, columns=["sharding", "static_GiB", "bytes_a_parameter", "peak_GiB", "iteration_s"]).round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# ZeRO-1 costs no time. It sends as much as before: gradients out and updated parameters back. ZeRO-2 sends gradients in
# every micro-batch, and ZeRO-3 also parameters. Even in a data centre, that shows. (More than an eighth stays, because
# some layers are whole while they are used.)
#
# Which schedule, and which recomputation, suits the plan of section 2? Try all of them:
#
# </details>

# %%
ways = lab.sweep(plan, schedule=["gpipe", "1f1b", "adaptive-1f1b"], checkpointing=["none", "block", "stage"])
ways["peak_GiB"] = ways["peak_memory_bytes"] / GIB
ways[["schedule", "checkpointing", "iteration_s", "peak_GiB", "fits"]].round(1)

# %%
fitting = ways[ways.fits].sort_values("iteration_s").iloc[0]
print(f"fastest that fits: {fitting.schedule}, checkpointing {fitting.checkpointing}, {fitting.iteration_s:.1f} s")
assert fitting.checkpointing == "none"

# %% [markdown]
# Spare memory is worth using. Here, warm-up forwards use it best, and recomputation only costs time. On smaller
# devices, recomputation can win. The last mission asks for such a choice.
#
# ## 4. What the prediction leaves out
#
# The prediction counts tensors that outlive an operator. It leaves out an operator's temporaries, memory lost between
# allocations, and what the framework itself takes. [16](16_published.ipynb) and [the table](../docs/ledger.md) compare
# our bytes with published measurements. If you have a GPU, `torch.cuda.max_memory_allocated()` can refute these
# numbers.

# %% [markdown]
# > **Takeaway.** Remember 16 bytes per parameter for weights, gradients and Adam. Activations grow with tokens and with
# > the micro-batches that a schedule holds. Before you use another schedule, recomputation or ZeRO, ask what it costs
# > in time.
#
# ## Missions

# %%
lab.missions.show("sixteen-bytes")

# %%
# answer = ...
# lab.missions.check("sixteen-bytes", answer)

# %%
lab.missions.show("most-held")

# %%
# answer = ...
# lab.missions.check("most-held", answer)

# %%
lab.missions.show("into-sixteen")

# %%
# answer = ...
# lab.missions.check("into-sixteen", answer)

# %% [markdown]
# `lab.missions.hint(name)` gives one more hint at each call. `lab.missions.answer(name)` shows a worked answer.

# %%
lab.missions.board("09_memory")
