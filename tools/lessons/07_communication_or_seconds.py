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
# # Communication or seconds
#
# **What does the closed form not see?**
#
# You will be able to:
#
# - Name what the communication cost leaves out, and say when that matters.
# - Compute how much of a pipeline's messages overlap.
# - Find a plan whose proof does not help it, and explain why.
# - Plan for seconds, and read the bound that holds for these.
#
# 40 minutes. It builds on [Searching](06_searching.ipynb) and [Schedules](08_schedules.ipynb). Words: [communication
# cost, simulated iteration, objective](../docs/glossary.md#planning).

# %%
import numpy as np

import dtfm_lab as lab

# %% [markdown]
# ## 1. A proven plan
#
# *mixed-gpus* is what a group buys over the years: a machine of eight A100s, one of eight V100s, one of eight T4s, one
# of eight RTX 4090s. The job is GPT3-XL in eight stages of four replicas. The planner `exact` finds the placement of
# least communication cost, and proves that there is no lower one.

# %%
mixed = lab.load_topology("mixed-gpus")
job = lab.load_job("gpt3-xl", n_stages=8, n_replicas=4, global_batch=512, microbatch=1, schedule="1f1b")
proven = lab.plan(mixed, job, planner="exact", objective="communication", seed=0, steps=20)
print(f"communication cost {proven.cost.total_s:.3f} s, no placement below {proven.lower_bound_s:.3f} s")
assert proven.gap < 1e-6
for pipeline in proven.pipelines:
    print("a pipeline:", ", ".join(pipeline))

# %% [markdown]
# Every pipeline stays within one machine, whose links are the fastest; only shards of gradients leave it. That is what
# the last lessons taught. Now forty placements by chance. In communication they are what one expects.

# %%
rng = np.random.default_rng(0)
by_chance = [lab.evaluate(mixed, job, groups=rng.permutation(32).reshape(8, 4).tolist()) for _ in range(40)]
costs_s = [plan.cost.total_s for plan in by_chance]
print(f"40 random placements: {min(costs_s):.2f} to {max(costs_s):.2f} s of communication")

# %% [markdown]
# `plan.iteration_s` is the [simulated iteration](../docs/glossary.md#planning): the schedule played in virtual time,
# with computation, every message and synchronisation. It is what people wait for.

# %%
lab.guess(
    "seconds-by-chance",
    "How many of the 40 random placements take fewer seconds an iteration than the proven plan?",
    of=(by_chance, proven),
    unit="of 40",
    low=0,
    high=40,
)

# %%
lab.reveal("seconds-by-chance")
seconds = np.array([plan.iteration_s for plan in by_chance])
print(f"proven plan {proven.iteration_s:.2f} s an iteration, {np.sum(seconds < proven.iteration_s)} of 40 take less")
print(*np.sort(seconds).round(1))

# %% [markdown]
# <details><summary>After your guess</summary>
#
# A proof of the wrong number.
#
# </details>

# %% [markdown]
# And the seconds by chance come in two heaps with nothing between them, so there must be
# one reason for most of the difference.
#
# ## 2. What binds
#
# `lab.explain` of a plan by communication explains its communication cost; `lab.compare` says why two plans of
# different objectives take different seconds.

# %%
lab.guess(
    "seconds-what-binds",
    "What makes the proven plan slow?",
    choices=(
        "a slow link between two machines",
        "the averages of gradients in the largest group",
        "a slow GPU in the stage with the most work",
    ),
)

# %%
lab.reveal("seconds-what-binds")
lucky = min(by_chance, key=lambda plan: plan.iteration_s)
print(lab.compare(proven, lucky).text)

# %%
lab.reveal("seconds-what-binds")
work = proven.to_frame().drop_duplicates("stage").set_index("stage")[["blocks", "parameters", "flop"]]
work["million parameters"] = (work.pop("parameters") / 1e6).round(1)
work["TFLOP an iteration"] = (work.pop("flop") / 1e12).round(1)
work

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The last stage has three blocks like all others and the head on top of them, the product with the whole vocabulary.
# Stage 0 holds as many parameters, since the embedding is that large, but looking a word up costs no FLOP. In
# the proven plan one of its four devices is a T4, the slowest kind, and everybody waits for it. So here is a prediction
# that your machine can refute: the heaps differ in whether a T4 holds the last stage.
#
# </details>

# %%
has_t4 = np.array([any(name.startswith("t4") for name in plan.stages[-1]) for plan in by_chance])
for holds, heap in (("a T4 in the last stage", seconds[has_t4]), ("no T4 in the last stage", seconds[~has_t4])):
    print(f"{holds:24} {len(heap):2} placements, {heap.min():5.2f} to {heap.max():5.2f} s")
assert seconds[~has_t4].max() < seconds[has_t4].min()

# %% [markdown]
# The closed form cannot see it. No equation of it has a device's speed, and a path costs the same forwards and
# backwards: it does not know which end is the last stage. Here both are side by side, in communication.

# %%
lab.compare(proven, lucky).parts

# %% [markdown]
# ## 3. Overlap
#
# The closed form sends the activations of the whole mini-batch over the first hop, then over the second, and so on. A
# pipeline cuts the batch into micro-batches: while the second crosses the first hop, the first one crosses the second.
# A row of five devices that compute in no time shows the difference alone.

# %%
n_stages, n_microbatches = 5, 8
row = lab.Topology.from_matrices(
    latency_ms=np.zeros((n_stages, n_stages)),
    bandwidth_gbps=np.ones((n_stages, n_stages)),
    peak_flop_per_s=1e24,
    memory_bytes=1e15,
    name="row",
)


def row_plan(n_microbatches):
    row_job = lab.load_job(
        "llama-3-8b", n_stages=n_stages, n_replicas=1, global_batch=n_microbatches, microbatch=1, schedule="gpipe"
    )
    return lab.evaluate(row, row_job, stages=[[device] for device in range(n_stages)])


overlapping = row_plan(n_microbatches)

# %%
lab.guess(
    "seconds-overlap",
    f"{n_stages} stages, {n_microbatches} micro-batches, nothing but messages. The closed form says "
    f"{overlapping.cost.total_s:.1f} s. How long does the iteration take?",
    of=(overlapping,),
    unit="s",
    low=1,
    high=60,
)

# %%
lab.reveal("seconds-overlap")
print(f"communication cost {overlapping.cost.total_s:.1f} s, simulated iteration {overlapping.iteration_s:.1f} s")
lab.figures.gantt(lab.simulate(overlapping), messages=True)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Let one micro-batch take 1 over a hop. The last of $M$ leaves the first stage after $M$ and needs one more for each of
# the other $H - 1$ hops: $M + H - 1$ instead of $M H$. Backwards it is the same. So the closed form charges
#
# $$\frac{H M}{M + H - 1}$$
#
# times as much, which for many micro-batches is the number of hops. This is exact where computation takes no time,
# links are equal and latency is 0:
#
# </details>

# %%
for count in (1, 2, 8, 64):
    each, hops = row_plan(count), n_stages - 1
    ratio = each.cost.total_s / each.iteration_s
    print(f"{count:2} micro-batches: {ratio:.3f} times, by the formula {hops * count / (count + hops - 1):.3f}")
    assert np.isclose(ratio, hops * count / (count + hops - 1), rtol=1e-6)

# %% [markdown]
# A constant factor would not matter to a ranking. But it is the *sum* of the hops that turns into the *slowest* of
# them: with many micro-batches seven slow hops take hardly longer than one, and the closed form counts them all.
#
# ## 4. What else is not in it
#
# | not in the communication cost | what sees it |
# | --- | --- |
# | computation, unequal devices, the head | `plan.iteration_s`, `lab.simulate(plan)` |
# | micro-batches that overlap, the order of passes | the same; [Schedules](08_schedules.ipynb) |
# | one NIC for all links of a device | `lab.simulate(plan, queueing="nics")` |
# | memory | `lab.memory(plan).advice`; [Memory](09_memory.ipynb) |
# | devices that had better stay idle | `lab.explain(plan).worth()`; [Unequal devices](12_unequal_devices.ipynb) |
# | devices that leave and come | [Faults and churn](11_faults.ipynb), [Things change](17_things_change.ipynb) |
#
# The NIC, for one. Each device of *spot* talks to seven partners and two neighbours. With `nics`, its messages wait
# for each other:

# %%
spot_job = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=512, microbatch=1, schedule="1f1b")
spot = lab.plan("spot", spot_job, objective="communication", seed=0, steps=5)
for queueing in ("pairs", "nics"):
    print(f"{queueing}: {lab.simulate(spot, queueing=queueing).iteration_s:.2f} s")

# %% [markdown]
# ## 5. When does the ranking hold?
#
# A cost that ranks plans rightly is good enough to plan with. The rank correlation says how well it does: 1 where a
# dearer plan is always a slower one, 0 where the cost says nothing about the seconds. Thirty random placements on each
# of three networks:

# %%
for name, n_stages, n_replicas in (("islands", 4, 8), ("universities", 8, 8), ("mixed-gpus", 8, 4)):
    topology = lab.load_topology(name)
    cut = lab.load_job(
        "gpt3-xl", n_stages=n_stages, n_replicas=n_replicas, global_batch=256, microbatch=1, schedule="1f1b"
    )
    plans = [
        lab.evaluate(topology, cut, groups=rng.permutation(len(topology)).reshape(n_stages, n_replicas).tolist())
        for _ in range(30)
    ]
    ranks = [
        np.argsort(np.argsort(column)) for column in zip(*((p.cost.total_s, p.iteration_s) for p in plans), strict=True)
    ]
    kinds = {device.gpu for device in topology.devices}
    best = lab.plan(topology, cut, objective="communication", seed=0, steps=5)
    share = np.mean([best.iteration_s < plan.iteration_s for plan in plans])
    print(
        f"{name:12} rank correlation {np.corrcoef(ranks)[0, 1]:+.2f}, {len(kinds)} kinds of GPU; "
        f"the plan by communication is faster than {share:.0%} of them"
    )

# %% [markdown]
# On the two networks of like devices the correlation is far from 1, yet the plan by communication is faster than all
# thirty by chance: a good guide, on networks as those for which it was made. Where devices differ, it may say little.
#
# ## 6. Planning for seconds
#
# `objective="iteration"` makes the simulated iteration least. It chooses all that the job leaves open: stages and
# replicas, who stays idle, the blocks of each stage, the share of each pipeline, the order of passes. Memory is a hard
# limit. It is the default of every job with a model.

# %%
alike = {"global_batch": 512, "microbatch": 1, "tensor_parallel": 1, "sharding": "none"}
open_job = lab.load_job("gpt3-xl", **alike)  # names neither stages nor replicas
fastest = lab.plan(mixed, open_job, objective="iteration", seed=0, steps=10)

# %%
lab.guess(
    "seconds-faster",
    f"The proven plan takes {proven.iteration_s:.1f} s an iteration. How many times faster is a plan made for seconds?",
    of=(proven, fastest),
    unit="times",
    low=1,
    high=20,
)

# %%
lab.reveal("seconds-faster")
for each in (proven, lucky, fastest):
    print(f"{each.iteration_s:6.2f} s an iteration, communication cost {each.cost.total_s:.2f} s")
print(f"blocks of each stage: {fastest.blocks_per_stage}")
for stage, group in enumerate(fastest.stages):
    print(stage, {name.rsplit("-", 1)[0] for name in group})

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Every kind of GPU gets a stage, and as many blocks as it is fast: the cut was what the paper's equal stages could not
# change. Communication costs more than in the proven plan, and nobody waits for it. The reasons in words:
#
# </details>

# %%
print(lab.explain(fastest).text)

# %% [markdown]
# The bound of this objective is another one, too. `plan.gap` is about the communication cost in the plan's shape;
# `plan.iteration_lower_bound_s` is about seconds, and holds for *every* plan of the job: any shape, cut, devices and
# shares, by the schedules that the search chooses from ([objectives](../docs/how-a-plan-is-found.md)).

# %%
print(
    f"no plan takes less than {fastest.iteration_lower_bound_s:.2f} s: at most {fastest.speed_up_left:.2f} times faster"
)
assert all(plan.iteration_s >= fastest.iteration_lower_bound_s for plan in [proven, *by_chance])

# %% [markdown]
# Is the simulated iteration what a real machine takes? That is a prediction as well, and the one that [the real
# run](10_real_run.ipynb) puts to the test.
#
# > **Takeaway.** A proof is about the number that was minimised. The communication cost knows no computing, no
# > overlap and no unequal devices. Plan for seconds where devices differ.
#
# ## Missions

# %%
lab.missions.show("charged-too-much")

# %%
# answer = ...
# lab.missions.check("charged-too-much", answer)

# %%
lab.missions.show("proven-and-beaten")

# %%
# given = lab.missions.given("proven-and-beaten")
# answer = [proven, faster]
# lab.missions.check("proven-and-beaten", answer)

# %%
lab.missions.board("07_communication_or_seconds")
