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
# A network that is too slow for a job can be met from the other side: by a job that asks less of it. Here batches grow
# and averages become rarer until devices compute instead of waiting.
#
# Afterwards you can
#
# - say how much of an iteration would remain were every message free;
# - tell by a formula which batch makes data parallelism compute-bound, and why a pipeline breaks it;
# - name what each change does to the training itself;
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
# Data parallelism alone: a device computes for $c$ seconds a sequence and averages for $s$ seconds an iteration,
# whatever the batch. With $B$ sequences over $D$ equal devices the share of computing is
# $\frac{cB/D}{cB/D+s}$. Eight laptops in a lecture hall, the whole of `tiny` on each:

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
# **Why so large?** A laptop computes a sequence in an instant, but sends two gradients of the whole model over Wi-Fi.
# Each has to be paid for by $s/c$ sequences a device. Your own machine can refute that: `lab.run` of these plans, on
# the virtual clock, measures both seconds.
#
# </details>
#
# ## 2. A plan instead of a formula
#
# The lab's own plan of the same job sends far less: it cuts the model, too. Its share of computing is simulated twice,
# with messages and with free ones. Fill and drain of a pipeline count as computing here, because no network takes them
# away.

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
# A row for each batch, and the share of its iteration that would remain. Devices, shape and schedule stay. A larger
# batch never lowers the share of data parallelism over equal devices. For pipelines that is no law: as the fill of a
# pipeline weighs less, hops that are longer than passes remain.
#
# </details>
#
# ## 3. What does it do to the training?
#
# Only more bandwidth is free of consequences. Everything else changes what is computed, and a faster iteration may be
# worth less:
#
# | what is changed | what that changes of the training |
# | --- | --- |
# | the batch | fewer, larger steps a token |
# | the model's width | it is another model |
# | the sequence | other examples, and as many of them are a batch of more tokens |
# | compression | messages are rounded |
# | the iterations between two averages | replicas step alone between them, as in local SGD and DiLoCo |
#
# Beyond the *critical batch size* a larger batch brings hardly more than a smaller one ([McCandlish et al.
# 2018](https://arxiv.org/abs/1812.06162)): tokens are wasted. So the batch that makes a network compute-bound is an
# answer only below that. Rarer averages buy a smaller batch; [lesson 13](13_compression_and_local_updates.ipynb)
# measures what they cost the loss.

# %%
swept = lab.sweep(plan, synchronise_every=[1, 4, 16, 64], global_batch=[16, 64, 256, 1024])
(1 - swept.pivot(index="synchronise_every", columns="global_batch", values="bubble_share")).round(2)

# %% [markdown]
# The share of the time of all devices in which they compute, on the same plan: a row for each number of iterations
# between two averages, a column for each batch. Fill and drain of the pipelines count as waiting here.
#
# ## 4. Or another system
#
# The other way out is to send something else. At which bandwidth between the laptops does which system win? Each
# chooses its best plan anew at every value.

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
# More on that, with larger networks:
# [docs/compare-systems.md](../docs/compare-systems.md#at-which-bandwidth-does-which-system-win). From the shell:
# `dtfm-lab strategies --crossings lecture-hall --job tiny`.
#
# </details>
#
# > **Takeaway.** A network is compute-bound when enough is computed per byte. Batch, compression, rarer averages and
# > another system all move that point, and most of them change the training.
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
# `lab.missions.hint(name)` helps a step further each time, `lab.missions.answer(name)` works it out.

# %%
lab.missions.board("15_codesign")
