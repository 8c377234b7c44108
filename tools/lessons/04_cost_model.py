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
# # The cost model
#
# **What does a placement cost, by hand and by code?**
#
# You will be able to:
#
# - Compute the cost of a placement of four devices on paper, from latencies and bandwidths.
# - Say which device and which pair all others wait for.
# - Write equations 1 to 4 as a function and check it against the library.
# - Tell from two message sizes whether groups or pipelines should stay inside a city.
#
# 70 minutes. It builds on [Data, pipeline and both](03_data_and_pipeline.ipynb). Words: [placement and
# plan](../docs/glossary.md#the-nouns), [group, pipeline, hop](../docs/glossary.md#training-in-parallel),
# [communication cost](../docs/glossary.md#planning).

# %%
from itertools import pairwise, permutations

import numpy as np

import dtfm_lab as lab

# %% [markdown]
# ## 1. Four devices in two rooms
#
# Ada and ben are in one room, cleo and dan in another. Inside a room, a message has no latency and travels at 1000
# MB/s. Between the rooms, the latency is 0.1 s, and bandwidths are 50 to 200 MB/s. Both directions of a link are
# equal. The numbers are round, so a pencil is enough.

# %%
names = ["ada", "ben", "cleo", "dan"]
latency_s = np.array(
    [
        [0.0, 0.0, 0.1, 0.1],
        [0.0, 0.0, 0.1, 0.1],
        [0.1, 0.1, 0.0, 0.0],
        [0.1, 0.1, 0.0, 0.0],
    ]
)
megabytes_per_s = np.array(
    [
        [1000, 1000, 50, 100],
        [1000, 1000, 100, 200],
        [50, 100, 1000, 1000],
        [100, 200, 1000, 1000],
    ]
)
network = lab.Topology.from_matrices(
    latency_s=latency_s, bandwidth_bytes_per_s=megabytes_per_s * 1e6, names=names, name="two rooms"
)
lab.figures.link_matrix(network)

# %% [markdown]
# The model has two stages, and a group of two devices holds each stage. The cost model needs only two sizes. The
# gradient of one stage has 400 MB. In an iteration, one pipeline sends 100 MB of activations over a stage boundary.

# %%
job = lab.Job.from_bytes(n_stages=2, n_replicas=2, gradient_bytes=400e6, activation_bytes=100e6)

# %% [markdown]
# ## 2. By hand
#
# The DT-FM paper ([Yuan et al. 2022](https://arxiv.org/abs/2206.01288)) defines the *communication cost* of a placement
# in four equations.
#
# **Equation 2, a group.** Each of its $D$ devices owns one $D$-th of the gradient, a *shard*. It collects that shard
# from all others and sends the average back, one partner after the other. The group waits for its slowest member:
#
# $$\text{DataP}(C) = \max_{d \in C} \sum_{d' \in C \setminus d}
# 2 \left(\alpha_{dd'} + \frac{c_{dp}}{D\,\beta_{dd'}}\right)$$
#
# $\alpha$ is a latency, $\beta$ a bandwidth, $c_{dp}$ the gradient. The 2 means there and back. For ada and ben the
# shard has 400 / 2 = 200 MB, and 2 (0 + 200 / 1000) = **0.4 s**. Cleo and dan take the same.
#
# **Equation 3, a hop.** A *hop* joins two neighbouring stages. It pairs their devices, one pair for each pipeline.
# The pairs send at the same time, so a pairing takes as long as its slowest pair. The best pairing has the fastest
# slowest pair:
#
# $$w(C, C') = \min_{\text{pairings}}\; \max_{\text{pairs}}\; 2\left(\alpha_{dd'} + \frac{c_{pp}}{\beta_{dd'}}\right)$$
#
# $c_{pp}$ is the activations of one pipeline over one boundary in an iteration. The 2 counts the activations and their
# gradients back, which are as large.
#
# Here are two pairings. Ada with cleo takes 2 (0.1 + 100 / 50) = 4.2 s, and ben with dan 2 (0.1 + 100 / 200) = 1.2 s.
# The slower pair counts: 4.2 s. Ada with dan takes 2 (0.1 + 100 / 100) = 2.2 s, and ben with cleo the same: **2.2 s**,
# the best.
#
# **Equation 4, the path.** The groups take the order with the smallest sum of hops. With two stages there is one hop.
# **Equation 1** adds the slowest group and the path. Only the slowest group counts, since all groups synchronise at
# once. The cost is 0.4 + 2.2 = **2.6 s**.

# %%
rooms_are_stages = lab.evaluate(network, job, groups=[["ada", "ben"], ["cleo", "dan"]])
print("groups", rooms_are_stages.cost.group_s, "hops", rooms_are_stages.cost.hop_s)
print(f"cost   {rooms_are_stages.cost.total_s:.1f} s, pipelines {rooms_are_stages.pipelines}")
assert np.isclose(rooms_are_stages.cost.total_s, 2.6)

# %% [markdown]
# Now the link between ada and dan is damaged: 1 MB/s instead of 100. Answer both questions.

# %%
damaged = megabytes_per_s.copy()
damaged[0, 3] = damaged[3, 0] = 1


def cost_on(megabytes, groups=(("ada", "ben"), ("cleo", "dan"))):
    changed = lab.Topology.from_matrices(latency_s=latency_s, bandwidth_bytes_per_s=megabytes * 1e6, names=names)
    return lab.evaluate(changed, job, groups=groups).cost.total_s


lab.guess(
    "cost-model-damaged-link",
    "One of the two links that the stages use is a hundred times slower now. What does it cost instead of 2.6 s?",
    of=(cost_on, damaged),
    unit="s",
    low=2.6,
    high=260,
)

# %%
lab.guess(
    "cost-model-which-pair",
    "Which link binds now: of which pair would twice the bandwidth help most?",
    of=(cost_on, damaged, names),
    choices=("ada and cleo", "ada and dan", "ben and cleo", "ben and dan"),
)

# %%
lab.reveal("cost-model-damaged-link", "cost-model-which-pair")
print(f"{cost_on(damaged):.1f} s")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The pairing is a choice, so a bad link costs no more than the next best pairing. Ada now pairs with cleo. The
# [bottleneck](../docs/glossary.md#planning) has moved to their link.
#
# </details>
#
# ## 3. All three ways
#
# Four devices form two groups of two in three ways. Try the other two on paper before you run the cell.

# %%
ways = {
    "rooms are stages": [["ada", "ben"], ["cleo", "dan"]],
    "rooms are pipelines": [["ada", "cleo"], ["ben", "dan"]],
    "crosswise": [["ada", "dan"], ["ben", "cleo"]],
}
for way, groups in ways.items():
    cost = lab.evaluate(network, job, groups=groups).cost
    print(f"{way:20} synchronisation {cost.data_parallel_s:.1f} s + hop {cost.pipeline_s:.1f} s = {cost.total_s:.1f} s")

# %% [markdown]
# Something has to cross between the rooms. If a stage is in both, shards of gradients cross. If a pipeline is in
# both, activations cross. Here activations are smaller than shards, 100 against 200 MB, so activations should cross.
#
# ## 4. By code
#
# Here are the same equations in plain Python. They need two tables with the seconds of each pair: for a shard there
# and back, and for activations there and their gradients back. Here the library makes these tables. In a mission
# below, you make them from latencies and bandwidths.


# %%
def group_s(shard_s, group):
    """Equation 2."""
    return max(sum(shard_s[i, j] for j in group if j != i) for i in group)


def weight_s(hop_s, one, other):
    """Equation 3, by trying all pairings."""
    return min(max(hop_s[i, j] for i, j in zip(one, partners, strict=True)) for partners in permutations(other))


def path_s(hop_s, groups):
    """Equation 4, by trying all orders."""
    return min(sum(weight_s(hop_s, a, b) for a, b in pairwise(order)) for order in permutations(groups))


def total_s(network, job, groups):
    """Equation 1."""
    shard_s = network.round_trip_s(job.gradient_bytes / job.n_replicas)
    hop_s = network.round_trip_s(job.hop_bytes)
    return max(group_s(shard_s, group) for group in groups) + path_s(hop_s, groups)


print(f"{total_s(network, job, [[0, 1], [2, 3]]):.1f} s")

# %% [markdown]
# A function that is right on one example may be wrong on the next. So the next cell compares it with the library on
# 100 random networks of six devices. No two links are equal, nor are the two directions of a link. (There and back
# uses both directions, so a pair costs their sum. Doubling the faster direction hardly helps.)

# %%
rng = np.random.default_rng(0)
worst = 0.0
for _ in range(100):
    latency, bandwidth = rng.uniform(0, 0.2, (6, 6)), 10 ** rng.uniform(6, 9, (6, 6))
    groups = rng.permutation(6).reshape(3, 2).tolist()
    gradient, hop = rng.uniform(1e8, 1e9, 2)
    random_network = lab.Topology.from_matrices(latency_s=latency, bandwidth_bytes_per_s=bandwidth)
    random_job = lab.Job.from_bytes(3, 2, gradient_bytes=gradient, activation_bytes=hop)
    library_s = lab.evaluate(random_network, random_job, groups=groups).cost.total_s
    worst = max(worst, abs(total_s(random_network, random_job, groups) / library_s - 1))
print(f"largest relative difference: {worst:.1e}")
assert worst < 1e-9

# %% [markdown]
# You cannot try all pairings of large groups. Two groups of eight devices have 8! = 40,320 pairings, and eight groups
# have 28 pairs of groups. The library's way is quick and exact. [The next lesson](05_five_steps.ipynb) explains it.
#
# ## 5. Sixty-four devices in eight cities
#
# The paper's world-wide case has eight GPUs in each of eight cities, and a job with eight stages of eight replicas.
# You can write down two placements without a search: every city a stage, or every city a pipeline.

# %%
world = lab.load_topology("worldwide")
known = lab.load_job("dtfm-gpt3-xl")  # only its two sizes are used here
paper = lab.Job.from_bytes(8, 8, gradient_bytes=known.gradient_bytes, activation_bytes=known.hop_bytes)
cities = [[device.name for device in world.devices if device.region == city] for city in world.regions]
city_is_stage = lab.evaluate(world, paper, groups=cities)
# zip puts one device of each city into each group.
city_is_pipeline = lab.evaluate(world, paper, groups=list(zip(*cities, strict=True)))
print(f"gradient of a stage {paper.gradient_bytes / 1e6:.0f} MB, so a shard has {paper.gradient_bytes / 8e6:.0f} MB")
print(f"activations of a pipeline over a boundary {paper.hop_bytes / 1e6:.0f} MB")

# %% [markdown]
# A shard is about six times smaller than the activations. It is tempting to make every city a pipeline, so that
# shards cross between cities, and to expect the other way to cost six times as much.

# %%
lab.guess(
    "cost-model-cities",
    "How many times as much does 'every city a stage' cost as 'every city a pipeline'?",
    of=(city_is_stage, city_is_pipeline),
    unit="times",
    low=0.1,
    high=20,
)

# %%
lab.reveal("cost-model-cities")
for way, plan in {"city is stage": city_is_stage, "city is pipeline": city_is_pipeline}.items():
    print(f"{way:17} {plan.cost.data_parallel_s:5.1f} + {plan.cost.pipeline_s:5.1f} = {plan.cost.total_s:5.1f} s")
print(f"ratio {city_is_stage.cost.total_s / city_is_pipeline.cost.total_s:.2f}")
lab.figures.cost_breakdown(city_is_stage, city_is_pipeline)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# It is far from six times, for three reasons in the equations. First, a device sends its small shard seven times, to
# each partner in its group. Second, the partners are in all cities, far ones too, while a path chooses seven short
# hops. Third, messages inside a city also take time: 3.8 s for each hop.
#
# </details>
#
# ## 6. When do they change places?
#
# The cost of given groups is a straight line in the gradient's size, while the same group stays the slowest. The next
# cell computes where the two lines cross.

# %%
sizes = np.array([0.65e9, 5e9])
# Two gradient sizes give two points of each line. The lines cross where their difference is 0.
heavier = [lab.Job.from_bytes(8, 8, gradient_bytes=size, activation_bytes=paper.hop_bytes) for size in sizes]
stage_s = [lab.evaluate(world, each, groups=cities).cost.total_s for each in heavier]
pipeline_s = [lab.evaluate(world, each, groups=list(zip(*cities, strict=True))).cost.total_s for each in heavier]
difference = np.array(stage_s) - np.array(pipeline_s)
crossing = sizes[0] + difference[0] / (difference[0] - difference[1]) * (sizes[1] - sizes[0])
there = lab.Job.from_bytes(8, 8, gradient_bytes=crossing, activation_bytes=paper.hop_bytes)
best_there = lab.plan(world, there, seed=0, steps=20)
by_hand_s = lab.evaluate(world, there, groups=cities).cost.total_s
print(f"at a gradient of {crossing / 1e6:.0f} MB, where each costs {by_hand_s:.1f} s")

# %%
lab.guess(
    "cost-model-between",
    f"At {crossing / 1e6:.0f} MB both cost {by_hand_s:.1f} s. What does the best placement that a search finds cost?",
    of=(best_there,),
    unit="s",
    low=30,
    high=65,
)

# %%
lab.reveal("cost-model-between")
print(f"by hand {by_hand_s:.1f} s, found {best_there.cost.total_s:.1f} s, none below {best_there.lower_bound_s:.1f} s")
for stage, group in enumerate(best_there.stages):
    print(stage, sorted({name.rsplit("-", 1)[0] for name in group}))

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Between the two pure ways are mixed ones. Here each pair of cities holds two stages. There are too many ways to
# write down, so you need [searching](06_searching.ipynb).
#
# This cost leaves out computation, and messages that travel while devices compute. Read on: [Communication or
# seconds](07_communication_or_seconds.ipynb).
#
# </details>
#
# > **Takeaway.** The communication cost is the slowest group's averaging plus the cheapest path through the stages. A
# > group costs its slowest member, and a hop its slowest pair. Doubling another link saves nothing unless it makes a
# > better pairing or order possible.
#
# ## Missions

# %%
lab.missions.show("four-by-hand")

# %%
# answer = ...
# lab.missions.check("four-by-hand", answer)

# %%
lab.missions.show("own-cost")

# %%
# def cost_seconds(latency_s, bandwidth, groups, gradient_bytes, hop_bytes): ...
# lab.missions.check("own-cost", cost_seconds)

# %%
lab.missions.show("change-of-places")

# %%
# given = lab.missions.given("change-of-places")
# answer = ...
# lab.missions.check("change-of-places", answer)

# %%
lab.missions.board("04_cost_model")
