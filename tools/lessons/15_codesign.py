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
# # Co-design
#
# **What would make this network compute-bound?**
#
# If a network is too slow for a job, you can change the job. Here you enlarge the batch and average less often, until
# the devices compute instead of waiting.
#
# Afterwards you can
#
# - say how much of an iteration would remain if messages were free;
# - compute the batch that makes data parallelism compute-bound, and say why a pipeline breaks the formula;
# - say what each change does to the training itself;
# - find the bandwidth at which another system wins.
#
# 35 minutes. Needs [14, systems compared](14_systems.ipynb). Words: [compute-bound,
# crossing](../docs/glossary.md#schedules-and-simulation), [local updates,
# compression](../docs/glossary.md#training-in-parallel). Nothing is trained here.

# %%
import pandas as pd

import dtfm_lab as lab

# %% [markdown]
# ## 1. The formula
#
# Take data parallelism alone. A device computes for $c$ seconds per sequence. Averaging takes $s$ seconds per
# iteration, whatever the batch. With $B$ sequences over $D$ equal devices, the share of computing is
# $\frac{cB/D}{cB/D+s}$. Here eight laptops in a lecture hall each hold all of `tiny`:

# %%
hall = lab.load_topology("lecture-hall")


def data_parallel(batch):
    job = lab.load_job("tiny", n_stages=1, n_replicas=8, global_batch=batch, microbatch=1)
    return lab.evaluate(hall, job, stages=[list(range(8))])


once, twice = (lab.simulate(data_parallel(batch)).iteration_s for batch in (8, 16))
compute_s = twice - once  # one sequence more on each device
synchronise_s = once - compute_s
print(f"c = {compute_s:.4f} s a sequence, s = {synchronise_s:.3f} s an iteration")

# %%
lab.guess(
    "codesign-batch",
    "From which batch on, in sequences over all eight laptops, do they compute for half of the time?",
    of=(compute_s, synchronise_s),
    unit="sequences",
    low=8,
    high=100_000,
)

# %%
lab.reveal("codesign-batch")
shares = {}
for batch in (8, 64, 256, 512, 1024):
    measured_s = lab.simulate(data_parallel(batch)).iteration_s
    shares[batch] = {"simulated": 1 - synchronise_s / measured_s}
    shares[batch]["formula"] = compute_s * batch / 8 / (compute_s * batch / 8 + synchronise_s)
pd.DataFrame(shares).T.rename_axis("batch").round(3)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why so large?** A laptop computes a sequence in an instant, but sends almost two gradients of the whole model over
# Wi-Fi. Computing fills half of the time once each device has $s/c$ sequences. Your own machine can refute that:
# `lab.run` of these plans, on the virtual clock, measures $c$ and $s$.
#
# </details>
#
# ## 2. A plan instead of a formula
#
# The lab's own plan of this job also cuts the model, so it sends far less. The cell simulates it twice, with messages
# and with free ones. The ratio of these times is its share of computing. Filling and draining the pipeline count as
# computing here, because no network can remove them.

# %%
plan = lab.plan(hall, "tiny", steps=2)
free = hall.scaled(bandwidth=1e6, latency=0)  # messages take next to no time


def computing(plan):
    without = lab.evaluate(free, plan.job, rank_map=plan.rank_map)
    return lab.simulate(without).iteration_s / lab.simulate(plan).iteration_s


# %%
lab.guess(
    "codesign-share",
    "Of the lab's plan for a batch of 16: how many per cent of the iteration would remain were every message free?",
    of=(computing, plan),
    unit="%",
    low=0,
    high=100,
)

# %%
lab.reveal("codesign-share")
print(plan)
pd.Series({batch: computing(lab.with_job(plan, global_batch=batch)) for batch in (16, 32, 64, 128, 256)}).round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Each row shows a batch, and the share of its iteration that would remain. Devices, shape and schedule stay. With data
# parallelism over equal devices, a larger batch never lowers this share. With a pipeline it can: the fill matters less,
# but hops that are longer than passes remain.
#
# </details>
#
# ## 3. What does it do to the training?
#
# The eight laptops of section 1 compute longer for each second of averaging if you change the job:
#
# ![Seconds of computing and of averaging with a batch of 64, and after three changes: a batch of 256, averaging in
# every 4th iteration, gradients in fp16](../docs/pictures/levers.svg)
#
# More bandwidth has no side effects. Every other change alters what is computed, so a faster iteration may be worth
# less:
#
# | what you change | what changes in the training |
# | --- | --- |
# | the batch | fewer, larger steps per token |
# | the model's width | it is another model |
# | the sequence length | the examples are others, and an equal number of them has more tokens |
# | compression | messages are rounded |
# | the iterations between two averages | replicas step alone in between, as in local SGD and DiLoCo |
#
# Above the *critical batch size*, a larger batch hardly improves a step ([McCandlish et al.
# 2018](https://arxiv.org/abs/1812.06162)), so tokens are wasted. A batch that makes a network compute-bound helps only
# below that size. If replicas average less often, a smaller batch is enough. [Lesson
# 13](13_compression_and_local_updates.ipynb) measures what that costs the loss.

# %%
swept = lab.sweep(plan, synchronise_every=[1, 4, 16, 64], global_batch=[16, 64, 256, 1024])
(1 - swept.pivot(index="synchronise_every", columns="global_batch", values="bubble_share")).round(2)

# %% [markdown]
# The table shows the share of time in which the devices of this plan compute. Each row has another number of iterations
# between two averages, each column another batch. Here, filling and draining count as waiting.
#
# ## 4. Or another system
#
# You can also send something else. Which system wins at which bandwidth between the laptops? Each chooses its best plan
# at every value.

# %%
asked = ["ddp", "fsdp", "megatron", "dt-fm"]
crossed = lab.strategies(hall, "tiny", over="bandwidth", values=(0.02, 20.0, 5), systems=asked)

# %%
lab.guess(
    "codesign-crossing",
    "From which bandwidth between laptops on is the whole model on each of them (PyTorch DDP) as fast as any other?",
    of=(crossed,),
    unit="Gbit/s",
    low=0.02,
    high=20,
)

# %%
lab.reveal("codesign-crossing")
print(*crossed.sentence.split("; "), sep="\n")
lab.figures.crossings(crossed)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Larger networks: [docs/compare-systems.md](../docs/compare-systems.md#at-which-bandwidth-does-which-system-win). In
# the shell: `dtfm-lab strategies --crossings lecture-hall --job tiny`.
#
# </details>
#
# > **Takeaway.** A network is compute-bound when devices compute enough per byte that they send. Batch, compression,
# > rarer averages and another system all move that point. Most of them change the training.
#
# ## Missions

# %%
lab.missions.show("make-it-compute-bound")

# %%
# given = lab.missions.given("make-it-compute-bound")
# answer = ...
# lab.missions.check("make-it-compute-bound", answer)

# %%
lab.missions.show("least-batch")

# %%
# def least_batch(compute_s, synchronise_s, n_replicas, target): ...
# lab.missions.check("least-batch", least_batch)

# %% [markdown]
# `lab.missions.hint(name)` gives one more hint, `lab.missions.answer(name)` the worked answer.

# %%
lab.missions.board("15_codesign")
