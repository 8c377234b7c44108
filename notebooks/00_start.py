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
# # Decentralised training, from a drawing to a measured error
#
# Run the next cell (Shift+Enter). Then, from top to bottom: move the laptops or make a link slow, press **Plan**
# and watch the seconds of an iteration fall, look at the groups and the path through them, press **Run** to train a
# small GPT for real on this machine with links as slow as drawn, and see under **Compare** where the prediction was
# wrong.

# %%
import dtfm_lab as lab

the_lab = lab.Lab("lecture-hall")
the_lab

# %% [markdown]
# ## The same in code
#
# Five nouns carry everything: a planner turns a **Topology** and a **Job** into a **Plan**; a **Schedule** says what
# each stage does in which order; the simulator and real workers each turn plan and schedule into a **Trace**.
#
# `tiny` is a GPT of 1.7 million parameters on bytes of text. Here it is cut into 4 pipeline stages of 2 replicas each.

# %%
topology = lab.load_topology("lecture-hall")
job = lab.load_job("tiny", n_stages=4, n_replicas=2)
plan = lab.plan(topology, job, planner="evolutionary", seed=0, seconds=2)
plan

# %%
lab.figures.network(topology, plan)

# %% [markdown]
# Devices of one stage hold the same layers and average their gradients (a *data-parallel group*); one device of each
# group makes a *pipeline*. A plan has two numbers: the seconds of its simulated iteration, with a bound that says how
# much faster any plan could be at most, and the paper's communication cost, the slowest group's averaging plus the path
# through the groups.

# %%
print(f"iteration {plan.iteration_s:.3f} s, no plan is faster than {plan.iteration_lower_bound_s:.3f} s")
print(f"communication cost {plan.cost.total_s:.3f} s")
lab.figures.coarse_graph(plan)

# %% [markdown]
# ## Predict, run, compare
#
# The workers are torch processes on this machine's CPU. On the *virtual* clock nobody waits: messages carry the times
# that the drawn links need, and computations count as the CPU time that they really took.

# %%
measured = lab.run(plan, schedule="1f1b", iterations=6, clock="virtual")
measured

# %%
lab.figures.losses(measured)

# %% [markdown]
# The prediction knows the plan, the schedule and a profile taken *before* the first iteration, never the measurement.

# %%
predicted = lab.simulate(plan, like=measured)
comparison = lab.compare(predicted, measured)
print(f"predicted {predicted.iteration_s:.4f} s, measured {measured.iteration_s:.4f} s")
print(f"error {comparison.iteration_error:+.2%}")
comparison.stages

# %%
lab.figures.gantt(predicted, against=measured)

# %% [markdown]
# ## Around the world
#
# The paper's world-wide case: 64 GPUs in eight cities, GPT3-XL in 8 stages of 8 replicas. Too large for one machine to
# run, but it is planned and predicted the same way. Chance is the baseline that every planner must beat.

# %%
world, xl = lab.load_topology("worldwide"), lab.load_job("dtfm-gpt3-xl")
chance = lab.plan(world, xl, planner="random", seed=0, steps=1)
found = lab.plan(world, xl, seed=0, seconds=2)
print(f"by chance {chance.cost.total_s:.1f} s, planned {found.cost.total_s:.2f} s, bound {found.lower_bound_s:.2f} s")

# %%
for schedule in ("gpipe", "1f1b"):
    print(f"{schedule:6} {lab.simulate(found, schedule).iteration_s:.1f} s an iteration")

# %% [markdown]
# 1F1B holds fewer activations than GPipe and is its equal on free links; on slow ones it waits for every hop there and
# back. Try other networks: `lab.topology_names()` lists them, and `lab.Lab()` begins with a blank canvas.
# How a plan is found, proved and explained, step by step: [01_planning](01_planning.ipynb).
