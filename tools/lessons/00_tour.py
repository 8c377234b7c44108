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
# - Plan a network, and say how much faster any other plan could be.
# - Train a small GPT for real under that plan, and say by how many per cent the prediction was wrong.
# - Name the five nouns: Topology, Job, Plan, Schedule, Trace.
#
# Click into the next cell and press Shift+Enter. The lab plans eight laptops for a small GPT, and plays one predicted
# iteration. Moving dots are messages. Laptops with the same number hold the same layers. At the right, each laptop
# has a row: forward passes are blue, backward passes orange, averages of gradients green, optimiser steps grey. Lower
# bars are messages, and hatching is waiting. The iteration ends in the grey area with 90 % confidence.
#
# 1. Drag the label **0.1 Gbit/s** between the two boxes sideways. The link gets slower or faster, and the lab plans
#    again. The headline says what changed, and what limits the plan now.
# 2. Open **Search**, press **Slow**, then **Play**. A search turns random placements into a plan.
# 3. Press **Run it for real**. Eight processes train that GPT on this machine, over links as slow as drawn. The loss
#    falls. This takes half a minute on an idle machine.
# 4. Then open **Run**, **Compare**. Where was the prediction wrong, and by how much?

# %%
import dtfm_lab as lab

the_lab = lab.Lab("lecture-hall", "tiny")
the_lab

# %% [markdown]
# ## The same in code
#
# The lab has five nouns. A **Topology** is a network. A **Job** is one training iteration: a model, a batch, and how
# to split them. A planner turns both into a **Plan**: which device holds which layers. A **Schedule** orders each
# device's passes. A **Trace** says when each action began and ended. The simulator predicts one, and real workers
# measure one. ([Glossary](../docs/glossary.md))
#
# The lab above trains `tiny`, a GPT on bytes of text. Here the same job has 4 pipeline *stages* and 2 *replicas*:
# each stage is on 2 devices.

# %%
topology = lab.load_topology("lecture-hall")
job = lab.load_job("tiny", n_stages=4, n_replicas=2)
plan = lab.plan(topology, job, planner="evolutionary", seed=0, seconds=2)
print(f"{job.model.name}: {plan.iteration_s:.3f} s an iteration")
print(f"{plan.scope} takes {plan.iteration_lower_bound_s:.3f} s or more")
lab.figures.network(topology, plan)

# %% [markdown]
# Grey boxes are the two regions. Devices of one colour hold the same layers and average their gradients: a
# *data-parallel group*. One device of each group makes a *pipeline*. Dark lines show its path.
#
# A pipeline processes its batch in parts, called *micro-batches*. The printed bound holds for every plan of this
# shape (4 x 2) and these micro-batches. It is proven but cautious: the best plan can be much slower.
#
# ## Predict, run, compare
#
# The next cell trains that GPT for real. Torch processes on this machine's CPU exchange every activation and every
# gradient. On the *virtual* clock, no process waits for a link. A message counts the drawn link's time, and a
# computation its CPU time.
#
# Workers follow the schedule `1f1b`: they alternate one forward and one backward pass ([lesson
# 08](08_schedules.ipynb)).
#
# The prediction knows the plan, the schedule, and the times of a few trial passes before the run. It knows nothing of
# the run.

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
# Each bar is one action: predicted above, measured below and hatched. Colours mean the same as above.
# `comparison.stages` and `comparison.links` say where both differ. Lesson [10](10_real_run.ipynb) says why, and what
# each clock can prove. `like=measured` predicts for this machine's CPU. The plan's time further up is for the drawn
# laptops.
#
# `predicted.to_frame()` has one row per action, with `device`, `kind`, `start_s` and `end_s`. `predicted.bubble` has
# one row per device: how long it computes and waits.
#
# </details>
#
# ## Around the world
#
# The paper behind this lab has a case with 64 GPUs in eight cities. The job is GPT3-XL, 1.3 billion parameters, in 8
# stages and 8 replicas. One machine cannot run that, but the lab plans and predicts it in the same way. Every planner
# must beat a random placement.

# %%
world = lab.load_topology("worldwide")
xl = lab.load_job("dtfm-gpt3-xl", schedule="1f1b")  # the schedule gpipe would need more memory than these GPUs have
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
# The *communication cost* is the paper's measure: the slowest group's averaging plus the path through the pipeline.
# The iteration times above also count computing and waiting. Lessons [04](04_cost_model.ipynb) and
# [07](07_communication_or_seconds.ipynb) explain both. On the map, dots are GPUs and circles are cities.
#
# </details>
#
# > **Takeaway.** A plan says which device holds which layers. A simulator predicts its iteration from links and
# > computing times. A real run can prove the prediction wrong. A lower bound says how much a better plan could save
# > at most.
#
# ## Missions
#
# Every lesson ends with missions. The library checks them, and many give each reader different numbers. Stuck?
# `lab.missions.hint("one-left-the-hall")` shows a hint, one more at each call. `lab.missions.answer(...)` shows a
# worked answer.

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
# Next: [The network](02_network.ipynb): does a message pay for latency or for bandwidth? Or draw your own network
# with `lab.Lab()`.

# %%
lab.missions.board("00_tour")
