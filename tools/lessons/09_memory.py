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
# A plan that does not fit is none. What a device holds can be told before anything runs: it follows from the model, the
# cut and the order of passes, and no seconds are needed.
#
# Afterwards you can
#
# - say what fills a device: parameters, gradients, optimiser states, activations;
# - read off a schedule how many activations it holds, without playing it;
# - choose among schedule, checkpoints and ZeRO, knowing what each costs.
#
# 45 minutes. Needs [08, schedules](08_schedules.ipynb). Nothing is trained here.

# %%
import logging

import pandas as pd

import dtfm_lab as lab

logging.getLogger("dtfm_lab").setLevel(logging.ERROR)  # plans that do not fit are what this lesson looks at

GIB = 2**30

# %% [markdown]
# ## 1. Four kinds of bytes
#
# GPT3-XL has 1.3 billion parameters. Training keeps more than these. Guess how much.

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
# **Why.** A parameter in half precision takes 2 bytes, its gradient 2 more. Adam keeps two moments of each, and a copy
# of the parameter that is exact enough to add small steps to, all in single precision: 12 bytes. Together they are the
# 16 bytes a parameter of [Rajbhandari et al. 2020](https://arxiv.org/abs/1910.02054) (section 3.1). The *activations*
# are what a forward computes and the backward needs again. They do not depend on parameters but on tokens:
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
# 34 bytes a block, token and width are the count of [Korthikanti et al. 2022](https://arxiv.org/abs/2205.05198)
# (section 4.1) less what attention adds: a matrix of tokens by tokens for each head, which fused kernels
# (FlashAttention) do not keep.
#
# ## 2. What a schedule holds, and when
#
# A micro-batch's activations are held from its forward to the end of its backward. How many are held at once is
# therefore written in the order of passes: count up at each `F`, down at each `B`. For the paper's world-wide case, 64
# micro-batches a pipeline on V100s of 16 GiB:

# %%
job = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=512, microbatch=1)
plan = lab.plan("worldwide", job, objective="communication", seed=0, steps=10)
in_a_row = plan.pipelines[0]
for name in ("gpipe", "1f1b"):
    needs = lab.memory(plan, name)
    print(f"{name:5}: {needs.sentence}")

# %% [markdown]
# GPipe's devices hold the activations of all $M$ micro-batches. Of 1F1B's, stage $s$ of $S$ holds those of $\min(S - s,
# M)$: the first stage most, as it waits longest for its gradients. `lab.memory(plan, schedule)` knows this from the
# order alone; with `trace=` it knows the moments, too.

# %%
gpipe = lab.simulate(plan, "gpipe")
lab.figures.memory_over_time(lab.memory(plan, trace=gpipe), devices=[in_a_row[0], in_a_row[-1]])

# %%
adaptive = lab.simulate(plan, "adaptive-1f1b")
lab.figures.memory_over_time(lab.memory(plan, trace=adaptive), devices=[in_a_row[0], in_a_row[-1]])

# %% [markdown]
# The last stage's activations are twice as large: it also holds the head's, a number for each token and each word of
# the vocabulary. Under 1F1B nobody notices, since the last stage holds one micro-batch at a time. Now `zb-h1`, which
# splits backwards in two and keeps for the second half what it needs ([08](08_schedules.ipynb), section 5).

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
# **Why.** Every device of `zb-h1` holds up to 8, the last one too, whose activations are the largest. "As many as 1F1B"
# was said of the *first* device: counts of micro-batches are not bytes. (`adaptive-1f1b` is asked with its trace. From
# a name alone `lab.memory` answers for the variant that holds least, which is 1F1B's order.)
#
# </details>
#
# ## 3. Three ways to need less, and what each costs
#
# Before anything is simulated, one question:

# %%
print(lab.memory(plan, "gpipe").advice)

# %% [markdown]
# **Another order.** 1F1B holds fewer and computes nothing twice. On slow links it waits instead.
#
# **Checkpoints** ([Chen et al. 2016](https://arxiv.org/abs/1604.06174)): keep only what comes into a stage (`stage`) or
# a block (`block`), and compute the rest again in the backward, for one more forward a micro-batch.
#
# **ZeRO** ([Rajbhandari et al. 2020](https://arxiv.org/abs/1910.02054)): the replicas of a stage hold equal things, so
# let each keep a part. `zero-1` splits the optimiser's states, `zero-2` gradients as well, `zero-3` also parameters,
# which are then gathered before every use.

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
# ZeRO-1 costs no time: what was sent before, gradients out and averages back, is still all that is sent. ZeRO-3 sends
# parameters in every micro-batch, and even inside a machine room that shows. (More than an eighth stays, as some layers
# are whole at a time while they are used.)
#
# Which of these for the plan of section 2? All of them, and their seconds:
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
# Memory that is there may as well be used: here it is worth more as activations of forwards ahead than as room saved by
# checkpoints. On smaller devices it would be the other way round, and the last mission asks for such a choice.
#
# ## 4. What the prediction leaves out
#
# Tensors that outlive an operator are counted. An operator's own temporaries, memory lost between allocations, and what
# the framework takes for itself are not. How much that is, others have measured: [16](16_published.ipynb) and [the
# table](../docs/ledger.md) lay our bytes beside theirs. On a machine of yours with a GPU, ask
# `torch.cuda.max_memory_allocated()`: it can refute these numbers.

# %% [markdown]
# > **Takeaway.** Parameters, gradients and Adam take 16 bytes per parameter. Activations grow with tokens and with
# > the micro-batches that a schedule holds. Schedules, recomputation and ZeRO each trade memory for something else.
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
# `lab.missions.hint(name)` helps a step further each time, `lab.missions.answer(name)` works it out.

# %%
lab.missions.board("09_memory")
