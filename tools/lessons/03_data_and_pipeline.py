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
# # Data, pipeline and both
#
# **What crosses which wire?**
#
# 60 minutes. Needs [The network](02_network.ipynb); words are in the [glossary](../docs/glossary.md).
#
# You will be able to:
#
# - Compute the bytes that data parallelism and a pipeline send, from model, batch and shape.
# - Read from a trace which bytes crossed which wire.
# - Say which of the two should cross a network's slow links, and at which batch that changes.

# %%
import numpy as np
import pandas as pd
import plotly.express as px

import dtfm_lab as lab

# %% [markdown]
# ## 1. Four devices, three ways
#
# Four devices train a model on a batch of sequences. They can divide the work in three ways:
#
# - **data parallel**: each device holds the whole model and a quarter of the batch. After the backward pass, they
#   average their gradients. Each device is a [replica](../docs/glossary.md#training-in-parallel).
# - **pipeline**: each device holds a quarter of the layers, a *stage*. The whole batch passes through it, in parts
#   called *micro-batches*. Activations go down the pipeline, and their gradients come back up.
# - **both**: two pipelines of two stages. Devices with the same stage average their gradients.
#
# A job sets `n_stages` and `n_replicas`. Here it trains GPT3-XL, 1.3 billion parameters in fp16. The batch is 32
# sequences, in micro-batches of one.

# %%
devices = ["ada", "alan", "edsger", "grace"]
net = lab.Topology.from_matrices(
    latency_ms=np.full((4, 4), 20.0), bandwidth_gbps=np.full((4, 4), 1.0), names=devices, gpu="A100"
)
work = {"global_batch": 32, "microbatch": 1, "dtype": "fp16", "schedule": "gpipe"}
shapes = {"data parallel": (1, 4), "pipeline": (4, 1), "both": (2, 2)}
plans = {}
for name, (n_stages, n_replicas) in shapes.items():
    job = lab.load_job("gpt3-xl", n_stages=n_stages, n_replicas=n_replicas, **work)
    placement = np.array(devices).reshape(n_stages, n_replicas)
    plans[name] = lab.evaluate(net, job, stages=placement.tolist())
    print(f"{name:13}  stages: {placement.tolist()}")

# %% [markdown]
# How much does each plan send? `lab.simulate` plays every message and returns a
# [trace](../docs/glossary.md#the-nouns), with one row per action. A send lasts as long as its bytes occupy the link.
# So seconds times bandwidth are bytes, without any formula. (The latency comes after the send: the matching receive
# begins that much later.)


# %%
def sent(trace, topology):
    """A row for each message of a trace: its kind, both ends with their regions, and its bytes."""
    rows = trace.to_frame()
    # Keep the sends only, and number them from 0.
    rows = rows[rows.kind.str.startswith("SEND")].reset_index(drop=True)
    # A link's name, such as "ada -> alan", becomes two columns.
    ends = rows.link.str.split(" -> ", expand=True)
    # Row and column of each link in the bandwidth matrix.
    at = [[topology.index(name) for name in ends[side]] for side in (0, 1)]
    region = np.array([device.region for device in topology.devices])
    return pd.DataFrame(
        {
            "kind": rows.kind,
            "source": ends[0],
            "target": ends[1],
            "from": region[at[0]],
            "to": region[at[1]],
            "bytes": (rows.end_s - rows.start_s) * topology.bandwidth_bytes_per_s[at[0], at[1]],
        }
    )


def total_gb(plan):
    """GB that all devices of a plan send in one iteration."""
    return sent(lab.simulate(plan), plan.topology)["bytes"].sum() / 1e9


# %% [markdown]
# Guess before you look. The model has 1.3 billion parameters of two bytes.

# %%
lab.guess(
    "data-bytes-of-four",
    "How many GB does the data parallel plan of four devices send in one iteration, over all wires together?",
    of=(total_gb, plans["data parallel"]),
    unit="GB",
    low=0,
    high=100,
)

# %% [markdown]
# ## 2. By hand
#
# **Data parallel.** $D$ replicas average a gradient of $G$ bytes. Each owns one $D$-th of it. It receives that part
# from the $D - 1$ others, averages it, and sends the average back to all of them. So over all wires
#
# $$\underbrace{2}_{\text{there and back}} \cdot \; D (D - 1) \cdot \frac{G}{D} \;=\; 2 (D - 1)\, G$$
#
# The batch does not appear. A ring sends exactly as much, in other rounds.
#
# **Pipeline.** The activations of every sequence cross each of the $S - 1$ boundaries, and as many bytes of gradients
# come back. For a sequence of $n$ tokens in a model of width $w$, an activation is $n w$ numbers. With a batch of $B$
# sequences and two bytes per number, that is
#
# $$2 \cdot (S - 1) \cdot B \cdot 2\, n w$$
#
# The number of layers does not appear. With both, replicas share the batch, and stages share the gradient. So add the
# two.

# %%
lab.reveal("data-bytes-of-four")
rows = []
for name, plan in plans.items():
    job = plan.job
    data = 2 * (job.n_replicas - 1) * sum(job.stage_gradient_bytes)
    n_tokens, width = 2048, 2048
    pipeline = 2 * (job.n_stages - 1) * job.global_batch * 2 * n_tokens * width
    assert 2 * n_tokens * width == job.activation_bytes
    rows.append([name, data / 1e9, pipeline / 1e9])
by_hand = pd.DataFrame(rows, columns=["shape", "gradients, GB", "activations, GB"]).set_index("shape")
by_hand.round(2)

# %% [markdown]
# ## 3. Read off a trace
#
# Now count the same bytes in the simulator's messages:

# %%
lab.reveal("data-bytes-of-four")
what = {
    "SEND_G": "gradients, GB",
    "SEND_P": "gradients, GB",
    "SEND_F": "activations, GB",
    "SEND_B": "activations, GB",
    "SEND_E": "embedding, GB",
}
read = {}
for name, plan in plans.items():
    messages = sent(lab.simulate(plan), net)
    # map turns each kind into a column's name; groupby and sum add up the bytes of each name.
    read[name] = messages.groupby(messages.kind.map(what))["bytes"].sum() / 1e9
# T makes one row per plan. fillna writes 0 where a plan sends nothing of a kind.
read = pd.DataFrame(read).T.fillna(0)[["gradients, GB", "activations, GB", "embedding, GB"]]
assert np.allclose(read.iloc[:, :2], by_hand)
read.round(2)

# %% [markdown]
# `SEND_G` is a part of a gradient, and `SEND_P` its average on the way back. `SEND_F` is an activation, and `SEND_B`
# its gradient. The formulas hold to the byte. The third column is new. GPT's first and last stage hold the same table
# of word embeddings. If they are on two devices, they also sum its gradient ([tied
# embeddings](../docs/glossary.md#training-in-parallel)).
#
# Many say that data parallelism hardly communicates, because it does so only once an iteration. But then it sends a
# gradient for every parameter.
#
# ## 4. Which wire?
#
# Each panel shows the bytes from the row's device to the column's:

# %%
# pivot_table adds up the bytes of each pair: sources are rows, targets are columns.
matrices = [
    sent(lab.simulate(plan), net).pivot_table(index="source", columns="target", values="bytes", aggfunc="sum")
    for plan in plans.values()
]
# reindex puts rows and columns in the order of the devices. Pairs without messages become 0.
matrices = np.stack([m.reindex(index=devices, columns=devices).fillna(0).to_numpy() / 1e9 for m in matrices])
figure = px.imshow(matrices, facet_col=0, x=devices, y=devices, labels={"color": "GB"}, color_continuous_scale="Blues")
for note, name in zip(figure.layout.annotations, shapes, strict=True):
    note.text = name
figure

# %% [markdown]
# Data parallelism uses all wires equally. A pipeline uses those between neighbours, and one between its ends, for the
# embeddings. *Both* puts gradients on some wires and activations on others. **The placement decides on which.**
#
# ## 5. Bytes are not seconds

# %%
lab.reveal("data-bytes-of-four")
traces = {name: lab.simulate(plan) for name, plan in plans.items()}
for name, trace in traces.items():
    print(f"{name:13} {trace.iteration_s:6.2f} s an iteration, {read.loc[name].sum():5.2f} GB")
lab.figures.gantt(traces["both"], lanes=["compute", "send"])

# %% [markdown]
# Activations travel while devices compute other micro-batches. In these plans, gradients travel when all computing is
# over. On a fast network with large batches, this turns around: a pipeline waits while it fills and drains, and data
# parallelism does not.
#
# ## 6. What grows with what?
#
# A *block* is one transformer layer: attention and a feed-forward network.


# %%
def gigabytes(model):
    """Of the gradients of all blocks, and of the activations over all boundaries of 4 x 4 devices, in an iteration."""
    job = lab.load_job("gpt3-xl", model=model, n_stages=4, n_replicas=4, global_batch=128, microbatch=1, dtype="fp16")
    # The first and the last layer are no blocks. Both models count 24 blocks.
    blocks = [layer.parameters for layer in job.model.layers[1:-1]]
    # Section 2 with D = S = 4: 2 (D - 1) G, and 2 (S - 1) B times the bytes of an activation.
    return 2 * 3 * 2 * sum(blocks[:24]) / 1e9, 2 * 3 * job.global_batch * job.activation_bytes / 1e9


lab.guess(
    "data-wider-model",
    "A model twice as wide, with as many blocks and as many tokens in a batch, sends twice the bytes of activations. "
    "How many times as many bytes of gradients does it send?",
    of=(gigabytes,),
    unit="times",
    low=1,
    high=16,
)

# %%
lab.reveal("data-wider-model")
for model in ("gpt3-xl", "gpt3-6.7b"):
    data, pipeline = gigabytes(model)
    print(f"{model:9} 24 blocks: gradients {data:5.1f} GB, activations {pipeline:5.1f} GB, ratio {data / pipeline:.2f}")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# A block's matrices are width x width, and its activations are tokens x width. **Larger models favour pipelines,
# larger batches favour data parallelism.** At some batch, both send the same bytes:
#
# </details>

# %%
eight = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=64, microbatch=1, dtype="fp16")
per_sequence = 2 * 7 * eight.activation_bytes
gradients = 2 * 7 * sum(eight.stage_gradient_bytes)
turning = gradients / per_sequence
batches = [64, 128, 256, 512, 1024]
table = pd.DataFrame(
    {
        "gradients, GB": [gradients / 1e9] * len(batches),
        "activations, GB": [batch * per_sequence / 1e9 for batch in batches],
    },
    index=pd.Index(batches, name="batch"),
)
print(f"8 x 8: the two send as much at a batch of {turning:.0f} sequences")
table.round(1)

# %% [markdown]
# ## 7. Around the world
#
# 64 GPUs are in eight cities, eight in each. Links are fast inside a city and slow between cities. With 8 stages and
# 8 replicas, there are two tidy placements. **Every city a stage**: gradients stay in the city, activations travel.
# **Every city a pipeline**: activations stay in the city, gradients travel. The batch is 512.

# %%
world = lab.load_topology("worldwide")
grid = np.arange(64).reshape(8, 8)  # row c: the devices of city c
big = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=512, microbatch=1, dtype="fp16", recompute=True)
tidy = {
    "every city a stage": lab.evaluate(world, big, stages=grid.tolist()),
    "every city a pipeline": lab.evaluate(world, big, stages=grid.T.tolist()),
}
messages = {name: sent(lab.simulate(plan), world) for name, plan in tidy.items()}


def between_gb(name):
    """GB that a tidy placement sends between cities in an iteration."""
    m = messages[name]
    return m[m["from"] != m["to"]]["bytes"].sum() / 1e9


# %%
lab.guess(
    "data-between-cities",
    "How many times as many GB travel between cities where every city is a stage as where every city is a pipeline?",
    of=(between_gb,),
    unit="times",
    low=0.1,
    high=10,
)


# %%
lab.reveal("data-between-cities")
for name, plan in tidy.items():
    home_gb = messages[name]["bytes"].sum() / 1e9 - between_gb(name)
    print(
        f"{name:22} {between_gb(name):5.1f} GB between cities, {home_gb:5.1f} GB inside, "
        f"{lab.simulate(plan).iteration_s:.1f} s an iteration"
    )

# %%
lab.reveal("data-between-cities")
cities = list(world.regions)
# As in section 4, with cities in place of devices.
routes = [
    m[m["from"] != m["to"]].pivot_table(index="from", columns="to", values="bytes", aggfunc="sum")
    for m in messages.values()
]
routes = np.stack([r.reindex(index=cities, columns=cities).fillna(0).to_numpy() / 1e9 for r in routes])
figure = px.imshow(routes, facet_col=0, x=cities, y=cities, labels={"color": "GB"}, color_continuous_scale="Blues")
for note, name in zip(figure.layout.annotations, tidy, strict=True):
    note.text = f"{name}: GB between cities"
figure

# %% [markdown]
# <details><summary>After your guess</summary>
#
# With this batch, gradients should travel. Bytes and seconds turn around near a batch of 300: below it, every city
# should be a stage. (The turning point of section 6 leaves out the embedding, the pale squares of Oregon and
# Ireland.) You can also choose which cities are neighbours in a pipeline, and everything in between. [The cost
# model](04_cost_model.ipynb) prices a placement so fast that a search can compare millions.
#
# </details>
#
# ## 8. Prove it wrong on your machine
#
# Now four workers train the small GPT for real, in two stages of two replicas. Compare their messages with the
# simulator's. (The workers send real bytes over emulated links, so seconds times bandwidth are bytes here, too.)

# %%
small = lab.evaluate(
    "lecture-hall",
    lab.load_job("tiny", n_stages=2, n_replicas=2),
    stages=[["ada", "alan"], ["edsger", "grace"]],
)
ran = lab.run(small, iterations=2, clock="virtual")
predicted = lab.simulate(small, like=ran)
counted = {}
for name, trace in (("simulated", predicted), ("really sent", ran)):
    # For each kind: how many messages (size) and how many bytes (sum), in one iteration.
    each = sent(trace, small.topology).groupby("kind")["bytes"].agg(["size", "sum"]) / trace.n_iterations
    counted[name] = each.rename(columns={"size": "messages", "sum": "bytes"})
# Both tables side by side.
pd.concat(counted, axis=1)

# %% [markdown]
# The table shows one iteration of each. If a row differed, the formula or the runtime would be wrong.
#
# > **Takeaway.** Data parallelism sends a gradient for every parameter, once per iteration. A pipeline sends the
# > activations of every token. Larger models favour pipelines, larger batches favour data parallelism. The placement
# > decides which bytes cross the slow links.
#
# ## Missions

# %%
lab.missions.show("bytes-by-hand")

# %%
# answer = ...
# lab.missions.check("bytes-by-hand", answer)

# %% [markdown]
# The last mission is open: place devices so that few bytes cross between cities.

# %%
lab.missions.show("keep-it-home")

# %%
# given = lab.missions.given("keep-it-home")
# answer = lab.evaluate(given.network, given.job, stages=...)
# lab.missions.check("keep-it-home", answer)

# %% [markdown]
# Next: [Why decentralise?](01_why_decentralise.ipynb), on your own numbers.

# %%
lab.missions.board("03_data_and_pipeline")
