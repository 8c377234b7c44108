# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
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
# # Schedules: who computes what, and when?
#
# A plan says which device holds which stage. A *schedule* says in which order each device passes its micro-batches
# forward and backward. Both together make an iteration: how long it takes, how much memory it needs, and who waits for
# whom. This notebook plays schedules in virtual time; nothing is trained, and it runs in under a minute on a laptop.
#
# Six exercises (**Try it**) ask for a guess first; running them gives the answer. For real workers under the same
# schedules see [00_start](00_start.ipynb), for plans [01_planning](01_planning.ipynb).

# %%
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import dtfm_lab as lab

# %% [markdown]
# ## 1. A schedule is a list
#
# `2F0` is the forward of micro-batch 0 on stage 2, `2B0` its backward. A schedule holds one list for each device of a
# pipeline, and nothing else: messages follow from it, and so does the time, once it is played on a network.

# %%
for order in lab.build_schedule("1f1b", n_stages=4, n_microbatches=6).orders:
    print(order)

# %% [markdown]
# To see orders and nothing else, take devices that are all alike: every forward takes 1 s, every backward 2 s, and a
# message from one stage to the next takes as long as the network says. A profile, a table of seconds, stands in for
# the FLOP of a real model.


# %%
def textbook(n_devices, stages_per_device=1):
    """A device's forward takes 1 s, its backward 2 s, also where it holds several stages."""
    seconds = {"F": 1, "B": 2, "I": 1, "W": 1, "STEP": 0}
    rows = [(s, 0, k, t / stages_per_device) for s in range(n_devices * stages_per_device) for k, t in seconds.items()]
    return pd.DataFrame(rows, columns=["stage", "replica", "kind", "seconds"])


def pipeline(n_devices, n_microbatches, hop_s=0.0):
    """Devices in a row; a message takes ``hop_s``, whatever its size."""
    latency_ms, gbps = np.full((n_devices, n_devices), 1e3 * hop_s), np.full((n_devices, n_devices), 1e6)
    job = lab.load_job("tiny", n_stages=n_devices, n_replicas=1, global_batch=n_microbatches, microbatch=1)
    row = [[device] for device in range(n_devices)]
    return lab.evaluate(lab.Topology.from_matrices(latency_ms, gbps), job, stages=row)


# %%
lab.figures.gantt(lab.simulate(pipeline(4, 6), "1f1b", profile=textbook(4)), lanes=["compute"])

# %% [markdown]
# ## 2. GPipe against 1F1B, on free links
#
# GPipe passes everything forward, then everything backward. 1F1B turns back as early as it can, and from then on takes
# turns. With $S$ stages and $M$ micro-batches both take $(M + S - 1)(f + b)$: the same triangles are idle, only
# elsewhere. What differs is memory. GPipe's devices hold the activations of all $M$ micro-batches, 1F1B's device $s$
# those of $\min(S - s, M)$.

# %%
free = pipeline(4, 8)
lab.figures.side_by_side([lab.simulate(free, name, profile=textbook(4)) for name in ("gpipe", "1f1b")])

# %% [markdown]
# > **Try it (1).** What share of the time is idle with 8 stages and 16, 64 or 256 micro-batches? How many micro-batches
# > do 32 stages need for the same share?
#
# ## 3. On slow links the tie is broken
#
# Now a message takes 0.6 s, 0.6 forwards. A micro-batch's gradient is back 1.2 s later for each hop, and 1F1B, which
# begins to take turns with $S - s$ micro-batches on their way, has nothing to do until then. Not once, but in every
# turn: the price grows with $M$. GPipe pays for the way there once and for the way back once.

# %%
for n_microbatches in (16, 64):
    for name in ("gpipe", "1f1b"):
        trace = lab.simulate(pipeline(8, n_microbatches, hop_s=0.6), name, profile=textbook(8))
        print(f"{n_microbatches} micro-batches, {name:5}: {trace.iteration_s:5.1f} s")

# %%
slow = pipeline(4, 8, hop_s=0.6)
lab.figures.side_by_side([lab.simulate(slow, name, profile=textbook(4)) for name in ("gpipe", "1f1b")])

# %% [markdown]
# ## 4. A deeper warm-up
#
# Between the two lies one number a device: how many forwards it runs before it takes turns. 1F1B's is just enough for
# free links, GPipe's is everything. `adaptive-1f1b` chooses it for the durations, the links and the memory at hand,
# and takes back what proves needless.

# %%
deep = lab.simulate(pipeline(8, 64, hop_s=0.6), "adaptive-1f1b", profile=textbook(8))
print(f"{deep.iteration_s:.1f} s, as short as GPipe's")
lab.figures.side_by_side([lab.simulate(slow, "adaptive-1f1b", profile=textbook(4))])

# %% [markdown]
# Drawn is the row of section 3. With 64 micro-batches on eight devices, the first one holds 15 activations at most,
# GPipe's 64. On free links there is nothing to hide, and `adaptive-1f1b` *is* 1F1B:

# %%
orders = [lab.simulate(free, name, profile=textbook(4)).context.orders for name in ("adaptive-1f1b", "1f1b")]
print("the same orders:", orders[0] == orders[1])

# %% [markdown]
# > **Try it (2).** Hops of 0.1, 0.3, 1 and 3 s: how many activations does the first device hold? And what does it
# > cost to hold one less on every device but the last? (`lab.build_schedule("adaptive-1f1b", 8, 64, warmups=[14, 12,
# > 10, ...])` takes depths of your own, and `lab.simulate` takes that schedule.)
#
# ## 5. Two ways to a smaller bubble
#
# A backward makes two things: the gradient of its inputs, for which the stage before is waiting, and the gradient of
# its weights, for which nobody is. `zb-h1` splits it into `I` and `W` and fills gaps with `W`. `interleaved-1f1b` gives
# every device several smaller stages, so that the first work reaches the last device sooner, and pays with messages:
# $Sv - 1$ hops with $v$ stages a device, instead of $S - 1$. Lay both beside the 1F1B of section 2: same devices, same
# batch.

# %%
split = lab.simulate(free, "zb-h1", profile=textbook(4))
interleaved = lab.simulate(free, "interleaved-1f1b", profile=textbook(4, stages_per_device=2))
lab.figures.side_by_side([split, interleaved])

# %% [markdown]
# > **Try it (3).** Both, and `1f1b`, with `slow`. Which of them loses most, in seconds and in shares? Why?
#
# ## 6. Does it fit?
#
# Now a real model on a real network: the paper's world-wide case, GPT3-XL on 64 V100s of 16 GiB, in 8 stages of 8
# replicas. Durations are FLOP over peak, at 40 % efficiency unless told. Before anything is simulated, one question:

# %%
job = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=512, microbatch=1)
plan = lab.plan("worldwide", job, objective="communication", seed=0, steps=10)
print(lab.advice(plan, "gpipe"))

# %% [markdown]
# The batch is large: 64 micro-batches a pipeline, and GPipe keeps the activations of all of them. 1F1B keeps those of
# eight; recomputation keeps only what comes into a stage, for one more forward each.

# %%
gpipe = lab.simulate(plan, "gpipe")
lab.figures.memory_over_time(lab.memory(plan, trace=gpipe), devices=plan.pipelines[0][-1:])

# %%
adaptive = lab.simulate(plan, "adaptive-1f1b")
lab.figures.memory_over_time(lab.memory(plan, trace=adaptive), devices=plan.pipelines[0][-1:])

# %%
lab.sweep(plan, schedule=["gpipe", "1f1b", "adaptive-1f1b"], recompute=[False, True])[
    ["schedule", "recompute", "iteration_s", "peak_activations", "peak_memory_bytes", "fits"]
]

# %% [markdown]
# ## 7. Where the time goes
#
# A trace knows what every action waited for. Read backwards from the end, that is the *critical path*: actions without
# a gap, together as long as the iteration. Read for every idle stretch of every device, it is the *bubble* by cause.

# %%
lab.figures.bubble(adaptive)

# %%
adaptive.critical_summary().query("by == 'what'").round(3)

# %% [markdown]
# Four fifths of the iteration are synchronisation. How a path runs from device to device, through every message, is
# easier to see in the small: 1F1B on the slow row of section 3.

# %%
lab.figures.gantt(lab.simulate(slow, "1f1b", profile=textbook(4)), critical=True)

# %% [markdown]
# Which link or device would be worth paying for? Each is improved by a tenth, and the iteration played again.

# %%
better = lab.sensitivity(plan, "adaptive-1f1b")
print(*better["sentence"].head(5), sep="\n")
lab.figures.sensitivity(better)

# %% [markdown]
# > **Try it (4).** Twice the bandwidth (`factor=2`) on the best of these links, or ten times: what does it bring, and
# > who sets the limit? Why do all links between two regions then bring more than the best of them?
#
# ## 8. Averaging gradients
#
# The paper's way is *sharded*: each device averages one part of the gradient, and serves its peers one after the
# other. The lab knows more: all peers at once, one central device, a ring, a hierarchy of regions. And what is sent can
# be rounded, to one byte a number. (The replicas of each stage are in eight regions here, one in each: a hierarchy has
# nothing to gather first, and is the same as all at once.)

# %%
averaging = lab.sweep(
    plan,
    schedule="adaptive-1f1b",
    synchronisation=["sharded", "sharded-at-once", "central", "ring", "hierarchical"],
    compression=["none", "int8"],
)
lab.figures.sweep(averaging)

# %% [markdown]
# *At once* beats *in turn* where every pair of devices has a link to itself, as the paper assumes. If all messages of a
# device go through one network card, they queue there:

# %%
cards = lab.sweep(plan, schedule="1f1b", synchronisation=["sharded", "sharded-at-once"], queueing=["pairs", "cards"])
cards[["synchronisation", "queueing", "iteration_s"]].round(2)

# %% [markdown]
# Replicas need not average in every iteration. Between two averagings each takes steps of its own, which changes what
# is learnt; told here is the time.

# %%
seldom = lab.sweep(plan, schedule="1f1b", synchronise_every=[1, 2, 4, 8, 16, 32, 64])
seldom[["synchronise_every", "iteration_s", "mfu"]].round(3)

# %% [markdown]
# > **Try it (5).** `gradient_compression="int8"` rounds gradients only, `compression="int8"` activations as well. How
# > much of the gain is due to either? And how slow may the codec be (`codec_bytes_per_s`) before there is none?
#
# ## 9. Sweeps
#
# A sweep plays every combination of what it is given; what cannot be is a row with the reason. Long ones use all cores,
# and stopping one keeps the rows so far. Here: schedules on networks from a quarter to eight times as fast, with
# averaging all but out of the way.

# %%
speeds = lab.sweep(
    plan,
    schedule=["1f1b", "adaptive-1f1b", "zb-h1", "interleaved-1f1b"],
    bandwidth=[0.25, 1, 3, 8],
    synchronise_every=64,
)
lab.figures.sweep(speeds, x="bandwidth")

# %%
lab.sweep(plan, schedule="1f1b", microbatch=[1, 2, 3, 4, 8])[["microbatch", "iteration_s", "mfu", "fits", "error"]]

# %% [markdown]
# > **Try it (6).** Volunteers with prices: `lab.plan("volunteers", lab.load_job("gpt3-xl", n_stages=6, n_replicas=4,
# > global_batch=256), seed=0, steps=10)`. Bring `price_per_million_tokens` below a fourth of what 1F1B costs at first,
# > with any settings that fit in memory. Which of yours change what is learnt?
#
# ## 10. Out and in
#
# A trace opens in [Perfetto](https://ui.perfetto.dev) or `chrome://tracing`, a process a device, messages as arrows. A
# schedule goes out and comes in as text, or as the CSV of `torch.distributed.pipelining`. One of your own is a file,
# edited by hand; if its devices wait for each other in a circle, the error says who.

# %%
with tempfile.TemporaryDirectory() as folder:
    trace_file = lab.save_chrome_trace(lab.simulate(slow, "1f1b", profile=textbook(4)), Path(folder) / "trace.json")
    print(trace_file.name, trace_file.stat().st_size, "bytes")
    text = lab.save_schedule(lab.build_schedule("1f1b", 2, 3), Path(folder) / "own.txt")
    print(text.read_text())
    table = lab.save_schedule(lab.build_schedule("zb-h1", 4, 8), Path(folder) / "own.csv")
    print(table.read_text().splitlines()[3])
    print(lab.simulate(free, table, profile=textbook(4)))

# %% [markdown]
# From the shell: `dtfm-lab simulate plan.json --schedule adaptive-1f1b --chrome trace.json`,
# `dtfm-lab sweep plan.json --vary schedule=gpipe,1f1b --vary bandwidth=0.5,1,2`, `dtfm-lab sensitivity plan.json`,
# `dtfm-lab schedule zb-h1 --stages 4 --microbatches 8`.
#
# **For a lecture.** (a) Derive $(M + S - 1)(f + b)$ and the two bounds on activations from the pictures of section 2.
# (b) With hops of $h$ forwards, how many micro-batches must be on their way at the first device for it never to wait?
# Section 4 holds more: what does taking turns round up at every hop? (c) Write a schedule of two devices and two
# micro-batches that deadlocks, as a `.txt` file, and read the error. (d) Which of sections 2 to 5 change if devices are
# unequal? Plan `mixed-gpus` and look at the cause *straggler* in its bubble.
