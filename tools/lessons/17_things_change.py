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
# **What happens to training when devices come and go for hours?**
#
# In [Faults](11_faults.ipynb), a worker died and came back. Borrowed machines are different: they leave for minutes or
# permanently, and others come, without a warning. A *policy* is how the run responds. Here you simulate hours under
# several policies. Each of six questions takes one call and one picture.
#
# Afterwards you can
#
# - read which devices are online when, and where every second of a run went;
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
# ## 1. Devices online
#
# Eight GPUs stand in two rooms of a laboratory. Each stays for four hours on average, and is then away for one, at
# random times. An `Availability` lists all arrivals and departures. It comes from a trace, from your drawing or, as
# here, from rates.

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
# **Why so little?** $0.8^8 = 17\,\%$. If you wait until all of many devices are online, you mostly wait. So a run must
# use the devices that are online, and each such fleet has its own best plan.
#
# </details>
#
# ## 2. Where the hours went
#
# The policy `restart` is common practice. After a loss, the remaining devices start again from the newest checkpoint. A
# new device waits until the next loss.

# %%
restart = lab.replay(cards, job, day, "restart")
lab.figures.history(restart)

# %% [markdown]
# The dashed line is the *bound*: no policy can train more samples, even if it knows all arrivals and departures
# beforehand. So the panel *samples so far* answers **how far from hindsight?**
#
# ## 3. Which policy per dollar?
#
# This lesson compares five policies. [The lab has more](../docs/devices-that-come-and-go.md#policies).
#
# | policy | what it does after a loss | when it takes in a new device |
# | --- | --- | --- |
# | `restart` | restarts everything from the newest checkpoint | at the next loss |
# | `bamboo` | the previous device takes over the stage; a quarter of every step is redundant | after a step |
# | `oobleck` | drops the step and regroups in the best shape, with the state of peers | at the next loss |
# | `swarm` | peers of the stage share its work, and the step continues | after a step |
# | `goodput` | shares the work or regroups, whichever pays more | if the remaining time pays for it |

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
# You pay for a GPU while it is online. So on one day, the order by dollars is the order by samples. With other fleets
# it can differ. Suppose you rent the same GPUs at three times the price, and they never leave:
#
# </details>

# %%
always = lab.replay(cards, job, lab.Availability.steady(cards, day.end_s), "restart", price_per_hour=3 * 0.35)
lab.figures.race({"on demand": always, "lent, restart": restart, "lent, goodput": policies[-1]}, by="dollars")

# %% [markdown]
# ## 4. How often to write a checkpoint?
#
# [Lesson 11](11_faults.ipynb) derived Young's formula, $\sqrt{2cM}$: a write takes $c$ seconds, and losses are $M$
# seconds apart. Each marker of the sweep replays the day with another interval.

# %%
lab.figures.race(lab.replay(cards, job, day, "restart", over="every_s"))

# %% [markdown]
# **Where is the star?** It depends on the losses of this day. The formula is right on average over many days, if losses
# come at exponential times and each goes back to a checkpoint. The curve is flat: half or twice the best interval costs
# about 1 %. An eighth, or four times, costs 4 to 5 %.
#
# ## 5. Which shape loses least?
#
# With one stage, every GPU has a copy of the whole model. With eight stages, there is only one copy of each. Now one
# GPU leaves permanently, and the lab plans again, in any shape.

# %%
shapes = [lab.plan(cards, job.with_fields(n_stages=s, n_replicas=8 // s), seed=0, steps=1) for s in (1, 2, 4, 8)]
lab.figures.replans([lab.replan(each, lost=[name]) for each in shapes for name in cards.names])

# %% [markdown]
# **Why so similar?** Every plan is left with seven equal GPUs, and moving takes about a second. But the only copy of a
# stage can be lost. So 8 x 1 goes back to a checkpoint and redoes work. (It makes more iterations after the loss than
# before, because the new plan may have a better shape.) On slower links, moving takes longer.
#
# ## 6. Take in a new device at once, or wait?
#
# Now seven GPUs train, and an eighth arrives. A better plan needs its parameters moved, and nothing is trained during
# the move.

# %%
seven = lab.plan(cards.subset(range(7)), job, seed=0, steps=1)
lab.figures.replans(lab.replan(seven, joined=cards))

# %% [markdown]
# ## 7. At which rate does the ranking change?
#
# Here a table gives the samples per second by the number of GPUs, and a checkpoint takes 5 s. `rate` multiplies how
# often GPUs come and go: at 2, the same changes take half the time.

# %%
table = {n: 40 * n for n in range(4, 9)}
found = lab.replay(table, 512, day, ["restart", "bamboo", "oobleck"], over="rate", values=(0.25, 16, 7), checkpoint_s=5)
lab.figures.race(found)

# %%
found.to_frame().pivot_table(index="rate", columns="policy", values="samples_per_s").round(1)

# %% [markdown]
# A policy that is cheap without losses can be expensive with them. So a ranking needs its rate of losses, and who pays
# for what.
#
# **To think about.** (a) Suppose each departure is announced 30 s before (`notice_s=30`). Which policies gain, and why
# not all? (b) Which policy would you choose if you did not know the rate? (c) The bound knows the future. What would a
# policy have to know to come near it?
#
# > **Takeaway.** A policy is how a run responds to a loss, and no policy wins at every rate. Ask for the rate of
# > losses, and for who pays, before you believe a ranking.
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
# `lab.missions.hint(name)` gives one more hint, `lab.missions.answer(name)` the worked answer.

# %%
lab.missions.board("17_things_change")
