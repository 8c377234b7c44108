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
# # Schedules
#
# **In which order should stages work?**
#
# A plan says which device holds which stage. A [schedule](../docs/glossary.md#the-nouns) says in which order each
# device runs the forwards and backwards of its micro-batches. Together they determine an iteration: its length, its
# memory, and who waits for whom.
#
# Afterwards you can
#
# - say how long an iteration of GPipe and of 1F1B takes, and what share of it is bubble;
# - explain why 1F1B loses on slow links, and compute the warm-up that repairs it;
# - write your own order of passes, and simulate it.
#
# 50 minutes. Needs [03, data and pipeline](03_data_and_pipeline.ipynb). Nothing is trained here. In
# [10, the real run](10_real_run.ipynb), real workers follow the same schedules.

# %%
import logging
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import dtfm_lab as lab

logging.getLogger("dtfm_lab").setLevel(logging.ERROR)  # hides warnings: orders here need not fit a device

# %% [markdown]
# ## 1. A schedule is a list
#
# `2F0` is the forward of [micro-batch](../docs/glossary.md#training-in-parallel) 0 on stage 2. `2B0` is its backward. A
# schedule has one list for each device of a pipeline, and nothing else. Messages follow from the lists: a forward sends
# its result to the next stage, a backward to the previous one. So do times, once you simulate them on a network.

# %%
for order in lab.schedules["1f1b"](n_stages=4, n_microbatches=6).orders:
    print(order)

# %% [markdown]
# To see only the effect of order, take equal devices. Every forward takes 1 s, and every backward 2 s. The network sets
# the time of a message. A *profile*, a table of seconds, replaces the FLOP of a real model.


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


def seconds(schedule, n_devices, n_microbatches, hop_s=0.0):
    """Length of an iteration on such a row."""
    return lab.simulate(pipeline(n_devices, n_microbatches, hop_s), schedule, profile=textbook(n_devices)).iteration_s


# %% [markdown]
# ## 2. GPipe against 1F1B, on free links
#
# **What.** GPipe ([Huang et al. 2019](https://arxiv.org/abs/1811.06965)) runs all forwards, then all backwards. 1F1B
# ([Narayanan et al. 2021](https://arxiv.org/abs/2104.04473)) begins its backwards as early as it can. Then each device
# alternates: one forward, one backward.
#
# In the figures, the grey band is the simulator's 90 % interval for the end of the upper schedule. It allows for
# computations that vary. Ours do not, so ignore it.

# %%
free = pipeline(4, 8)
gpipe, one_f_one_b = (lab.simulate(free, name, profile=textbook(4)) for name in ("gpipe", "1f1b"))
lab.figures.gantt(gpipe, against=one_f_one_b, lanes=["compute"])

# %% [markdown]
# **How long.** Let $S$ devices process $M$ micro-batches. The last device waits for $S - 1$ forwards. Then it computes
# $M$ forwards and $M$ backwards without a gap. $S - 1$ backwards follow elsewhere. With $f$ seconds per forward and $b$
# per backward
#
# $$T = (M + S - 1)(f + b), \qquad \text{bubble} = \frac{S - 1}{M + S - 1}$$
#
# for both. The *bubble* is the share of $T$ in which a device is idle. Both are idle equally long, only at other
# moments:

# %%
for n_devices, n_microbatches in ((2, 3), (4, 8), (8, 64)):
    by_formula = (n_microbatches + n_devices - 1) * 3
    played = [seconds(name, n_devices, n_microbatches) for name in ("gpipe", "1f1b")]
    assert np.allclose(played, by_formula)
    idle = (n_devices - 1) / (n_microbatches + n_devices - 1)
    print(f"{n_devices} devices, {n_microbatches} micro-batches: {by_formula} s, bubble {idle:.1%}")

# %% [markdown]
# They differ in memory. A GPipe device holds the activations of all $M$ micro-batches, a 1F1B device fewer:
# [09, memory](09_memory.ipynb).
#
# ## 3. On slow links the tie is broken
#
# Now each message takes 0.6 s, as long as 0.6 forwards. Guess first.

# %%
lab.guess(
    "schedules-1f1b-on-slow-links",
    f"8 devices, 64 micro-batches, free links: GPipe and 1F1B take {seconds('gpipe', 8, 64):.0f} s each. With hops of "
    f"0.6 s GPipe takes {seconds('gpipe', 8, 64, 0.6):.1f} s. How long does 1F1B take?",
    of=(seconds,),
    unit="s",
    low=213,
    high=400,
)

# %%
lab.reveal("schedules-1f1b-on-slow-links")
for n_microbatches in (16, 64, 128):
    gpipe_s, one_s = (seconds(name, 8, n_microbatches, hop_s=0.6) for name in ("gpipe", "1f1b"))
    print(f"{n_microbatches:3} micro-batches: GPipe {gpipe_s:5.1f} s, 1F1B {one_s:5.1f} s")

# %%
lab.guess(
    "schedules-why-1f1b-waits",
    "On slow links the two no longer tie. Why?",
    choices=(
        "it sends more bytes",
        "each device has too few micro-batches on their way",
        "its backward passes are longer",
    ),
)

# %%
lab.reveal("schedules-why-1f1b-waits")
slow = pipeline(4, 8, hop_s=0.6)
gpipe, one_f_one_b = (lab.simulate(slow, name, profile=textbook(4)) for name in ("gpipe", "1f1b"))
lab.figures.gantt(gpipe, against=one_f_one_b, lanes=["compute"])

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The first device of 1F1B runs $S$ forwards. Then it begins a new micro-batch only after one has come back. So at most
# $S$ micro-batches are in flight. Each is in flight for
#
# $$R = S (f + b) + 2 (S - 1) h$$
#
# seconds: $S$ devices compute it forward and back, and it crosses $S - 1$ hops of $h$ seconds twice. A shop with $S$
# seats whose guests stay for $R$ seconds serves $S$ guests in $R$ seconds (Little's law). So each further micro-batch
# costs $R / S = f + b + 2 h (S - 1) / S$. Every micro-batch pays the hops, not just the first one:
#
# </details>

# %%
each_s = (seconds("1f1b", 8, 128, 0.6) - seconds("1f1b", 8, 64, 0.6)) / 64
by_law_s = (8 * 3 + 2 * 7 * 0.6) / 8
print(f"one more micro-batch: {each_s:.4f} s played, {by_law_s:.4f} s by the law, 3 s of them computing")
assert abs(each_s - by_law_s) < 1e-6

# %% [markdown]
# GPipe has all $M$ in flight and never waits for one of them. It pays each hop once there and once back:
# $T = (M + S - 1)(f + b) + 2 (S - 1) h$.
#
# ## 4. A deeper warm-up
#
# Between the two schedules lies one number per device: the forwards that it runs before it alternates, its
# [warm-up](../docs/glossary.md#schedules-and-simulation). A device with $w$ of them holds $w + 1$ micro-batches.
# `adaptive-1f1b` chooses warm-ups for the durations, links and memory, and removes forwards that save no time.

# %%
lab.guess(
    "schedules-held-on-slow-links",
    "On the row of section 3 (8 devices, 64 micro-batches, hops of 0.6 s), how many micro-batches must the first "
    "device be able to hold, at least, so that taking turns is as short as GPipe, which holds 64?",
    of=(lab.simulate, pipeline, textbook),
    unit="micro-batches",
    low=1,
    high=64,
)

# %%
lab.reveal("schedules-held-on-slow-links")
rows = []
for hop_s in (0, 0.01, 0.1, 0.6, 1.4, 1.6, 3):
    deep = lab.simulate(pipeline(8, 64, hop_s), "adaptive-1f1b", profile=textbook(8))
    before_first_backward = deep.context.orders[0].split("B")[0].count("F")
    rows.append((hop_s, seconds("gpipe", 8, 64, hop_s), seconds("1f1b", 8, 64, hop_s), deep.iteration_s))
    rows[-1] += (before_first_backward,)
pd.DataFrame(rows, columns=["hop_s", "gpipe_s", "1f1b_s", "adaptive_s", "held_by_first"]).round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why 15 and not 11.** By Little's law, $R / (f + b) = 32.4 / 3$, so eleven would suffice. But devices alternate in
# whole turns of $f + b$ seconds. A micro-batch returns from the next device after $f + b + 2h$ seconds or later. In
# whole turns, that is $\lceil (f + b + 2h) / (f + b) \rceil$, rounded up at every hop. A hop of up to half a turn makes
# two turns out of one, so the warm-up *doubles*. With hops of 0.1 s fewer suffice, and `adaptive-1f1b` removes some.
#
# Can a schedule without strict turns reach eleven? Write one with `lab.Schedule.from_orders`.
#
# </details>

# %%
doubled = lab.schedules["adaptive-1f1b"](8, 64, warmups=[14, 12, 10, 8, 6, 4, 2, 0])
print(f"{lab.simulate(pipeline(8, 64, 0.6), doubled, profile=textbook(8)).iteration_s:.1f} s with doubled warm-ups")
one_less = lab.schedules["adaptive-1f1b"](8, 64, warmups=[13, 12, 10, 8, 6, 4, 2, 0])
print(f"{lab.simulate(pipeline(8, 64, 0.6), one_less, profile=textbook(8)).iteration_s:.1f} s with one forward less")

# %% [markdown]
# ## 5. Two ways to a smaller bubble
#
# A backward computes two gradients. The previous stage waits for the inputs' gradient. No device waits for the weights'
# gradient. `zb-h1` ([Qi et al. 2024](https://arxiv.org/abs/2401.10241)) splits the backward into these two, `I` and
# `W`, and fills gaps with `W`. `interleaved-1f1b` gives each device several smaller stages, so work reaches the last
# device sooner. It pays with messages: $Sv - 1$ hops with $v$ stages per device, instead of $S - 1$. Compare both with
# the 1F1B of section 2.

# %%
split = lab.simulate(free, "zb-h1", profile=textbook(4))
interleaved = lab.simulate(free, "interleaved-1f1b", profile=textbook(4, stages_per_device=2))
lab.figures.gantt(split, against=interleaved, lanes=["compute"])

# %%
lab.guess(
    "schedules-zero-bubble-on-slow-links",
    f"The row of section 3 again: GPipe takes {seconds('gpipe', 8, 64, 0.6):.1f} s and holds 64. "
    "1F1B and zb-h1 hold 8. How long does zb-h1 take?",
    of=(seconds,),
    unit="s",
    low=190,
    high=320,
)

# %%
lab.reveal("schedules-zero-bubble-on-slow-links")
table = {
    f"hops of {hop_s} s": {
        name: lab.simulate(
            pipeline(4, 32, hop_s), name, profile=textbook(4, 2 if name == "interleaved-1f1b" else 1)
        ).iteration_s
        for name in ("gpipe", "1f1b", "adaptive-1f1b", "zb-h1", "interleaved-1f1b")
    }
    for hop_s in (0.0, 0.6, 3.0)
}
print(f"zb-h1 on the row of section 3: {seconds('zb-h1', 8, 64, 0.6):.1f} s")
pd.DataFrame(table).round(1)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why.** No stage waits for another's `W`, so a micro-batch is in flight for only $S (f + b/2) + 2 (S - 1) h$. On the
# row of section 3 that is 24.4 s. With 8 in flight, each micro-batch costs 3.05 s, hardly more than its 3 s of
# computing. With hops of 3 s, Little's law again limits every schedule that holds few. (A device keeps what `W` needs
# until `W` is done. Lesson 09 counts these bytes.)
#
# </details>
#
# ## 6. Who waits for whom?
#
# A trace records what every action waited for. Followed back from the end, these waits form the
# [critical path](../docs/glossary.md#schedules-and-simulation). It has no gaps, so it is as long as the iteration.

# %%
lab.figures.gantt(lab.simulate(slow, "1f1b", profile=textbook(4)), critical=True)

# %% [markdown]
# Now the paper's world-wide case: GPT3-XL on 64 V100s, in 8 stages of 8 replicas. By default, a pass takes its FLOP
# divided by the speed that the GPU reaches, here 40 % of its peak. `fits` says whether the memory suffices.

# %%
job = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=512, microbatch=1)
plan = lab.plan("worldwide", job, objective="communication", seed=0, steps=10)
lab.sweep(plan, schedule=["gpipe", "1f1b", "adaptive-1f1b", "zb-h1"])[
    ["schedule", "iteration_s", "peak_activations", "fits"]
].round(2)

# %%
lab.simulate(plan, "adaptive-1f1b").critical_summary().query("by == 'what'").round(3)

# %% [markdown]
# Most of this iteration is [synchronisation](../docs/glossary.md#training-in-parallel), and no order of passes shortens
# it. (To hide a part, average the gradients of late layers while earlier layers compute.) The paper's way is *sharded*:
# each device serves its peers one after the other. Serving all at once gains more than any order of passes, if the NICs
# allow it:

# %%
lab.sweep(plan, schedule=["1f1b", "adaptive-1f1b"], synchronisation=["sharded", "sharded-at-once", "ring"])[
    ["schedule", "synchronisation", "iteration_s"]
].round(2)

# %% [markdown]
# *At once* is faster if each pair of devices has its own link, as the paper assumes. If all messages of a device share
# one NIC (`queueing="nics"`), they wait there:

# %%
lab.sweep(plan, schedule="1f1b", synchronisation=["sharded", "sharded-at-once"], queueing=["pairs", "nics"])[
    ["synchronisation", "queueing", "iteration_s"]
].round(2)

# %% [markdown]
# ## 7. A schedule of your own
#
# A schedule is text with one line per device. Write it by program, edit it by hand, or import it from
# `torch.distributed.pipelining` as CSV. If its devices wait for each other in a circle, the error lists the actions.

# %%
own = lab.Schedule.from_orders("last-in-first-out", ["0F0 0F1 0F2 0B2 0B1 0B0", "1F0 1F1 1F2 1B2 1B1 1B0"])
print(lab.simulate(pipeline(2, 3), own, profile=textbook(2)))
stuck = lab.Schedule.from_orders("stuck", ["0F0 0B0 0F1 0B1", "1F1 1F0 1B0 1B1"])
try:
    lab.simulate(pipeline(2, 2), stuck, profile=textbook(2))
except lab.LabError as error:
    print(error)

# %%
with tempfile.TemporaryDirectory() as folder:
    print(lab.save(lab.schedules["1f1b"](2, 3), Path(folder) / "own.txt").read_text())
    as_csv = lab.save(lab.schedules["zb-h1"](4, 8), Path(folder) / "own.csv")
    print(as_csv.read_text().splitlines()[3])

# %% [markdown]
# From the shell: `dtfm-lab show --schedule zb-h1 --stages 4 --microbatches 8`,
# `dtfm-lab simulate plan.json --schedule own.txt --chrome trace.json` (a trace opens in
# [Perfetto](https://ui.perfetto.dev)),
# `dtfm-lab simulate --sweep plan.json --vary schedule=gpipe,1f1b --vary bandwidth=0.5,1,2`.
#
# **To think about.**
#
# 1. Derive $T$ and the bubble from the figures of section 2.
# 2. Write a schedule of two devices and two micro-batches that deadlocks in another way.
# 3. Which of sections 2 to 5 change with unequal devices? See [12, unequal devices](12_unequal_devices.ipynb).
#
# > **Takeaway.** Remember that GPipe and 1F1B have the same bubble on free links. On slow links, the number of
# > micro-batches in flight decides. A deeper warm-up buys time with memory.
#
# ## Missions

# %%
lab.missions.show("bubble-share")

# %%
# answer = ...
# lab.missions.check("bubble-share", answer)

# %%
lab.missions.show("deep-enough")

# %%
# answer = ...
# lab.missions.check("deep-enough", answer)

# %% [markdown]
# `lab.missions.hint(name)` gives one more hint at each call. `lab.missions.answer(name)` shows a worked answer.

# %%
lab.missions.board("08_schedules")
