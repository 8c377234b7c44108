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
# # The five steps
#
# **How does a network become a plan?**
#
# You will be able to:
#
# - Take a network through the five steps to a plan.
# - Find the bottleneck matching of two groups, by hand and by code.
# - Find the order of the stages as a path, and say why it is open.
# - Say which links of a network a plan pays for.
#
# 30 minutes. It builds on [The cost model](04_cost_model.ipynb). Words: [coarsened
# graph](../docs/glossary.md#planning), [pipeline, stage, group](../docs/glossary.md#training-in-parallel).

# %%
from itertools import pairwise, permutations
from math import factorial

import numpy as np
from scipy.optimize import linear_sum_assignment

import dtfm_lab as lab

# %% [markdown]
# ## 1. All five at once
#
# *Decentralized Training of Foundation Models in Heterogeneous Environments* (Yuan et al., NeurIPS 2022, [arXiv
# 2206.01288](https://arxiv.org/abs/2206.01288)) turns a network into a plan in steps:
#
# - (a) the **communication graph**: devices, and the seconds between any two,
# - (b) **groups** of equal size, one for each stage,
# - (c) the **coarsened graph**: every group becomes one node,
# - (d) its **weights**: the seconds of the best pairing of two groups,
# - (e) the **path** through all nodes: the order of the stages.
#
# Here are the steps for three devices in each of eight cities, in six stages of four replicas.

# %%
world = lab.load_topology("worldwide")
few = world.subset(i for i in range(64) if i % 8 < 3)
sizes = lab.load_job("dtfm-gpt3-xl")  # gradient and activations as in the paper's public code
job = lab.Job.from_bytes(6, 4, gradient_bytes=sizes.gradient_bytes, activation_bytes=sizes.hop_bytes)
plan = lab.plan(few, job, seed=0, steps=10)
lab.figures.network(few, plan)  # (a) the devices and their links, (b) in the colours of their groups

# %%
lab.figures.coarse_graph(plan)  # (c) the groups as nodes, (d) the seconds between them, (e) the thick path

# %% [markdown]
# This is the same plan on the map. In `lab.Lab`, the inspector highlights one pipeline or one group.

# %%
lab.figures.plan_map(plan)

# %% [markdown]
# ## 2. Steps (a) and (b): only one of them is a search
#
# The communication graph is given. The groups are not: you can divide 24 devices into six groups of four in many
# ways.

# %%
lab.guess(
    "five-steps-groupings",
    "In how many ways can 24 devices be cut into six groups of four? (The order of the groups does not count.)",
    unit="ways",
    low=1e3,
    high=1e18,
)

# %%
lab.reveal("five-steps-groupings")
for n_stages, n_replicas in ((2, 2), (3, 2), (6, 4), (8, 8)):
    n = n_stages * n_replicas
    ways = factorial(n) / (factorial(n_replicas) ** n_stages * factorial(n_stages))
    print(f"{n:2} devices, {n_stages} x {n_replicas}: {ways:.3g} ways")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# At a million a second, the ways of 24 devices alone take 52 days. For one grouping, steps (c) to (e) are exact and
# quick. So a search chooses only the groups, and the rest follows from them. The next cells compute that rest.
#
# </details>

# %%
hop_s = few.round_trip_s(job.hop_bytes)  # (24, 24) seconds of each pair as neighbours in a pipeline, both ways
groups = plan.placement.devices  # (6, 4) device indices
for stage, names in enumerate(plan.stages):
    print(stage, ", ".join(names))

# %% [markdown]
# ## 3. Steps (c) and (d): a weight is a bottleneck matching
#
# The weight of an edge is the slowest pair of the best pairing, the [bottleneck
# matching](../docs/glossary.md#planning). For stages 2 and 3, the slowest pair is orange:

# %%
lab.figures.matching(plan, 2)

# %% [markdown]
# The Hungarian method (Kuhn 1955) finds the pairing with the smallest *sum*: `linear_sum_assignment` in scipy. But
# the pairs send at the same time, so the stages wait for the slowest pair, not for the sum. In this table of seconds,
# the two differ:

# %%
table = np.array(
    [
        [1, 8, 9],
        [7, 2, 9],
        [9, 6, 10],
    ]
)
rows, columns = linear_sum_assignment(table)
print(
    f"least sum: pairs of {table[rows, columns]}, sum {table[rows, columns].sum()}, "
    f"slowest {table[rows, columns].max()}"
)

# %%
lab.guess(
    "five-steps-bottleneck",
    f"The table is {table.tolist()}. The pairing of least sum has a slowest pair of "
    f"{table[rows, columns].max()} s. What is the slowest pair of the best pairing?",
    of=(table,),
    unit="s",
    low=1,
    high=10,
)

# %%
lab.reveal("five-steps-bottleneck")
# to[row] is the column that a row is paired with. The key is the slowest pair.
best = min(permutations(range(3)), key=lambda to: max(table[row, to[row]] for row in range(3)))
pairs = table[range(3), best]
print(f"bottleneck matching: pairs of {pairs}, sum {pairs.sum()}, slowest {pairs.max()}")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# A quick way asks another question: *do the pairs of at most t seconds contain a pairing?* If they do, so do those
# for every larger t. So the next cell tries the numbers of the table, smallest first. A large table needs binary
# search.
#
# </details>


# %%
def can_be_paired(allowed):
    """Whether a pairing exists that uses only True entries."""
    forbidden = (~allowed).astype(float)
    return forbidden[linear_sum_assignment(forbidden)].sum() == 0


def bottleneck_s(table):
    return next(t for t in np.unique(table) if can_be_paired(table <= t))


weights = np.zeros((6, 6))
for one in range(6):
    for other in range(one):
        # The rows of one group and the columns of the other.
        table = hop_s[np.ix_(groups[one], groups[other])]
        weights[one, other] = weights[other, one] = bottleneck_s(table)
print(weights.round(1))
assert np.allclose(weights, plan.cost.weights_s)

# %% [markdown]
# ## 4. Step (e): a path, not a tour
#
# The order of the stages is a path that visits each group once: an open travelling salesman's path. Its ends are not
# joined, since this cost sends nothing from the last stage to the first.
#
# The weights above have only two values, because stages 0 to 2 hold the same four cities, and stages 3 to 5 the other
# four.

# %%
# The sum of weights along each of the 720 orders.
path_s = {order: sum(weights[a, b] for a, b in pairwise(order)) for order in permutations(range(6))}
cheapest = min(path_s, key=path_s.get)
print(
    f"{len(path_s)} orders, {min(path_s.values()):.2f} to {max(path_s.values()):.2f} s; "
    f"the plan's {plan.cost.pipeline_s:.2f} s"
)
assert np.isclose(path_s[cheapest], plan.cost.pipeline_s)

# %%
lab.guess(
    "five-steps-edges",
    "The coarsened graph of these six groups has 15 edges. How many of them does the plan pay for?",
    of=(plan,),
    unit="edges",
    low=1,
    high=15,
)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The path pays for five of the fifteen edges, the thick ones of the coarsened graph above. Of each edge, only the
# slowest pair counts. So a plan pays for few links, but all links decide which.
#
# 8 groups have 40,320 orders, and 14 have some 87 billion. Up to 14 groups, the library uses the dynamic programme of
# Held and Karp (1962), and beyond that, local search.
#
# </details>
#
# ## 5. When the order matters
#
# If every city is a stage, the order of the stages is an order of cities. Compare it with the map.

# %%
cities = [[device.name for device in few.devices if device.region == city] for city in few.regions]
city_is_stage = lab.evaluate(few, job, groups=cities)
city_is_pipeline = lab.evaluate(few, job, groups=list(zip(*cities, strict=True)))


def spread(plan):
    """Dearest over cheapest order of the stages."""
    w = plan.cost.weights_s
    orders = permutations(range(len(w)))
    costs = [sum(w[a, b] for a, b in pairwise(order)) for order in orders]
    return max(costs) / min(costs)


print(" - ".join(group[0].rsplit("-", 1)[0] for group in city_is_stage.stages))
for name, each in {"city is stage": city_is_stage, "city is pipeline": city_is_pipeline, "the plan": plan}.items():
    print(f"{name:17} dearest order / cheapest order = {spread(each):.2f}")

# %% [markdown]
# (The first two placements have the shapes 8 x 3 and 3 x 8.) If every city is a pipeline, all groups are equal, and
# so are all orders. A search that changes only the order of such a plan finds nothing. It has to change the groups.
#
# ## 6. A law to refute
#
# *No other order and no other pairing of the same groups is cheaper.* Here 10,000 random orders and pairings try to
# refute it:

# %%
rng = np.random.default_rng(0)
cheapest_s = np.inf
for _ in range(10_000):
    shuffled = rng.permuted(
        groups[rng.permutation(6)], axis=1
    )  # stages in any order, each group's members in any order
    cheapest_s = min(cheapest_s, hop_s[shuffled[:-1], shuffled[1:]].max(axis=1).sum())
print(f"the cheapest of 10,000 takes {cheapest_s:.2f} s over its hops, the plan {plan.cost.pipeline_s:.2f} s")
assert cheapest_s >= plan.cost.pipeline_s - 1e-9

# %% [markdown]
# What is left is step (b), the groups: [Searching](06_searching.ipynb).
#
# > **Takeaway.** A planner searches only for the groups. The pairings and the order of stages follow from them
# > exactly. A plan pays for few links: the slowest pair of each hop, and the links of the slowest group.
#
# ## Missions

# %%
lab.missions.show("pair-by-hand")

# %%
# answer = ["emma", "finn", "gita", "hugo"]
# lab.missions.check("pair-by-hand", answer)

# %%
lab.missions.show("order-of-stages")

# %%
# answer = list("ABCDEF")
# lab.missions.check("order-of-stages", answer)

# %%
lab.missions.board("05_five_steps")
