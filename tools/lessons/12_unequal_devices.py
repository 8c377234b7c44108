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
# # Unequal devices
#
# **What is a Raspberry Pi worth?**
#
# Somebody offers a device to a group that trains. The device is slow, or its link is. Is it worth having? The answer is
# a number of seconds per iteration, and it may be negative.
#
# Afterwards you can
#
# - compute what a slow device is worth, and when it harms;
# - divide a batch or a model among devices of different speed, also a model whose blocks differ;
# - say why the speed of a device depends on the precision.
#
# 50 minutes. Needs [07, communication or seconds](07_communication_or_seconds.ipynb). Nothing is trained here.

# %%
from dataclasses import replace

import numpy as np
import pandas as pd

import dtfm_lab as lab

pd.set_option("display.max_colwidth", None)  # show long sentences in full
from dtfm_lab.domain.network import HARDWARE

EVEN = "even"
GPT2 = lab.load_job("gpt2-small", dtype="fp16", microbatch=4)


def data_parallel(network, shares=EVEN, **changes):
    """Every device holds all of gpt2-small; a batch of 512 sequences is 128 micro-batches of 4, in these shares."""
    shares = None if shares is EVEN else tuple(shares)
    job = GPT2.with_fields(n_stages=1, n_replicas=len(network), schedule="1f1b")
    job = job.with_fields(microbatches_per_replica=shares, **changes)
    return lab.evaluate(network, job, stages=[[*range(len(network))]])


# %% [markdown]
# ## 1. It wants to help
#
# Seven V100s are in a machine room. A Raspberry Pi has a home connection. First the seven train alone, then all eight
# with equal shares of the batch.

# %%
network = lab.load_topology("raspberry-pi")
seven = network.subset(range(7))
alone = data_parallel(seven)
print(f"seven V100s: {alone.iteration_s:.2f} s an iteration, micro-batches {alone.job.microbatch_counts}")

# %%
lab.guess(
    "unequal-pi-with-an-equal-share",
    f"Seven V100s take {alone.iteration_s:.2f} s an iteration. With the Raspberry Pi as the eighth replica, and equal "
    "shares of the batch, how long does an iteration take?",
    of=(data_parallel, network),
    unit="s",
    low=0.1,
    high=100_000,
)

# %%
lab.reveal("unequal-pi-with-an-equal-share")
equal = data_parallel(network)
least = data_parallel(network, (19, 18, 18, 18, 18, 18, 18, 1))
print(f"equal shares: {equal.iteration_s:,.0f} s, {equal.iteration_s / alone.iteration_s:,.0f} times as long")
print(f"a single micro-batch for the Pi: {least.iteration_s:,.0f} s")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why.** Gradients are averaged when all devices have theirs, so the slowest device sets the pace. A V100 has 125
# TFLOP/s, the Pi 12 GFLOP/s: ten thousand times less. For the Pi, even one micro-batch is too many. (For this model,
# the simulator lets every device reach 40 % of its peak.) Is it the chip, then? Replace it with a better one.
#
# </details>


# %%
def with_peak(flop_per_s):
    """The network with another chip in the Pi's place, on the same line."""
    better = replace(network.devices[-1], gpu="H100", peak_flop_per_s=flop_per_s, memory_bytes=80 * 2**30)
    return replace(network, devices=(*network.devices[:-1], better))


h100 = HARDWARE["H100"].peak["fp16"]
lab.guess(
    "unequal-h100-on-a-home-line",
    f"On the same home connection of 50 Mbit/s stands an H100 ({h100 / 1e12:.0f} TFLOP/s, eight times a V100). The "
    f"seven V100s alone take {alone.iteration_s:.2f} s. How long is an iteration in which it takes part?",
    of=(data_parallel, with_peak(h100)),
    unit="s",
    low=0.1,
    high=1000,
)

# %%
lab.reveal("unequal-h100-on-a-home-line")
fast = data_parallel(with_peak(h100), (9, 9, 9, 9, 9, 9, 9, 65))
gradient_bits = 8 * fast.job.gradient_bytes
print(f"{fast.iteration_s:.1f} s, although half of the work is done by a device that is eight times as fast")
out_s = 7 / 8 * gradient_bits / 0.05e9
print(f"seven eighths of its gradient out, and as much of averages: {2 * out_s:.0f} s at 50 Mbit/s")
lab.simulate(fast).critical_summary().query("by == 'what'").round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# A device is worth what its chip *and* its link allow. Here the link alone takes longer than the seven V100s need for
# everything. [13](13_compression_and_local_updates.ipynb) is about links. This lesson is about chips.
#
# </details>
#
# ## 2. What is it worth?
#
# The worth of a device is the seconds of the best plan without it minus those with it. `.worth()` removes each device
# of the plan and plans again. It also puts each idle device to work.

# %%
plan = lab.plan(network, GPT2, seed=0, steps=4)
print("idle in the best plan found:", [network.devices[at].name for at in plan.idle_devices])
worths = lab.explain(plan).worth()
worths[["device", "worth_s", "verdict", "sentence"]].round(3)

# %% [markdown]
# A planner that *must* use every device, like the paper's, has no such choice.
#
# ## 3. Shares of a batch
#
# If a device is two or five times slower, not ten thousand times, it helps with a smaller share. Take four GPUs of four
# kinds, each holding the whole model. The planner chooses the shares.

# %%
four = lab.load_topology("mixed-gpus").subset([0, 8, 16, 24])


def shared_out(dtype):
    """Micro-batches of each of the four, as a planner shares them out, and the seconds of that plan."""
    plan = lab.plan(four, GPT2.with_fields(n_stages=1, n_replicas=4, dtype=dtype), seed=0, steps=4)
    return dict(zip(plan.device_names[0], plan.job.microbatch_counts, strict=True)), plan


shares, fp16 = shared_out("fp16")
peaks = {device.name: HARDWARE[device.gpu].peak["fp16"] / 1e12 for device in four.devices}
table = pd.DataFrame({"TFLOP/s in fp16": peaks, "micro-batches": shares})
table["by speed alone"] = 128 * table["TFLOP/s in fp16"] / table["TFLOP/s in fp16"].sum()
print(f"{fp16.iteration_s:.2f} s an iteration; with equal shares {data_parallel(four).iteration_s:.2f} s")
table.round(1)

# %% [markdown]
# Shares follow speed, so all devices finish at about the same time, and speeds add up. A device that does a tenth of
# the work saves a tenth of the time. (The optimiser weights gradients by micro-batches, so training does not change:
# [docs](../docs/run-for-real.md#what-a-run-can-do).)
#
# Now change one word: `bf16` for `fp16`. Both have two bytes per number.

# %%
lab.guess(
    "unequal-v100-in-bf16",
    f"In fp16 the V100 does {shares['v100-0']} of 128 micro-batches. How many in bf16?",
    of=(shared_out,),
    unit="micro-batches",
    low=0,
    high=64,
)

# %%
lab.reveal("unequal-v100-in-bf16")
in_bf16, bf16 = shared_out("bf16")
peaks_of = {device.name: HARDWARE[device.gpu].peak for device in four.devices}
peak_bf16 = {name: peak.get("bf16", peak["fp32"]) / 1e12 for name, peak in peaks_of.items()}
print(f"{bf16.iteration_s:.2f} s an iteration; with equal shares {data_parallel(four, dtype='bf16').iteration_s:.2f} s")
pd.DataFrame({"fp16": shares, "bf16": in_bf16, "TFLOP/s in bf16": peak_bf16})

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why.** A peak is for one precision. V100 and T4 have tensor cores for fp16. They have none for bf16, which came with
# the A100, and compute it no faster than fp32. "How fast is this GPU?" has no answer without "in which precision?".
#
# </details>
#
# ## 4. Cuts of a model
#
# In a pipeline, each device holds a part of the model. With an even cut, the slowest stage sets the pace, and the
# others wait:

# %%
job = GPT2.with_fields(n_stages=4, n_replicas=1)
even = lab.evaluate(four, job.with_fields(schedule="1f1b"), stages=[[0], [1], [2], [3]])
lab.figures.bubble(lab.simulate(even))

# %%
cut = lab.plan(four, job, seed=0, steps=4)
print("blocks of each stage:", dict(zip([name for (name,) in cut.device_names], cut.job.blocks_per_stage, strict=True)))
lab.figures.bubble(lab.simulate(cut))

# %% [markdown]
# Twelve blocks cannot be divided as finely as 128 micro-batches. The last stage also has the head, which costs as much
# as some blocks. So the fastest device takes the last stage. If you fix no shape, the planner chooses among shares and
# cuts, but a short search may miss the best:

# %%
free = lab.plan(four, GPT2, seed=0, steps=4)
print(
    f"even cut {even.iteration_s:.2f} s, best cut {cut.iteration_s:.2f} s, shares {fp16.iteration_s:.2f} s, "
    f"any plan {free.iteration_s:.2f} s: {free.job.n_stages} stages of {free.job.n_replicas}"
)
worth = lab.explain(free).worth()
print(f"worths add up to {worth.worth_s.sum():.2f} s")
worth[["device", "worth_s", "without_s", "n_stages", "n_replicas"]].round(2)

# %% [markdown]
# **Worths do not add up** to anything. Each says what you lose if this device alone leaves and the rest is planned
# again. If two devices need each other, each is worth what both bring. If either of two would do, each is worth
# nothing.

# %% [markdown]
# ## 5. Blocks that differ
#
# So far all blocks were equal. Wherever you cut a transformer, they have the same work, parameters and output. The
# blocks of a ConvNet differ. Here is VGG-11 (Simonyan and Zisserman 2015) in plain torch. The lab examines it in a
# separate process.

# %%
import torch
from torch import nn

CONVOLUTIONS = ((64, 2), (128, 2), (256, 1), (256, 2), (512, 1), (512, 2), (512, 1), (512, 2))
"""Channels, and the side of the pool behind it."""


class VGG11(nn.Module):
    def __init__(self):
        super().__init__()
        parts, comes = [], 3
        for channels, side in CONVOLUTIONS:
            parts.append(nn.Sequential(nn.Conv2d(comes, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(side)))
            comes = channels
        parts.append(nn.Sequential(nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU()))
        parts += [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()), nn.Linear(4096, 1000)]
        self.parts = nn.ModuleList(parts)

    def forward(self, pictures):
        for part in self.parts:
            pictures = part(pictures)
        return pictures


example = torch.zeros(4, 3, 224, 224), torch.zeros(4, dtype=torch.long)
vgg = lab.load_job(module=VGG11(), example=example, loss=nn.functional.cross_entropy, global_batch=512, dtype="fp16")
layers = vgg.model.to_frame("fp16")
columns = {
    "GFLOP forward": layers.forward_flop / 1e9,
    "million parameters": layers.parameters / 1e6,
    "MB to the next": layers.output_bytes / 1e6,
}
pd.DataFrame(columns).round(2)

# %% [markdown]
# The table is for one picture. Convolutions do most of the work, and the last blocks hold most parameters. Output sizes
# vary by a factor of more than a hundred. So every cut is a different trade-off. Take the same four GPUs, on links of 1
# Gbit/s:

# %%
slow = replace(four, bandwidth_bytes_per_s=np.full((4, 4), 1e9 / 8))
vgg = vgg.with_fields(n_stages=4, n_replicas=1, microbatch=2)
in_threes = lab.evaluate(slow, vgg.with_fields(schedule="1f1b"), stages=[[0], [1], [2], [3]])
print(f"stages of {in_threes.job.cut(4)} blocks: {in_threes.iteration_s:.2f} s an iteration")
crossing = in_threes.job.to_frame().activation_bytes[0] / in_threes.job.microbatch / 1e6

# %%
lab.guess(
    "unequal-blocks-of-a-convnet",
    f"In stages of {in_threes.job.cut(4)} blocks, {crossing:.1f} MB of each picture cross the first cut, and an "
    f"iteration takes {in_threes.iteration_s:.2f} s. How long does it take with the planner's cut?",
    of=(lab.plan, slow, vgg),
    unit="s",
    low=0.01,
    high=100,
)

# %%
lab.reveal("unequal-blocks-of-a-convnet")
by_lab = lab.plan(slow, vgg, seed=0, steps=4)
print(f"stages of {by_lab.job.blocks_per_stage} blocks: {by_lab.iteration_s:.2f} s an iteration")
sent = {
    name: job.to_frame().activation_bytes / job.microbatch / 1e6
    for name, job in (("in threes", in_threes.job), ("planned", by_lab.job))
}
pd.DataFrame(sent).add_suffix(", MB of a picture to the next").round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why.** The link was the slowest stage. The planner gives one GPU nearly all the work, and cuts where almost nothing
# crosses. On faster links, an earlier cut may pay. A good cut depends on work, parameters *and* what crosses. With
# equal blocks, every cut sends the same bytes. PipeDream's planner (Narayanan et al. 2019) was made for blocks that
# differ.
#
# </details>
#
# ## 6. Who stays at home
#
# A campus at night has a machine room, two laboratories, and eight laptops in a hall of residence. The laptops' Wi-Fi
# sends at 100 Mbit/s. The planner may use every device, but need not.

# %%
campus = lab.load_topology("campus")
best = lab.plan(campus, "gpt3-xl", seed=0, steps=6)
all_of_them = lab.plan(campus, lab.load_job("gpt3-xl", n_stages=8, n_replicas=4), seed=0, steps=6)
idle = sorted({campus.devices[at].region for at in best.idle_devices})
print(f"free to choose: {best.iteration_s:.1f} s, idle: {idle}")
print(f"all 32 in 8 stages of 4: {all_of_them.iteration_s:.1f} s")
lab.figures.network(campus, best)

# %% [markdown]
# Was it right to leave devices out? `best.iteration_lower_bound_s` limits how much faster any plan could be, with or
# without them.

# %%
print(f"at most {best.iteration_s / best.iteration_lower_bound_s:.2f} times faster with any plan")

# %% [markdown]
# **To think about.**
#
# 1. If its link cost nothing, from which speed on is the Pi worth a micro-batch?
# 2. When are two T4s worth more than one V100?
# 3. Find a network on which *every* device has a worth of zero.

# %% [markdown]
# > **Takeaway.** Remember that a device is worth what its chip and its link allow together. Give slow devices less
# > work, or none. A peak holds for one precision.
#
# ## Missions

# %%
lab.missions.show("worth-of-a-slow-one")

# %%
# answer = ...
# lab.missions.check("worth-of-a-slow-one", answer)

# %%
lab.missions.show("a-cut-of-your-own")

# %%
# answer = ...
# lab.missions.check("a-cut-of-your-own", answer)

# %% [markdown]
# `lab.missions.hint(name)` gives one more hint at each call. `lab.missions.answer(name)` shows a worked answer.

# %%
lab.missions.board("12_unequal_devices")
