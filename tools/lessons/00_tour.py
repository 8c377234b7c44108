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
# # The tour
#
# **What does the lab do, from a drawing to a measured error?**
#
# 20 minutes. Needs nothing. You will be able to:
#
# - Place a network's devices in a plan, and say how much faster any plan could be at most.
# - Train a small GPT for real under that plan, and say by how many per cent the prediction was wrong.
# - Name the five nouns: Topology, Job, Plan, Schedule, Trace.
#
# Run the next cell: click into it and press Shift+Enter. Eight laptops appear, already planned. One predicted
# iteration plays on them: dots are messages; at the right is what each laptop computes, forwards in blue, backwards
# in orange, averages of gradients in green. Laptops of one number hold the same part of a small GPT.
#
# 1. Drag the label **0.1 Gbit/s, 8 ms** between the two rows sideways. The link gets slower or faster, a new plan
#    follows at once, and the line on top says what that costs and what binds now.
# 2. Open **Search**, press **Slow** and **Play**: how a search comes from chance to a plan.
# 3. Press **Run it for real**. Eight processes train that GPT on this machine, over links as slow as drawn, and the
#    loss falls. It takes half a minute on an idle machine.
# 4. When it is done, open **Run**, **Compare**: where was the prediction wrong, and by how much?

# %%
import dtfm_lab as lab

the_lab = lab.Lab("lecture-hall", "tiny")
the_lab

# %% [markdown]
# ## The same in code
#
# Five nouns carry everything. A planner turns a **Topology** and a **Job** into a **Plan**; a **Schedule** says what
# each stage does in which order; the simulator and real workers each turn plan and schedule into a **Trace**. (All
# words are in the [glossary](../docs/glossary.md).)
#
# The lab above trains `tiny`, a GPT on bytes of text. Here the same job is cut into 4 pipeline *stages*, each held by 2
# *replicas*.

# %%
topology = lab.load_topology("lecture-hall")
job = lab.load_job("tiny", n_stages=4, n_replicas=2)
plan = lab.plan(topology, job, planner="evolutionary", seed=0, seconds=2)
print(f"{job.model.name}: {plan.iteration_s:.3f} s an iteration")
print(f"{plan.scope} takes {plan.iteration_lower_bound_s:.3f} s or more")
lab.figures.network(topology, plan)

# %% [markdown]
# Devices of one colour hold the same layers and average their gradients: a *data-parallel group*. One device of each
# group makes a *pipeline*; the figure draws its path. The bound holds for every plan of this shape and these
# micro-batches, also those that nobody has tried. It is proven, and cautious: the best plan may well be far above it.
#
# ## Predict, run, compare
#
# The next cell trains that GPT for real: torch processes on this machine's processor, which exchange every
# activation and every gradient over links as slow as drawn. On the *virtual* clock nobody has to wait for these:
# messages carry the times that the links need, computations count as the processor time that they took.
#
# Workers follow the schedule `1f1b`: one forward, one backward, in turns ([lesson 08](08_schedules.ipynb)).
#
# The prediction knows the plan, the schedule and how long a few trial passes took on this machine before the run. It
# knows nothing of the run itself.

# %%
measured = lab.run(plan, schedule="1f1b", iterations=6, clock="virtual")
predicted = lab.simulate(plan, like=measured)
lab.figures.losses(measured)

# %%
lab.guess(
    "tour-prediction-error",
    "By how many per cent will the predicted iteration be off?",
    of=(predicted, measured),
    unit="%",
    low=0.1,
    high=100,
)

# %%
lab.reveal("tour-prediction-error")
comparison = lab.compare(predicted, measured)
print(f"predicted {predicted.iteration_s:.4f} s, measured {measured.iteration_s:.4f} s")
print(f"error {comparison.iteration_error:+.2%}")
lab.figures.gantt(predicted, against=measured)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Each bar is one pass of one *micro-batch*, a part of the batch: above as predicted, below as measured.
# `comparison.stages` and `comparison.links` say where they differ; lesson [10](10_real_run.ipynb) says why, and what
# each clock can prove. (`like=measured` predicts this run, on this machine's processor and with its schedule. The
# seconds printed with the plan above are those of the drawn laptops, so they differ.)
#
# A trace is more than a picture: `predicted.to_frame()` has a row for each action, with `device`, `kind`, `start_s`
# and `end_s`, and `predicted.bubble` one for each device: how long it computes, and how long it waits.
#
# </details>
#
# ## Around the world
#
# The paper's case: 64 GPUs in eight cities, GPT3-XL of 1.3 billion parameters in 8 stages of 8 replicas. Too large
# for one machine to run, but planned and predicted in the same way. Chance is the baseline that every planner must
# beat.

# %%
world = lab.load_topology("worldwide")
xl = lab.load_job("dtfm-gpt3-xl", schedule="1f1b")  # GPipe would hold more activations than fit
chance = lab.plan(world, xl, planner="random", seed=0, steps=1)
found = lab.plan(world, xl, seed=0, steps=5)

# %%
lab.guess(
    "tour-better-than-chance",
    "How many times better than a random placement is the one that the planner finds?",
    of=(chance, found),
    unit="times",
    low=1,
    high=100,
)

# %%
lab.reveal("tour-better-than-chance")
print(f"communication cost by chance {chance.cost.total_s:.1f} s, planned {found.cost.total_s:.2f} s")
print(f"no placement costs less than {found.lower_bound_s:.2f} s, so none is more than {found.gap:.1%} cheaper")
lab.figures.network_map(world)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The *communication cost* is the paper's measure, the slowest group's averaging plus the path through the pipeline;
# the seconds of an iteration above count computing and waiting, too. Lessons [04](04_cost_model.ipynb) and
# [07](07_communication_or_seconds.ipynb) take them apart.
#
# </details>
#
# > **Takeaway.** A plan says which device holds which layers. A simulator predicts its iteration from links and
# > computing times. A real run can prove the prediction wrong, and a lower bound says how much a better plan could
# > save.
#
# ## Missions
#
# Every lesson ends in some. They are checked by the library itself, and many give each reader other numbers. Stuck?
# `lab.missions.hint("one-left-the-hall")` helps, one step more at each call; `lab.missions.answer(...)` works it out.

# %%
lab.missions.show("one-left-the-hall")

# %%
# given = lab.missions.given("one-left-the-hall")
# answer = lab.plan(given.network, ...)
# lab.missions.check("one-left-the-hall", answer)

# %%
lab.missions.show("who-works-most")

# %%
# given = lab.missions.given("who-works-most")
# answer = ...
# lab.missions.check("who-works-most", answer)

# %% [markdown]
# Next: [The network](02_network.ipynb): is it latency or bandwidth that a message pays for? Or draw a
# network of your own with `lab.Lab()`.

# %%
lab.missions.board("00_tour")
