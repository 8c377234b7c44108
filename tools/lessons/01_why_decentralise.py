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
# Two offers. **The hall**: some GPUs in one room, on a network made for this. **The cities**: more GPUs, cheaper
# ones, four in each of eight cities, joined by the internet. Replace the numbers by yours, now or later, and run
# everything again; all that follows is computed from this cell.

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
# The links between cities are those of the paper's world-wide case, eight AWS regions as its [public
# code](https://github.com/DS3Lab/DT-FM) has them.

# %%
n = hall_gpus
hall = lab.Topology.from_matrices(
    np.full((n, n), hall_ms),
    np.full((n, n), hall_gbps),
    regions=["hall"] * n,
    gpu=hall_gpu,
    price_per_hour=hall_price,
    name="hall",
)
world = lab.load_topology("worldwide")
some = world.subset(f"{city}-{i}" for city in world.regions for i in range(gpus_in_a_city))
cities = lab.Topology.from_matrices(
    *some.to_matrices(),
    regions=[device.region for device in some.devices],
    gpu=cities_gpu,
    price_per_hour=cities_price,
    name="cities",
)
gbps = cities.to_matrices()[1]
between = gbps.loc["Oregon-0", ["Virginia-0", "Tokyo-0", "London-0", "Frankfurt-0"]]
print(f"hall:   {len(hall)} GPUs, {hall_gbps} Gbit/s between any two")
print(f"cities: {len(cities)} GPUs, from Oregon to four others {between.tolist()} Gbit/s")
print(f"        that is {hall_gbps / between.max():.0f} to {hall_gbps / between.min():.0f} times less")
lab.figures.network_map(cities)

# %% [markdown]
# ## 2. Seconds
#
# The job is GPT3-XL, 1.3 billion parameters. `lab.plan` looks for the plan of the fastest iteration: which device
# holds which layers, and who shares the batch. How it does that is the matter of the next lessons; here its answers
# are enough.
#
# Take stock before you run on: the network of the cities is so much slower, its GPUs a little.


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
# More than a hundred times less network, and far from a hundred times as slow. Two reasons. A GPU computes for
# seconds on what it received in a moment: a pipeline sends activations, not the model. And the planner arranges who
# talks to whom over which wire. Yet the price is visible: some GPUs are left out, because what they would add is less
# than what they would ask of the network. [Idle devices](../docs/glossary.md#planning) need not be paid.
#
# The paper found its world-wide case 1.7 to 3.5 times slower than Megatron in a data centre on a network 100 times as
# fast ([Yuan et al., 2022](https://arxiv.org/abs/2206.01288)), on 64 GPUs of one kind.
#
# </details>
#
# ## 3. Dollars
#
# Who pays by the hour pays, for a billion tokens,
#
# $$\text{dollars} = \frac{10^9}{\text{tokens in an iteration}} \cdot \frac{\text{seconds}}{3600} \cdot
# \text{devices} \cdot \text{price an hour}$$
#
# A plan knows it: `plan.price_per_billion_tokens`.

# %%
for name, plan in (("hall", in_hall), ("cities", in_cities)):
    by_hand = 1e9 / plan.job.tokens * plan.iteration_s / 3600 * plan.price_per_hour
    assert np.isclose(by_hand, plan.price_per_billion_tokens)
    print(f"{name:6} {plan.price_per_hour:6.2f} dollars an hour, {by_hand:6.2f} dollars a billion tokens")

# %% [markdown]
# So seconds and dollars need not agree on who wins. With one number to spare, solve for it: at which price an hour
# does a GPU of the cities cost as much by the token as the hall?

# %%
n_serving = in_cities.job.n_stages * in_cities.job.n_replicas
break_even = in_hall.price_per_hour * in_hall.iteration_s / (n_serving * in_cities.iteration_s)
print(f"the cities are cheaper below {break_even:.2f} dollars an hour and GPU; they ask {cities_price}")

# %% [markdown]
# ## 4. The cheapest plan
#
# `objective="price"` looks for the fewest dollars by the token, however long it takes.

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
# Whoever works alone waits for nobody: every further GPU adds waiting. **By the token, the cheapest is the smallest
# set of devices that the model fits into without computing anything twice**, as long as all GPUs cost the same for
# what they compute. (With 1 GiB less, one GPU would have to recompute activations, and two would be cheaper.)
# The cities are cheaper than the hall because their GPUs are, not because there are many of them. Each further GPU
# buys time and costs dollars. People take more of them because the model does not fit, or because they cannot wait:
# dollars *within a time*. `lab.plan(..., objective="price", max_iteration_s=...)` asks for that, and
# `lab.frontier` for the whole curve ([objectives](../docs/how-a-plan-is-found.md)).
#
# </details>
#
# ## 5. What makes the network matter less?
#
# A better network, of course. More work for each byte, too: gradients are averaged once an iteration, however many
# sequences it has.

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
batches = pd.DataFrame(rows, columns=columns).pivot(index="batch", columns="where")
batches["cities / hall", ""] = batches["seconds"]["cities"] / batches["seconds"]["hall"]
batches.round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# A larger batch is no free lunch: from some size on, a sequence more teaches the model less ([McCandlish et al.,
# 2018](https://arxiv.org/abs/1812.06162)), and memory and waiting grow. It is a lever that leaves the way of training
# as it is. `lab.with_job` tries others on the same placement:
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
free = lab.evaluate(cities.scaled(latency=0, bandwidth=1e6), in_cities.job, rank_map=in_cities.rank_map)
print(f"{'a network that costs nothing':28} {free.iteration_s:6.2f} s")

# %% [markdown]
# The last line is what remains when every message is free: computing, and the waiting of a pipeline that fills and
# drains. No compression gets below it. What the others do to the loss is the matter of [lesson
# 13](13_compression_and_local_updates.ipynb).
#
# ## 6. How much network would be enough?
#
# The same placement on networks from a tenth to a hundred times as fast. Does it cross the hall's?

# %%
factors = [0.1, 0.3, 1, 3, 10, 30, 100]
sweep = lab.sweep(in_cities, bandwidth=factors)
sweep["dollars a billion tokens"] = 1000 * sweep.price_per_million_tokens
figure = px.line(sweep, x="bandwidth", y="iteration_s", log_x=True, markers=True, title="Seconds in the cities")
figure.update_layout(
    xaxis_title="bandwidth, times today's", yaxis_title="seconds an iteration", yaxis_rangemode="tozero"
)
figure.add_hline(in_hall.iteration_s, line_dash="dash", annotation_text="the hall", annotation_position="bottom right")
figure

# %% [markdown]
# The curve flattens. From some bandwidth on the cities are slowed by what they are, not by what joins them: fewer
# FLOP/s, latency, a pipeline's waiting. (With another placement they would do better at the right end; a plan is for
# a network.) Which bandwidth suits which *training system* is what `lab.strategies` computes, in [lesson
# 15](15_codesign.ipynb).
#
# **So, when?** When the GPUs are there already or much cheaper; when a batch is large enough to compute longer than
# it sends; when the plan knows the network. **When not?** When the model fits one machine and time is no matter; when
# the batch is small; when every layer of every micro-batch must cross the slow links ([ZeRO-3 on the
# internet](../docs/compare-systems.md)).
#
# > **Takeaway.** A slow network costs time, not training quality. Larger batches, smaller messages and a plan that
# > knows the network make it matter less. By the token, the cheapest plan is the smallest one that fits.
#
# ## Missions

# %%
lab.missions.show("break-even-price")

# %%
# answer = ...
# lab.missions.check("break-even-price", answer)

# %% [markdown]
# The last one is open.

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
