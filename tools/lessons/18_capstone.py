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
# # Capstone
#
# **What would you do with a network of your own?**
#
# Everything once more, on a network that nobody drew for you: describe it, plan on it, say beforehand what will come
# out, rehearse it for real, explain the error, ask what other systems would do, and write it down. Each step has a cell
# to change. The network here is an example; replace it by yours first.
#
# Afterwards you can
#
# - describe a network that you know, with the source of each number;
# - plan on it within a factor of a proven bound, and say what binds;
# - predict a real run of the plan, or of a part, and explain what was off;
# - report it so that somebody else could prove you wrong.
#
# 120 minutes, alone or in groups of two. Needs [07, communication or seconds](07_communication_or_seconds.ipynb) and
# [10, the real run](10_real_run.ipynb); the last step uses [14, systems compared](14_systems.ipynb).

# %%
import dataclasses

import pandas as pd

import dtfm_lab as lab

pd.set_option("display.max_colwidth", None)  # sentences in full

# %% [markdown]
# ## 1. Describe it
#
# Six devices or more. `ping` tells a round trip: half of it is a [latency](../docs/glossary.md#the-nouns). `iperf3 -c
# HOST` tells a bandwidth, `-R` the other direction. Between hosts of your own, `dtfm-lab network probe HOST HOST`
# measures both over ssh. Where you cannot measure, take what the provider says, and say so in the description.

# %%
home, office, friend = ["desk", "sofa", "attic"], ["ann", "bo", "cy"], ["dee", "eli"]
names = [*home, *office, *friend]
place = {name: region for region, group in enumerate([home, office, friend]) for name in group}
one_way_ms = [[3, 12, 25], [12, 1, 18], [25, 18, 4]]
send_gbps = [[0.4, 0.04, 0.04], [0.5, 1.0, 0.25], [0.02, 0.02, 0.3]]  # row to column: homes send slowly
network = lab.Topology.from_matrices(
    [[one_way_ms[place[a]][place[b]] for b in names] for a in names],
    [[send_gbps[place[a]][place[b]] for b in names] for a in names],
    names=names,
    regions=[["home", "office", "friend"][place[name]] for name in names],
    peak_tflops=[0.05] * 3 + [0.1] * 3 + [0.03] * 2,
    gpu="laptop",
    memory_gib=16,
    name="mine",
)
network = dataclasses.replace(
    network,
    description="Invented for this lesson: three machines at home, three in an office, two at a friend's. Bandwidths "
    "are what contracts promise (home sends 40 Mbit/s, the friend 20), latencies round numbers, peaks guessed.",
)
lab.figures.link_matrix(network)

# %% [markdown]
# `lab.save(network, "mine.yaml")` keeps it. First of all, without the lab: which of the links will matter?
# Which devices would you put into one [data-parallel group](../docs/glossary.md#training-in-parallel), and which would
# you leave out?

# %%
lab.missions.show("capstone-network")

# %%
# answer = ...
# lab.missions.check("capstone-network", answer)

# %% [markdown]
# ## 2. Plan
#
# Say first, then ask. The shape is the planner's: how many stages, how many replicas, who stays idle.

# %%
job = lab.load_job("tiny", n_stages=None, n_replicas=None, global_batch=32)
plan = lab.plan(network, job, seed=0, steps=6)

# %%
lab.guess(
    "capstone-idle",
    "How many of the eight devices does the best plan leave idle?",
    of=(plan,),
    unit="devices",
    low=0,
    high=8,
)

# %%
lab.reveal("capstone-idle")
print(plan)
lab.figures.network(network, plan)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The [bound](../docs/glossary.md#planning) in brackets holds for every plan of this job's batch and micro-batch, in
# any shape. What keeps the plan from it, and what would every other place of a device cost?
#
# </details>

# %%
print(lab.explain(plan).text)

# %%
lab.missions.show("capstone-plan")

# %%
# answer = ...
# lab.missions.check("capstone-plan", answer)

# %% [markdown]
# ## 3. Predict and rehearse
#
# Write the prediction down before the run. A plan of many devices, or of a large model, is rehearsed in part:
# `workers=(2, 2)` runs two stages of two pipelines.

# %%
print(f"from drawn peaks: {lab.simulate(plan).iteration_s:.3f} s an iteration")
measured = lab.run(plan, iterations=5)
predicted = lab.simulate(plan, like=measured)
comparison = lab.compare(predicted, measured)

# %%
lab.guess(
    "capstone-peaks",
    "By how many per cent was the prediction from the drawn peaks off? (Of the prediction, without a sign.)",
    of=(lab.simulate, plan, measured),
    unit="%",
    low=0.1,
    high=1000,
)

# %%
lab.reveal("capstone-peaks")
print(f"from the profile taken before: {predicted.iteration_s:.3f} s; measured: {measured.iteration_s:.3f} s")
print(*comparison.verdict.split("; "), sep="\n")
lab.figures.gantt(predicted, against=measured, lanes=["compute"])

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Two predictions, two errors.** The first also claims how fast devices are, which you drew; on the virtual clock the
# computations are this machine's. The second claims only what follows from schedule, links and profile. Say in your
# report which of them you mean.
#
# </details>

# %%
lab.missions.show("capstone-run")

# %%
# answer = ...
# lab.missions.check("capstone-run", answer)

# %% [markdown]
# ## 4. What would others do?

# %%
found = lab.strategies(network, job, systems=["ddp", "megatron", "fsdp", "dt-fm", "dtfm-lab"], seconds=1)
print(found.sentence)
found.to_frame().set_index("title")[["iteration_s", "times", "n_stages", "n_replicas", "idle", "most", "reason"]]

# %% [markdown]
# ## 5. What would help?
#
# One thing that is 10 % better, at a time: what would your network gain most from?

# %%
lab.explain(plan).sensitivity().head(5)[["sentence"]]

# %% [markdown]
# ## 6. Report
#
# Two pages. Somebody with your files (`mine.yaml`, the plan, both traces) must be able to prove every number wrong.

# %%
report = pd.Series(
    {
        "devices": len(network),
        "shape": f"{plan.job.n_stages} stages x {plan.job.n_replicas} replicas",
        "idle": ", ".join(network.names[i] for i in plan.idle_devices) or "none",
        "iteration from drawn peaks": f"{plan.iteration_s:.3f} s",
        "at most faster with any plan": f"{plan.speed_up_left:.2f} times",
        "predicted with the profile": f"{predicted.iteration_s:.3f} s",
        "measured, virtual clock": f"{measured.iteration_s:.3f} s",
        "error": f"{comparison.iteration_error:+.1%}",
        "fastest of the systems asked": found.best.title,
    },
    name="mine",
)
report.to_frame()

# %% [markdown]
# How it is graded, of 20 points:
#
# 1. **The network, 4.** All for numbers each kind of which has a source or a measurement, and doubts that are named;
#    half where some are guessed and said to be; none without sources.
# 2. **The plan, 4.** All for what binds it, why a device is where it is, and how near its bound it is; half for the
#    planner's plan without a reason; none for one that does not fit.
# 3. **Prediction and run, 5.** All for a prediction written down before the run, its clock, what agreement proves and
#    what not; half for both numbers without a word of what is by construction; none for a fit called a prediction.
# 4. **The error, 3.** All for an action, link or device, and a cause that a second run tests; half for a name alone;
#    none for a percentage alone.
# 5. **Other systems, 2.** All for the assumption that decides their order, changed; half for a table.
# 6. **The report, 2.** All where every number can be computed again from the files; half where most can.
#
# A large error that is explained earns more than a small one that is not.
#
# > **Takeaway.** A number that somebody else can recompute is worth more than a small error.

# %%
lab.missions.board("18_capstone")
