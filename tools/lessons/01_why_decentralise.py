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
# # Why decentralise?
#
# **When do many slow cities train as fast, or as cheaply, as one data centre?**
#
# 45 minutes. Needs [Data, pipeline and both](03_data_and_pipeline.ipynb); words are in the
# [glossary](../docs/glossary.md).
#
# You will be able to:
#
# - Compute the dollars of a billion tokens from seconds, devices and prices.
# - Find the price and the batch at which slow cities cost as much as a data centre.
# - Say what the fastest and the cheapest plan do differently, and why.
# - Name what makes a slow network matter less, and what does not.

# %%
from functools import cache

import numpy as np
import pandas as pd
import plotly.express as px

import dtfm_lab as lab
from dtfm_lab.domain.network import HARDWARE

# %% [markdown]
# ## 1. Your numbers
#
# You compare two offers. **The hall** has GPUs in one room, on a data-centre network. **The cities** have more and
# cheaper GPUs: four in each of eight cities, joined by the internet. All numbers are in the next cell. Replace them
# by yours and run everything again. The explanations are about our numbers.

# %%
hall_gpus, hall_gpu, hall_gbps, hall_ms = 16, "A100", 100, 0.05
cities_gpu, gpus_in_a_city = "RTX 4090", 4
batch = 1024  # sequences of 2048 tokens in an iteration

hall_price, cities_price = (HARDWARE[gpu].price_per_hour for gpu in (hall_gpu, cities_gpu))  # dollars an hour
for gpu in (hall_gpu, cities_gpu):
    known = HARDWARE[gpu]
    flops, dollars = known.peak["fp16"] / 1e12, known.price_per_hour
    print(f"{gpu:9} {flops:4.0f} TFLOP/s, {dollars} dollars an hour: {known.price_source}")

# %% [markdown]
# The links between cities come from the paper's world-wide case: eight AWS regions in its [public
# code](https://github.com/DS3Lab/DT-FM).

# %%
n = hall_gpus
# Two n x n matrices: latency and bandwidth of each pair. In the hall, all pairs are the same.
hall = lab.Topology.from_matrices(
    np.full((n, n), hall_ms),
    np.full((n, n), hall_gbps),
    regions=["hall"] * n,
    gpu=hall_gpu,
    price_per_hour=hall_price,
    name="hall",
)
world = lab.load_topology("worldwide")
# Four devices of each city with their links, then the same links with our GPUs.
some = world.subset(f"{city}-{i}" for city in world.regions for i in range(gpus_in_a_city))
cities = lab.Topology.from_matrices(
    *some.to_matrices(),
    regions=[device.region for device in some.devices],
    gpu=cities_gpu,
    price_per_hour=cities_price,
    name="cities",
)
gbps = cities.to_matrices()[1]
# One row of the bandwidth matrix: from Oregon to four other cities.
between = gbps.loc["Oregon-0", ["Virginia-0", "Tokyo-0", "London-0", "Frankfurt-0"]]
print(f"hall:   {len(hall)} GPUs, {hall_gbps} Gbit/s between any two")
print(f"cities: {len(cities)} GPUs, from Oregon to four others {between.tolist()} Gbit/s")
print(f"        that is {hall_gbps / between.max():.0f} to {hall_gbps / between.min():.0f} times less")
lab.figures.network_map(cities)

# %% [markdown]
# ## 2. Seconds
#
# The job is GPT3-XL, with 1.3 billion parameters. `lab.plan` searches for the plan with the shortest iteration: which
# device holds which layers, and how replicas share the batch. Later lessons explain how.
#
# Before you guess: the network between the cities is more than 100 times slower. Each of their GPUs computes half as
# fast as one in the hall, but there are twice as many.


# %%
@cache
def planned(network, **options):
    """The best plan of a short search for GPT3-XL; `global_batch` and objectives as options."""
    size = options.pop("global_batch", batch)
    job = lab.load_job("gpt3-xl", global_batch=size, microbatch=1, tensor_parallel=1, sharding="none")
    return lab.plan(network, job, **{"seed": 0, "steps": 1, **options})


lab.guess(
    "why-times-slower",
    "How many times as long as in the hall does an iteration take in the cities?",
    of=(planned, hall, cities),
    unit="times",
    low=1,
    high=200,
)

# %%
lab.reveal("why-times-slower")
in_hall, in_cities = planned(hall, steps=10), planned(cities, steps=10)
for name, plan in (("hall", in_hall), ("cities", in_cities)):
    job = plan.job
    print(
        f"{name:6} {plan.iteration_s:6.2f} s in {job.n_stages} stages x {job.n_replicas} replicas, "
        f"{len(plan.idle_devices)} GPUs idle; no plan is faster than {plan.iteration_lower_bound_s:.2f} s"
    )
print(f"cities / hall: {in_cities.iteration_s / in_hall.iteration_s:.2f}")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The network is more than 100 times slower, but the iteration takes only 1.8 times as long. The planner keeps each
# pipeline in one city, where links are fastest. Only gradients cross between cities, once an iteration, and they take
# nearly 4 of the 13 s. The planner leaves 12 GPUs idle: they would add more communication time than they save. You
# need not pay for [idle devices](../docs/glossary.md#planning).
#
# The paper found its world-wide case 1.7 to 3.5 times slower than Megatron in a data centre ([Yuan et al.,
# 2022](https://arxiv.org/abs/2206.01288)). Both had 64 equal GPUs, and the data centre's network was 100 times as
# fast.
#
# </details>
#
# ## 3. Dollars
#
# If you pay by the hour, a billion tokens cost
#
# $$\text{dollars} = \frac{10^9}{\text{tokens in an iteration}} \cdot \frac{\text{seconds}}{3600} \cdot
# \text{devices} \cdot \text{price an hour}$$
#
# `plan.price_per_billion_tokens` is this number.

# %%
for name, plan in (("hall", in_hall), ("cities", in_cities)):
    # The formula above. The assertion checks that the library computes the same.
    by_hand = 1e9 / plan.job.tokens * plan.iteration_s / 3600 * plan.price_per_hour
    assert np.isclose(by_hand, plan.price_per_billion_tokens)
    print(f"{name:6} {plan.price_per_hour:6.2f} dollars an hour, {by_hand:6.2f} dollars a billion tokens")

# %% [markdown]
# The hall is faster, and the cities are cheaper. Now solve the formula for the price. At which hourly price does a
# GPU of the cities cost as much per token as the hall?

# %%
n_serving = in_cities.job.n_stages * in_cities.job.n_replicas
break_even = in_hall.price_per_hour * in_hall.iteration_s / (n_serving * in_cities.iteration_s)
print(f"the cities are cheaper below {break_even:.2f} dollars an hour and GPU; they ask {cities_price}")

# %% [markdown]
# ## 4. The cheapest plan
#
# `objective="price"` searches for the fewest dollars per token, however long an iteration takes.

# %%
lab.guess(
    "why-gpus-of-cheapest",
    "In the cities' plan of fewest dollars for a token, how many GPUs serve?",
    of=(planned, cities),
    unit="GPUs",
    low=1,
    high=32,
)

# %%
lab.reveal("why-gpus-of-cheapest")
cheapest = planned(cities, objective="price")
rows = {"cities, fastest": in_cities, "cities, cheapest": cheapest, "hall, fastest": in_hall}
# One row per plan, one column per number.
table = pd.DataFrame(
    {
        "GPUs": [plan.placement.devices.size for plan in rows.values()],
        "seconds": [plan.iteration_s for plan in rows.values()],
        "dollars a billion tokens": [plan.price_per_billion_tokens for plan in rows.values()],
        "days for 10 billion tokens": [1e10 / p.job.tokens * p.iteration_s / 86400 for p in rows.values()],
    },
    index=rows,
)
table.round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# A GPU that works alone waits for no other. Each further GPU saves time, but adds waiting, which you pay for. **Per
# token, the cheapest plan uses the fewest devices that hold the model without recomputing activations.** This is true
# while all GPUs cost the same per FLOP. With 1 GiB less memory, one GPU would have to recompute, and two would be
# cheaper. The cities are cheaper than the hall because their GPUs cost less per FLOP, not because they have more.
#
# You need more GPUs if the model does not fit, or if you cannot wait. Then ask for the cheapest plan *within a time*:
# `lab.plan(..., objective="price", max_iteration_s=...)`. `lab.frontier` returns the whole curve of seconds against
# dollars ([objectives](../docs/how-a-plan-is-found.md)).
#
# </details>
#
# ## 5. What makes the network matter less?
#
# A faster network does. So does more work for each byte. Gradients are averaged once an iteration, however many
# sequences the batch has.

# %%
lab.guess(
    "why-larger-batch",
    "The hall takes four times as long for a batch four times as large, nearly. By how many times does the cities' "
    "iteration grow?",
    of=(planned, cities, batch),
    unit="times",
    low=1,
    high=8,
)

# %%
lab.reveal("why-larger-batch")
rows = []
for size in (batch // 4, batch, 4 * batch):
    for name, network in (("hall", hall), ("cities", cities)):
        plan = planned(network, global_batch=size)
        used = plan.placement.devices.size
        rows.append([size, name, used, plan.iteration_s, plan.price_per_billion_tokens])
columns = ["batch", "where", "GPUs", "seconds", "dollars a billion tokens"]
# pivot makes one row per batch. Each column has a pair of names, such as ("seconds", "hall").
batches = pd.DataFrame(rows, columns=columns).pivot(index="batch", columns="where")
batches["cities / hall", ""] = batches["seconds"]["cities"] / batches["seconds"]["hall"]
batches.round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The ratio of cities to hall falls from 4.5 to 1.1. In the largest batch, the planner also uses all 32 GPUs. But a
# larger batch has a cost: from some size on, another sequence teaches the model less ([McCandlish et al.,
# 2018](https://arxiv.org/abs/1812.06162)). Other changes send fewer bytes or average less often. `lab.with_job` tries
# them on the same placement:
#
# </details>

# %%
choices = {
    "as it is": {},
    "messages in int8": {"compression": "int8"},
    "average every 8th iteration": {"synchronise_every": 8},
    "both": {"compression": "int8", "synchronise_every": 8},
}
for name, changed in choices.items():
    print(f"{name:28} {lab.with_job(in_cities, **changed).iteration_s:6.2f} s")
# The same placement on a network with no latency and a million times the bandwidth.
free = lab.evaluate(cities.scaled(latency=0, bandwidth=1e6), in_cities.job, rank_map=in_cities.rank_map)
print(f"{'a network that costs nothing':28} {free.iteration_s:6.2f} s")

# %% [markdown]
# The last line assumes that every message is free. What remains is computing, and the waiting while a pipeline fills
# and drains. On this placement, no compression gets below it. [Lesson 13](13_compression_and_local_updates.ipynb)
# shows what the others do to the loss.
#
# ## 6. How much network would be enough?
#
# The next cell keeps the placement, and scales the bandwidth from a tenth to 100 times. Does the curve reach the
# hall's line?

# %%
factors = [0.1, 0.3, 1, 3, 10, 30, 100]
# One row per factor: the bandwidth of all links is multiplied by it.
sweep = lab.sweep(in_cities, bandwidth=factors)
sweep["dollars a billion tokens"] = 1000 * sweep.price_per_million_tokens
figure = px.line(sweep, x="bandwidth", y="iteration_s", log_x=True, markers=True, title="Seconds in the cities")
figure.update_layout(
    xaxis_title="bandwidth, times today's", yaxis_title="seconds an iteration", yaxis_rangemode="tozero"
)
figure.add_hline(in_hall.iteration_s, line_dash="dash", annotation_text="the hall", annotation_position="bottom right")
figure

# %% [markdown]
# It does not: the curve flattens above the line. Then fewer FLOP/s, latency and a filling pipeline limit the cities.
# A faster network would need another placement. `lab.strategies` computes which bandwidth suits which *training
# system* ([lesson 15](15_codesign.ipynb)).
#
# **The cities win** if you have the GPUs already, or if they are much cheaper. The batch must compute longer than it
# sends, and the plan must know the network. **They lose** if the batch is small, or if every layer of every
# micro-batch crosses the slow links ([ZeRO-3 on the internet](../docs/compare-systems.md)). If the model fits one
# machine and time does not matter, one is enough.
#
# > **Takeaway.** A slow network costs time, not training quality. Larger batches, smaller messages and a plan that
# > knows the network make it matter less. Per token, the cheapest plan is the smallest one that fits without
# > recomputation.
#
# ## Missions

# %%
lab.missions.show("break-even-price")

# %%
# answer = ...
# lab.missions.check("break-even-price", answer)

# %% [markdown]
# The last mission is open: many plans win it.

# %%
lab.missions.show("cities-win")

# %%
# given = lab.missions.given("cities-win")
# answer = [lab.plan(given.cities, ...), ...]
# lab.missions.check("cities-win", answer)

# %% [markdown]
# Next: [Schedules](08_schedules.ipynb): in which order should stages work?

# %%
lab.missions.board("01_why_decentralise")
