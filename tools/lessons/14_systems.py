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
# Megatron-LM needs fast links, DiLoCo hardly any. FSDP saves memory, but sends more bytes. You ask each for its best
# plan on the same devices, links and batch. One model predicts all of them, and real workers run two.
#
# Afterwards you can
#
# - compare systems on your network, and say where their iteration time goes;
# - explain why one is slower, by removing one cause at a time;
# - change an assumption about a system, and measure what it is worth;
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
# 64 V100s in eight cities train a GPT-3 of 1.3 billion parameters. The lab models a *system* by its *strategy*: the
# plans that its user can choose from. The *outcome* is the fastest of these plans that fits the devices' memory.

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
# Each bar is the [critical path](../docs/glossary.md#schedules-and-simulation) of an iteration. Its colours show where
# the time goes. A dagger marks a system that changes the training itself. DiLoCo averages only every 500 iterations, so
# it may need more iterations for the same loss. Do not compare it by seconds alone.
#
# </details>
#
# ## 2. In the data centre
#
# The same GPUs in one place: eight instances of eight GPUs, with 100 Gbit/s inside an instance and 3 between them.

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
# **Why does the order change?** A method fixes what a system sends, how often, and whether it waits. The network
# decides what that costs. So an order holds for one network. Here SparseLoCo and this lab's own plan change places. In
# lesson [15](15_codesign.ipynb) even the fastest system changes.
#
# </details>
#
# ## 3. Why is it slower?
#
# What makes Megatron-LM slower across the world? The lab removes one cause at a time, such as latency, and simulates
# the plan again.

# %%
megatron, ours = world["megatron"], world["dtfm-lab"]
why = lab.explain(megatron, ours)
why

# %% [markdown]
# The causes hide each other, so their seconds do not add up. The steps from one plan to the other add up, but each
# depends on those before it.

# %%
lab.figures.waterfall(why.towards)

# %% [markdown]
# ## 4. A system with one assumption changed
#
# The model of a system is as good as its assumptions. Each has a value and a source. If you doubt one, change it.

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
# Real workers can run the plans of some systems here. Eight laptops of a lecture hall train `tiny`. DiLoCo averages in
# every second iteration. Each has two predictions: `model_s` from the devices' peaks, and `predicted_s` from the run's
# profile.

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
# Short iterations do not win if you need more of them. You pay for `time_to_loss_s`: seconds until a system has the
# lowest loss that both reach.
#
# ## 6. Did others find the same?
#
# DT-FM's authors compared their scheduler with random placement and Megatron-LM on five networks. Here is one of 45
# settings. `lab.published.papers_table()` predicts all in a few minutes.

# %%
paper = lab.published.papers_table(cases=("worldwide",), layers=(24,), batches=(1024,))
paper.to_frame()[["system", "iteration_s", "published_s", "ratio"]].round(2)

# %% [markdown]
# `ratio` is predicted over published. The paper compares with Megatron-LM at random ranks, so its speed-ups are larger
# than over a well placed one. [The paper's table](../docs/papers-table.md) shows how much each of nine assumptions
# explains. `lab.figures.waterfall(lab.published.papers_waterfall())` draws it.
#
# [docs/compare-systems.md](../docs/compare-systems.md) says what each model leaves out, and how to add your own. In the
# shell: `dtfm-lab strategies worldwide --job gpt3-xl -o systems.html`. Next, [15, co-design](15_codesign.ipynb) asks at
# which bandwidth another system wins.
#
# > **Takeaway.** A ranking of systems holds for one network. Ask what each system sends, how often, and whether it
# > waits. Then find the assumption that decides the order.
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
# `lab.missions.hint(name)` gives one more hint, `lab.missions.answer(name)` the worked answer.

# %%
lab.missions.board("14_systems")
