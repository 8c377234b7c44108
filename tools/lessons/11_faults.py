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
# # Faults and churn
#
# **What happens when a device dies?**
#
# Volunteers switch off their computers, people close laptops, and clouds take spot instances away. Devices that come
# and go are called *churn*. Here you kill, pause and slow the workers of a real run. The losses say whether training
# noticed.
#
# Afterwards you can
#
# - say where a lost worker's state comes from: a peer, a checkpoint, or nowhere;
# - kill, pause and slow workers of a run, and read what each cost;
# - show whether the losses change, and name what would change them;
# - decide how often to write a checkpoint, and which churn a plan survives.
#
# 35 minutes. Needs [10, the real run](10_real_run.ipynb). Words: [data-parallel
# group](../docs/glossary.md#training-in-parallel), [worker, checkpoint](../docs/glossary.md#running-and-comparing).

# %%
import math
import tempfile
from pathlib import Path

import pandas as pd
import plotly.express as px

import dtfm_lab as lab

# %% [markdown]
# ## 1. A kill
#
# `tiny` trains in two stages of two replicas, on four laptops of a lecture hall. The first run is undisturbed.

# %%
hall = lab.load_topology("lecture-hall")
job = lab.load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
plan = lab.plan(hall, job, objective="communication", seed=0, steps=10)
calm = lab.run(plan, "1f1b", iterations=10)
pd.DataFrame(plan.stages, index=["stage 0", "stage 1"], columns=["pipeline 0", "pipeline 1"])

# %% [markdown]
# Now repeat it. After two iterations, kill one laptop of stage 0, as a power cut would. Half the workers of its stage
# are gone, with the parameters, gradients and optimiser states in their memory.

# %%
victim = plan.stages[0][0]
run = lab.start(plan, "1f1b", iterations=8)
run.wait_for(2)
run.kill(victim)
killed = run.wait()

# %%
lab.guess(
    "faults-loss-after-kill",
    "By how much do the losses of this run differ from those of the undisturbed one, at most, in thousandths of a nat?",
    of=(calm, killed),
    unit="thousandths",
    low=0,
    high=1000,
)

# %%
lab.reveal("faults-loss-after-kill")
table = pd.DataFrame({"undisturbed": calm.context.losses[:8], f"{victim} killed": killed.context.losses})
table.assign(difference=table.diff(axis=1).iloc[:, 1])

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why nothing at all?** The two devices of a [data-parallel group](../docs/glossary.md#training-in-parallel) hold the
# same stage. They average their gradients in every iteration and make the same step. So after each iteration they are
# equal, bit for bit. A replacement takes the state of the peer. All workers return to the start of the iteration, and
# repeat it with the same data.
#
# </details>

# %%
pd.DataFrame(killed.context.faults)

# %% [markdown]
# `lost_s` is wall time on this machine, from noticing the loss until the run continued. The run started a process,
# copied the state and began again. On a real network, the state must travel, too. How long would that take here?

# %%
parameters = lab.memory(plan).to_frame().set_index("device").loc[victim]
state_bytes = float(parameters["parameters_bytes"] + parameters["optimizer_bytes"])
peer = killed.context.faults[0].state_from
there_s = float(hall.transfer_s(state_bytes)[hall.index(peer), hall.index(victim)])
print(
    f"{state_bytes / 1e6:.1f} MB from {peer} to {victim}: {there_s:.2f} s, {there_s / calm.iteration_s:.1f} iterations"
)

# %% [markdown]
# ## 2. Stand still, or crawl
#
# The others notice at once when a process dies, because its connections close. A process that stands still, like a
# closed laptop, looks like a slow one. How long should the others wait for it?

# %%
run = lab.start(plan, "1f1b", iterations=8)
run.wait_for(2)
run.pause(victim)
paused = run.wait()
assert paused.context.losses == calm.context.losses[:8]
pd.DataFrame(paused.context.faults)[["device", "how", "state_from", "lost_s"]]

# %% [markdown]
# A worker that is only slow does not fail. All others wait for it in every iteration.

# %%
run = lab.start(plan, "1f1b", iterations=8)
run.wait_for(1)
run.slow(victim, 4)
slowed = run.wait()
seconds = {
    "undisturbed": calm.iteration_s,
    f"{victim} killed once": killed.iteration_s,
    f"{victim} paused once": paused.iteration_s,
    f"{victim} four times slower": slowed.iteration_s,
}

# %%
lab.guess(
    "faults-slow-device",
    f"{victim} computes four times slower from the second iteration on. By what factor does the iteration get longer?",
    of=(slowed, calm),
    unit="times",
    low=1,
    high=10,
)

# %%
lab.reveal("faults-slow-device")
print(*lab.compare(lab.simulate(plan, like=slowed), slowed).suspects["sentence"], sep="\n")
pd.Series(seconds).round(3)

# %%
lab.reveal("faults-slow-device")
lab.figures.gantt(slowed, lanes=["compute"])

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The figure shows one measured iteration, one row per device. The slow device computes pass after pass without a pause.
# White in the other rows is waiting, mostly for the slow one. At the end, all wait for the messages of the averages.
#
# **Why less than four?** Only the computation of one device takes longer. Messages do not. But you pay for a straggler
# in every iteration, and for a kill only once. (`iteration_s` times each iteration as it was finally done.) A straggler
# that stays costs more than a death after this many iterations:
#
# </details>

# %%
extra_s = slowed.iteration_s - calm.iteration_s
recovery_s = there_s + calm.iteration_s
print(
    f"{extra_s:.3f} s more in each, against {recovery_s:.2f} s once: after {math.ceil(recovery_s / extra_s)} iterations"
)

# %% [markdown]
# ## 3. No peer left
#
# If a stage loses every device, no worker has its parameters. Without a checkpoint the run ends, in one line:

# %%
run = lab.start(plan, "1f1b", iterations=8)
run.wait_for(2)
for device in plan.stages[1]:
    run.kill(device)
try:
    run.wait()
except lab.LabError as error:
    print(error)

# %% [markdown]
# With a checkpoint, all workers return to it, even those that lost nothing. A stage from iteration 4 and one from
# iteration 5 do not fit together. The run trains the lost iterations again, on the same data.

# %%
checkpoints = tempfile.TemporaryDirectory()
run = lab.start(plan, "1f1b", iterations=8, checkpoint_folder=checkpoints.name, checkpoint_every=2)
run.wait_for(3)
for device in plan.stages[1]:
    run.kill(device)
restored = run.wait()
assert restored.context.losses == calm.context.losses[:8]
pd.DataFrame(restored.context.faults)[["iteration", "device", "state_from", "lost_s"]]

# %% [markdown]
# A checkpoint is a folder. Each stage has a file with its parameters and optimiser state, and `checkpoint.json`
# describes them. It does not matter which device held which stage. A run can also continue under another plan.

# %%
print(*sorted(path.relative_to(checkpoints.name) for path in Path(checkpoints.name).glob("*/*"))[:4], sep="\n")
other_job = lab.load_job("tiny", n_stages=4, n_replicas=1, global_batch=8, microbatch=1)
other = lab.plan(hall, other_job, objective="communication", steps=5)
resumed = lab.run(other, "gpipe", iterations=2, resume_from=checkpoints.name)
checkpoints.cleanup()
pd.DataFrame({"2 x 2, 1f1b": calm.context.losses[8:], "4 x 1, gpipe, resumed": resumed.context.losses})

# %% [markdown]
# Here the last digits may differ: another cut and another order add the same gradients up in another order.
#
# ## 4. How often?
#
# You write a checkpoint every $T$ seconds, and each takes $c$ seconds. Writing costs the share $c/T$. A failure, once
# in $M$ seconds, loses half an interval on average: $T/2M$. The sum is smallest where both are equal, at $T=\sqrt{2cM}$
# ([Young 1974](https://doi.org/10.1145/361147.361115)). Use the $M$ of the whole system. If each of 64 devices fails
# once a month, *some* device fails every 11 hours.

# %%
month_s, devices, write_s = 30 * 86_400, 64, 30
between_s = month_s / devices
best_s = math.sqrt(2 * write_s * between_s)
print(f"a failure every {between_s / 3600:.1f} hours, a checkpoint best every {best_s / 60:.0f} minutes")
shares = pd.DataFrame({"minutes": [1.1**k for k in range(66)]})
shares["writing"] = 100 * write_s / 60 / shares["minutes"]
shares["thrown away"] = 100 * 60 * shares["minutes"] / 2 / between_s
shares["lost in all"] = shares["writing"] + shares["thrown away"]
title = "Time lost to writing checkpoints, and to failures between them"
figure = px.line(shares, x="minutes", y=["writing", "thrown away", "lost in all"], log_x=True, title=title)
figure.update_layout(
    xaxis_title="minutes from one checkpoint to the next", yaxis_title="% of the time", legend_title=""
)
figure.update_xaxes(tickvals=[1, 3, 10, 30, 100, 300]).update_yaxes(range=[0, 20])
figure.add_vline(best_s / 60, line_dash="dot")

# %% [markdown]
# ## 5. Which churn does a plan survive?
#
# A stage is lost if the devices of all its $D$ replicas are gone before a replacement has the state. Let each device be
# away for a share $p$ of the time, independently of the others. Then some of $S$ stages has no device with probability
# $1-(1-p^D)^S$:

# %%
away = 0.05
shapes = [(32, 2), (16, 4), (8, 8)]
pd.Series({f"{S} stages x {D} replicas": 1 - (1 - away**D) ** S for S, D in shapes}, name="some stage has nobody").map(
    "{:.2e}".format
)

# %% [markdown]
# Every row has 64 devices. More replicas hold more copies. More stages hold smaller ones. This lesson needs equal
# peers. With [local updates](13_compression_and_local_updates.ipynb), each replica has its own optimiser state. With
# ZeRO, each holds only a shard of that state. Then only a checkpoint helps. Some systems plan for churn: in SWARM
# ([Ryabinin et al. 2023](https://arxiv.org/abs/2301.11913)), any device of a stage takes any micro-batch.
#
# > **Takeaway.** Remember that a peer has the same state, so a kill costs seconds and no training. Without a peer, only
# > a checkpoint helps. A straggler that stays costs more than a device that dies.
#
# ## Missions

# %%
lab.missions.show("survive-a-kill")

# %%
# given = lab.missions.given("survive-a-kill")
# answer = ...
# lab.missions.check("survive-a-kill", answer)

# %%
lab.missions.show("checkpoint-every")

# %%
# given = lab.missions.given("checkpoint-every")
# answer = ...
# lab.missions.check("checkpoint-every", answer)

# %% [markdown]
# `lab.missions.hint(name)` gives one more hint at each call. `lab.missions.answer(name)` shows a worked answer.

# %%
lab.missions.board("11_faults")
