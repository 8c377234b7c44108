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
# You repeat the course on your own network. You describe it, plan on it, predict a run, and rehearse it for real. Then
# you explain the error, ask what other systems would do, and write a report. Each step has a cell to change. First
# replace the network, which is an example.
#
# Afterwards you can
#
# - describe a network that you know, with the source of each number;
# - plan on it within a factor of a proven bound, and say what limits the plan;
# - predict a real run of the plan, or of a part, and explain the error;
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
# Describe at least six devices. `ping` measures a round trip, and half of it is a
# [latency](../docs/glossary.md#the-nouns). `iperf3 -c HOST` measures a bandwidth, and `-R` the other direction. Between
# your hosts, `dtfm-lab network probe HOST HOST` measures both over ssh. If you cannot measure, use what the provider
# promises, and say so in the description.

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
# `lab.save(network, "mine.yaml")` keeps it. First answer without the lab: which links will matter? Which devices would
# you put into one [data-parallel group](../docs/glossary.md#training-in-parallel), and which would you leave out?

# %%
lab.missions.show("capstone-network")

# %%
# answer = ...
# lab.missions.check("capstone-network", answer)

# %% [markdown]
# ## 2. Plan
#
# Guess first, then ask the planner. It chooses the shape: how many stages, how many replicas, and which devices stay
# idle.

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
# The [bound](../docs/glossary.md#planning) in brackets holds for every plan of this job's batch and micro-batch, in any
# shape. The next cell says what limits the plan, and which devices stay idle.
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
# Write the prediction down before the run. You can rehearse a part of a large plan: `workers=(2, 2)` runs two stages of
# two pipelines.

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
# **Two predictions, two errors.** The first uses your drawn peaks, but this machine does the computing. The second uses
# this machine's profile, so it tests only the schedule and the links. Say in your report which one you mean.
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
# One link or device at a time becomes 10 % better, or all with the same GPU. Which would help your network most?

# %%
lab.explain(plan).sensitivity().head(5)[["sentence"]]

# %% [markdown]
# ## 6. Report
#
# Write two pages. A reader with your files (`mine.yaml`, the plan, both traces) must be able to prove every number
# wrong.

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
# Your report earns up to 20 points:
#
# 1. **The network, 4.** All if each kind of number has a source or a measurement, and you name your doubts. Half if you
#    guess some, and say so. None without sources.
# 2. **The plan, 4.** All if you say what limits it, why a device has its place, and how near the bound it is. Half
#    without a reason. None if it does not fit.
# 3. **Prediction and run, 5.** All if you predicted before the run, name its clock, and say what the agreement does and
#    does not prove. Half for both numbers, if you do not say what agrees by construction. None if you call a fit a
#    prediction.
# 4. **The error, 3.** All for an action, a link or device, and a cause that a second run tests. Half for a name alone.
#    None for a percentage alone.
# 5. **Other systems, 2.** All if you find the assumption that decides their order, and change it. Half for a table.
# 6. **The report, 2.** All if every number can be computed again from the files. Half if most can.
#
# A large error that you explain earns more than a small one that you do not.
#
# > **Takeaway.** A number that somebody else can recompute is worth more than a small error.

# %%
lab.missions.board("18_capstone")
