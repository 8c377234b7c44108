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
# # Systems compared
#
# **What would each system do with my machines?**
#
# Megatron-LM wants fast links, DiLoCo hardly any, FSDP memory more than bandwidth. Here each is asked for its best plan
# on the same devices, links and batch; all are predicted by one model, and some are run for real.
#
# Afterwards you can
#
# - compare systems on a network of yours, and say what their seconds go to;
# - explain why one is slower, one thing taken away at a time;
# - change an assumption of a rival, and tell what it is worth;
# - say when seconds alone do not compare systems, and what does.
#
# 35 minutes. Needs [07, communication or seconds](07_communication_or_seconds.ipynb) and [08,
# schedules](08_schedules.ipynb). Words: [system, strategy, assumption, ablation](../docs/glossary.md#systems).

# %%
import pandas as pd

import dtfm_lab as lab

pd.set_option("display.max_colwidth", None)  # sentences in full

# %% [markdown]
# ## 1. Across the world
#
# 64 V100s in eight cities, and a GPT-3 of 1.3 billion parameters. A *system* has a model, its *strategy*: the plans
# that it lets its user choose from. The fastest of them that fits the devices' memory is its *outcome*.

# %%
asked = ["ddp", "fsdp", "megatron", "dt-fm", "diloco", "sparseloco", "dtfm-lab"]
world = lab.strategies("worldwide", "gpt3-xl", systems=asked, seconds=1)

# %%
lab.guess(
    "systems-fsdp-world",
    "FSDP gathers every layer's parameters before it is used. How many times as long as the fastest system does its "
    "iteration take across the world?",
    of=(world,),
    unit="times",
    low=1,
    high=1000,
)

# %%
lab.reveal("systems-fsdp-world")
print(world.sentence)
lab.figures.strategies(world)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Each bar is the [critical path](../docs/glossary.md#schedules-and-simulation) of an iteration, stacked by what its
# seconds go to. A dagger marks what changes the training itself, such as averaging every 500 iterations only: its loss
# may need more iterations, so its seconds alone do not compare it.
#
# </details>
#
# ## 2. In the data centre
#
# The same GPUs in one place: eight instances of eight, 100 Gbit/s inside and 3 between.

# %%
centre = lab.strategies("datacenter", "gpt3-xl", systems=asked, seconds=1)
seconds = {found.topology.name: found.to_frame().set_index("title")["iteration_s"] for found in (world, centre)}
table = pd.DataFrame(seconds).assign(times=seconds["worldwide"] / seconds["datacenter"]).sort_values("times")

# %%
lab.guess(
    "systems-diloco-world",
    "By how many times is DiLoCo slower across the world than in the data centre?",
    of=(world, centre),
    unit="times",
    low=0.5,
    high=100,
)

# %%
lab.reveal("systems-diloco-world")
table.round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why do orders change?** What a system sends, how often, and whether it waits, are fixed by its method; what that
# costs is the network's. So an order holds for one network: here SparseLoCo and this lab's own plan change
# places, and lesson [15](15_codesign.ipynb) finds bandwidths at which the fastest one does.
#
# </details>
#
# ## 3. Why is it slower?
#
# What makes Megatron-LM slower across the world? One thing at a time is taken away, and its plan simulated again.

# %%
megatron, ours = world["megatron"], world["dtfm-lab"]
why = lab.explain(megatron, ours)
why

# %% [markdown]
# The gains hide each other, so they do not add up. Steps from one plan to the other do, but depend on their order:

# %%
lab.figures.waterfall(why.towards)

# %% [markdown]
# ## 4. A rival with one assumption changed
#
# A rival is as strong as what is assumed of it. Every assumption has a sentence and a source; whoever doubts one
# changes it.

# %%
pd.DataFrame(megatron.strategy.assumed).set_index("name")[["value", "source"]].head(6)

# %%
overlapped = lab.systems.variant("megatron", transport="overlapped")
neighbours = lab.systems.variant("megatron", order="dp-pp")
variants = lab.strategies("worldwide", "gpt3-xl", systems=["megatron", overlapped, neighbours])

# %%
lab.guess(
    "systems-pp-dp",
    "If ranks of one data-parallel group had to be neighbours, as they are where no flag says otherwise: by what "
    "factor would Megatron-LM's best plan become slower across the world?",
    of=(variants[neighbours.label], megatron),
    unit="times",
    low=0.5,
    high=10,
)

# %%
lab.reveal("systems-pp-dp")
variants.to_frame().set_index("system")[["iteration_s", "n_stages", "n_replicas", "most"]]

# %% [markdown]
# ## 5. For real
#
# Some systems' plans can be run by real workers here. Eight laptops of a lecture hall train `tiny`; DiLoCo averages in
# every second iteration. Two predictions of each: from peaks before anything ran, and from the run's own profile.

# %%
diloco = lab.systems.variant("diloco", every=2)
hall = lab.strategies("lecture-hall", "tiny", systems=["megatron", diloco], seconds=1)
runs = {one.title: lab.run(one.plan, iterations=4, clock="virtual") for one in hall}
losses = pd.DataFrame({title: run.context.losses for title, run in runs.items()}).rolling(5, min_periods=1).mean()
iterations_to_loss = (losses <= losses.min().max()).idxmax() + 1  # until the loss that both reach

# %%
seconds = pd.DataFrame(
    {
        "model_s": {one.title: one.iteration_s for one in hall},
        "predicted_s": {one.title: lab.simulate(one.plan, like=runs[one.title]).iteration_s for one in hall},
        "measured_s": {title: run.iteration_s for title, run in runs.items()},
    }
)
seconds.assign(final_loss=losses.iloc[-1], time_to_loss_s=iterations_to_loss * seconds["measured_s"])

# %% [markdown]
# Per second and per iteration are two races. `time_to_loss_s` decides the one that people pay for: seconds until both
# have a loss that both reached.
#
# ## 6. Did others find the same?
#
# DT-FM's authors measured their scheduler against chance and against Megatron-LM, on five networks. Here is one of the
# 45 settings; `lab.published.papers_table()` lays out all, in some minutes.

# %%
paper = lab.published.papers_table(cases=("worldwide",), layers=(24,), batches=(1024,))
paper.to_frame()[["system", "iteration_s", "published_s", "ratio"]].round(2)

# %% [markdown]
# `ratio` is predicted over published. They divide by Megatron-LM at random ranks; which of nine assumptions leads how
# far from a well placed Megatron-LM to theirs is laid out in [the paper's table](../docs/papers-table.md), and drawn by
# `lab.figures.waterfall(lab.published.papers_waterfall())`.
#
# How systems are compared, what each model leaves out, and how to add one of your own:
# [docs/compare-systems.md](../docs/compare-systems.md). From the shell: `dtfm-lab strategies worldwide --job gpt3-xl -o
# systems.html`. At which bandwidth another system wins is asked in [15, co-design](15_codesign.ipynb).
#
# > **Takeaway.** A ranking of systems holds for one network. Ask of each what it sends, how often, and whether it
# > waits, and which assumption decides.
#
# ## Missions

# %%
lab.missions.show("a-system-that-wins-here")

# %%
# given = lab.missions.given("a-system-that-wins-here")
# answer = ...
# lab.missions.check("a-system-that-wins-here", answer)

# %%
lab.missions.show("which-assumption")

# %%
# given = lab.missions.given("which-assumption")
# answer = ...
# lab.missions.check("which-assumption", answer)

# %% [markdown]
# `lab.missions.hint(name)` helps a step further each time, `lab.missions.answer(name)` works it out.

# %%
lab.missions.board("14_systems")
