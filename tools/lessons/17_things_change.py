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
# # Things change
#
# **What becomes of training when devices come and go for hours?**
#
# [Faults](11_faults.ipynb) killed a worker and brought it back. Machines that somebody lends are different: they leave,
# for minutes or for good, others come, and nobody asks. How a run answers is its *policy*. Here hours are played under
# several of them, and six questions are answered, each by one call and one picture.
#
# Afterwards you can
#
# - read who is there when, and what every second of a run's hours went to;
# - choose how often to write a checkpoint, and say when Young's formula is right;
# - choose a policy, and a shape of a plan, for the losses that you expect;
# - say how far a run is from one that knew the future.
#
# 60 minutes. Needs [11, faults and churn](11_faults.ipynb). Nothing is trained here: hours take seconds. What policies
# are, and where they are from: [docs](../docs/devices-that-come-and-go.md#policies).

# %%
import numpy as np

import dtfm_lab as lab

rooms = np.repeat(["east", "west"], 4)
near = np.equal.outer(rooms, rooms)
cards = lab.Topology.from_matrices(
    np.where(near, 0.5, 2), np.where(near, 10, 5), regions=list(rooms), gpu="T4", price_per_hour=0.35, name="cards"
)
job = lab.load_job("gpt2-small", dtype="fp16", global_batch=64, schedule="1f1b", microbatch=2, sharding="none")

# %% [markdown]
# ## 1. Who is there
#
# Eight cards in two rooms of a laboratory. Each stays four hours in the mean and is then away for one, by chance. An
# `Availability` is the list of all comings and goings; it is read from a trace, drawn by hand, or, as here, from rates.

# %%
day = lab.Availability.sampled(cards, 24 * 3600, mean_life_s=4 * 3600, mean_absence_s=3600, seed=3, name="a day")
lab.figures.availability(day)

# %%
lab.guess(
    "change-all-there",
    "Each card is there for four fifths of the time. For how many per cent of the day are all eight there?",
    of=(day,),
    unit="%",
    low=0,
    high=100,
)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why so little.** $0.8^8 = 17\,\%$: whoever waits for all of many waits most of the time. So a run has to do with
# whoever is there, and each fleet has a best plan of its own.
#
# </details>
#
# ## 2. What the hours went to
#
# The policy `restart` is what most clusters do: after a loss everything starts again on who is left, from the newest
# checkpoint. Whoever comes waits until the next loss.

# %%
restart = lab.replay(cards, job, day, "restart")
lab.figures.history(restart)

# %% [markdown]
# The dashed line is the *bound*: what nobody exceeds, though they knew all comings and goings beforehand. The last
# panel answers **how far from hindsight?**
#
# ## 3. Which policy for a dollar?
#
# Five answers to a loss are compared in this lesson, of more that [the lab
# has](../docs/devices-that-come-and-go.md#policies).
#
# | policy | what it does after a loss | when it takes a new device in |
# | --- | --- | --- |
# | `restart` | starts everything again from the newest checkpoint | at the next loss |
# | `bamboo` | the device before takes the stage over; a quarter of every step is redundant | after a step |
# | `oobleck` | drops the step and regroups in the best shape, with the state of peers | at the next loss |
# | `swarm` | peers of the stage share its work, and the step continues | after a step |
# | `goodput` | shares the work or regroups, whichever pays more | when the time left pays for it |

# %%
lab.guess(
    "change-policies-apart",
    "How many times as many samples as restart does the best of oobleck, swarm and goodput make of the same day?",
    of=(lab.replay, cards, job, day, restart),
    unit="times",
    low=1,
    high=5,
)

# %%
lab.reveal("change-policies-apart")
policies = [restart, *(lab.replay(cards, job, day, each) for each in ("oobleck", "swarm", "goodput"))]
lab.figures.race(policies, by="dollars")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Cards are paid while they are there, so on one day the ranking is that by samples. It is another one where fleets
# differ. The same cards could be rented for three times the price from somebody who never takes them away:
#
# </details>

# %%
always = lab.replay(cards, job, lab.Availability.steady(cards, day.end_s), "restart", price_per_hour=3 * 0.35)
lab.figures.race({"on demand": always, "lent, restart": restart, "lent, goodput": policies[-1]}, by="dollars")

# %% [markdown]
# ## 4. How often to write a checkpoint?
#
# [Lesson 11](11_faults.ipynb) derived Young's formula, $\sqrt{2cM}$. Here is the sweep: each marker is a day, replayed.

# %%
lab.figures.race(lab.replay(cards, job, day, "restart", over="every_s"))

# %% [markdown]
# **Where the star is** depends on this one day's losses; the formula is right in the mean over many, for losses at
# exponential times, each of which goes back to a checkpoint. Note how flat the curve is: half or twice the best
# interval costs a per cent or less, and a fifth of it, or five times, some four.
#
# ## 5. Which shape loses least?
#
# A plan of one stage keeps a copy of everything on every card; one of eight stages keeps one copy of all. One card
# goes, for good; all is planned anew, in any shape.

# %%
shapes = [lab.plan(cards, job.with_fields(n_stages=s, n_replicas=8 // s), seed=0, steps=1) for s in (1, 2, 4, 8)]
lab.figures.replans([lab.replan(each, lost=[name]) for each in shapes for name in cards.names])

# %% [markdown]
# **Why so equal?** Afterwards all have seven like cards and find plans as fast to half a per cent, and moving takes
# a second or so here.
# What differs is the only copy: it takes everybody back to a checkpoint. (A shape that makes more after a loss than
# before was never a good one; now another may be chosen.) On slower links the bars for moving grow.
#
# ## 6. Take in a new device at once, or wait?
#
# The other direction. Seven cards train, the eighth comes. A better plan has to be moved to, and nothing is trained
# meanwhile.

# %%
seven = lab.plan(cards.subset(range(7)), job, seed=0, steps=1)
lab.figures.replans(lab.replan(seven, joined=cards))

# %% [markdown]
# ## 7. At which rate does the ranking change?
#
# Here speeds are from a table, samples a second by the number of cards, and a checkpoint takes 5 s. `rate` is how often
# cards come and go: the same changes in so much less of time.

# %%
table = {n: 40 * n for n in range(4, 9)}
found = lab.replay(table, 512, day, ["restart", "bamboo", "oobleck"], over="rate", values=(0.25, 16, 7), checkpoint_s=5)
lab.figures.race(found)

# %%
found.to_frame().pivot_table(index="rate", columns="policy", values="samples_per_s").round(1)

# %% [markdown]
# What is cheap while nothing happens may be dear when something does. A ranking that is told without its rate of
# failures, and without who pays for what, is half a ranking.
#
# **To think about.** (a) Notice of 30 s before each departure (`notice_s=30`): which policies gain, and why not all?
# (b) Which policy would you choose if you did not know the rate? (c) The bound knows the future. What would a policy
# have to know to come near it?
#
# > **Takeaway.** How a run answers a loss is its policy, and no policy wins at every rate. Ask for the rate of
# > failures and for who pays before you believe a ranking.
#
# ## Missions

# %%
lab.missions.show("able-to-train")

# %%
# given = lab.missions.given("able-to-train")
# answer = ...
# lab.missions.check("able-to-train", answer)

# %%
lab.missions.show("how-often-to-write")

# %%
# given = lab.missions.given("how-often-to-write")
# answer = ...
# lab.missions.check("how-often-to-write", answer)

# %%
lab.missions.show("a-policy-for-each")

# %%
# given = lab.missions.given("a-policy-for-each")
# answer = ["...", "...", "..."]
# lab.missions.check("a-policy-for-each", answer)

# %%
lab.missions.show("spread-the-replicas")

# %%
# given = lab.missions.given("spread-the-replicas")
# answer = lab.evaluate(given.network, given.job, stages=[[...], [...], [...]])
# lab.missions.check("spread-the-replicas", answer)

# %%
lab.missions.show("beat-a-policy")

# %%
# from dtfm_lab.extensions.elasticity.policy import Response
#
# def decide(now):
#     return ...
#
# lab.missions.check("beat-a-policy", decide)

# %% [markdown]
# `lab.missions.hint(name)` helps a step further each time, `lab.missions.answer(name)` works it out.

# %%
lab.missions.board("17_things_change")
