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
# # Compression and local updates
#
# **What does it cost the loss to send less?**
#
# On slow links, an iteration is mostly messages. You can make them smaller, or rarer. Both save seconds per iteration,
# and both change what the model learns. So seconds per iteration are the wrong measure. What counts is *seconds to a
# loss*, and only real training shows them.
#
# Afterwards you can
#
# - compute how many bytes compression and local updates save, and what they leave;
# - measure what they cost the loss, in a real run;
# - compare ways of training by seconds to a loss, not by seconds per iteration.
#
# 45 minutes. Needs [10, the real run](10_real_run.ipynb). Five small runs train here, each with four workers, on the
# [virtual clock](../docs/glossary.md#running-and-comparing). Computing counts CPU seconds of this machine, and a
# message the time of its specified link.

# %%
import pandas as pd
import plotly.graph_objects as go

import dtfm_lab as lab

hall = lab.load_topology("lecture-hall")
job = lab.load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=2)
stages = [["ada", "edsger"], ["alan", "grace"]]
plan = lab.evaluate(hall, job, stages=stages)
N_ITERATIONS = 24


def train(**changes):
    """The same data, seed and devices; only what is sent differs."""
    return lab.run(lab.with_job(plan, **changes), "1f1b", iterations=N_ITERATIONS)


runs = {"plain": train()}
plain = runs["plain"]
print(f"{plain.iteration_s:.3f} s an iteration")
plain.critical_summary().query("by == 'what'").round(3)

# %% [markdown]
# The two replicas of each stage sit at opposite ends of the hall. Most of an iteration is averaging gradients.
#
# ## 1. Smaller messages
#
# **What.** With `int8`, a gradient takes one byte per number instead of four. Each block of 256 numbers shares a scale
# of 4 bytes, and each number is rounded to one of 255 multiples of it
# ([Dettmers et al. 2022](https://arxiv.org/abs/2110.02861)). That is $4 \cdot 256 / (256 + 4) = 3.94$ times fewer
# bytes.
#
# **What it leaves.** Computing, latency and hops remain. Encoding and decoding take extra time at both ends.

# %%
runs["gradients int8"] = train(gradient_compression="int8")

# %%
lab.guess(
    "compression-times-shorter",
    "Gradients take 3.94 times fewer bytes. How many times shorter is the measured iteration?",
    of=(plain, runs["gradients int8"]),
    unit="times",
    low=1,
    high=4,
)

# %%
lab.guess(
    "compression-and-the-loss",
    f"The loss after {N_ITERATIONS} iterations is {plain.context.losses[-1]:.3f} without rounding. By how many per "
    "cent does it differ, up or down, when every gradient is rounded to one byte?",
    of=(plain, runs["gradients int8"]),
    unit="%",
    low=0.001,
    high=30,
)

# %%
lab.reveal("compression-times-shorter", "compression-and-the-loss")
runs["everything int8"] = train(compression="int8")


def result(trace):
    losses, held_out = trace.context.losses, trace.context.held_out
    return {"iteration_s": trace.iteration_s, "training_loss": losses[-1], "held_out_loss": held_out[-1][1]}


pd.DataFrame({name: result(trace) for name, trace in runs.items()}).T.round(4)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why so little.** Rounding errors have no direction, so they cancel over many numbers and steps. The batch's noise is
# much larger. `compression="int8"` also rounds activations and their gradients, which adds noise to every forward. In
# larger models, activations with outliers suffer first ([Dettmers et al. 2022](https://arxiv.org/abs/2208.07339)). Two
# stages of a small model do not prove the opposite.
#
# **Why not 3.94 times.** Amdahl's law: only the compressed part gets shorter.
#
# </details>
#
# ## 2. Rarer messages
#
# **What.** With *local updates* (`synchronise_every=H`), each replica takes H steps alone. Then the replicas average
# how their parameters have changed ([McMahan et al. 2017](https://arxiv.org/abs/1602.05629);
# [DiLoCo, Douillard et al. 2023](https://arxiv.org/abs/2311.08105)). DiLoCo adds Nesterov momentum to the average.
# Workers here do not. Messages are as large as before and H times rarer. Between two averages the replicas drift apart.

# %%
for every in (4, 12):
    runs[f"H = {every}"] = train(synchronise_every=every)
pd.DataFrame({name: result(trace) for name, trace in runs.items()}).T.round(4)

# %%
figure = go.Figure()
for name, trace in runs.items():
    seconds = trace.iteration_ends_s.cumsum()
    figure.add_scatter(x=seconds, y=list(trace.context.losses), name=name, mode="lines")
figure.update_layout(title="training loss over the seconds of the run", height=380, width=760)
figure.update_xaxes(title_text="seconds on the run's clock")
figure.update_yaxes(title_text="loss (nats per token)")
lab.figures.theme(figure, dark=False)

# %% [markdown]
# By iterations, rounding hardly changes the loss, and local updates are slightly behind the plain run. By seconds, the
# plain run is last. The order depends on the links, and you can predict it without training again:
#
# ## 3. Seconds to a loss
#
# Losses do not depend on links. The same steps give the same losses on any network, to the last digit. So iterations to
# a loss are measured once, above. For every other network, seconds per iteration are simulated, from profiles taken
# before the runs. Their product is the seconds to the loss. (Rows use the passes of the plain run, so that this
# machine's noise does not decide. `everything int8` has its own passes, which encode messages, so its row includes
# noise.)

# %%
LOSS = 3.1


def iterations_to(trace, loss):
    """Iterations until the mean training loss of five of them is below."""
    means = pd.Series(trace.context.losses).rolling(5).mean()
    return int(means.index[means < loss][0]) + 1


CHANGES = {
    "plain": {},
    "gradients int8": {"gradient_compression": "int8"},
    "everything int8": {"compression": "int8"},
    "H = 4": {"synchronise_every": 4},
    "H = 12": {"synchronise_every": 12},
}


def profile_of(name):
    """Seconds of the plain run's passes and steps, and of what is computed besides in this run."""
    own = runs[name].profile_frame()
    if name == "everything int8":
        return own
    same, passes = plain.profile_frame(), ["F", "B", "STEP"]
    return pd.concat([same[same.kind.isin(passes)], own[~own.kind.isin(passes)]], ignore_index=True)


def seconds_an_iteration(name, faster):
    """Simulated, on links that are so many times faster."""
    network = hall.scaled(bandwidth=faster, latency=1 / faster)
    on_it = lab.evaluate(network, job.with_fields(**CHANGES[name]), stages=stages)
    return lab.simulate(on_it, "1f1b", profile=profile_of(name)).iteration_s


needed = {name: iterations_to(trace, LOSS) for name, trace in runs.items()}
predicted = {name: seconds_an_iteration(name, 1) for name in runs}
measured = {name: trace.iteration_s for name, trace in runs.items()}
pd.DataFrame({f"iterations to {LOSS}": needed, "predicted_s": predicted, "measured_s": measured}).round(3)

# %%
sooner = needed["plain"] * predicted["plain"] / needed["H = 12"] / predicted["H = 12"]
lab.guess(
    "local-updates-on-fast-links",
    f"Here H = 12 comes to the loss {sooner:.1f} times sooner than the plain run. On links a thousand times faster, "
    "how many times sooner (below 1: later)?",
    of=(needed, seconds_an_iteration),
    unit="times",
    low=0.3,
    high=10,
)

# %%
lab.reveal("local-updates-on-fast-links")
to_loss = pd.DataFrame(
    {
        f"{faster} x": {name: needed[name] * seconds_an_iteration(name, faster) for name in runs}
        for faster in (1, 10, 100, 1000)
    }
)
print(f"seconds to a loss of {LOSS}, on links so many times faster:")
to_loss.round(2)

# %%
lab.reveal("local-updates-on-fast-links")
print("times sooner than the plain run:")
(to_loss.loc["plain"] / to_loss).round(2)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **When does H pay?** With $c$ seconds of computing and $m$ of averaging, an iteration takes $c + m / H$, and $n_H$
# iterations reach the loss. H pays if $n_H (c + m / H) < n_1 (c + m)$. On faster links $m$ goes to 0, and only $n_H$
# against $n_1$ remains. Rarer averages then gain nothing if they need as many iterations or more. Rounding has the same
# limit for another reason: encoding takes computing time, which no link gives back.
#
# Three warnings. A loss after 24 iterations of a small model says little about long training: with large H the gap may
# close or grow. A good H depends on the learning rate, the same for all here, and on the optimiser that applies the
# averages. And your machine computes the seconds, so where the columns cross is *your* measurement.
#
# </details>
#
# ## 4. The two together
#
# Fewer bytes and fewer messages multiply. [14, systems compared](14_systems.ipynb) asks DiLoCo for its best plan, and
# trains it. [15, co-design](15_codesign.ipynb) shows which H and which batch make a network compute-bound. For the
# hall, the simulator predicts:

# %%
both = lab.evaluate(hall, job.with_fields(compression="int8", synchronise_every=8), stages=stages)
both_s = lab.simulate(both, "1f1b", profile=runs["everything int8"].context.profile).iteration_s
print(f"int8 and H = 8: {both_s:.3f} s an iteration, {plain.iteration_s / both_s:.1f} times shorter than plain")

# %% [markdown]
# > **Takeaway.** Remember to compare by seconds to a loss. Fewer bytes and rarer averages shorten an iteration, but may
# > need more iterations.
#
# ## Missions

# %%
lab.missions.show("times-fewer-bytes")

# %%
# answer = ...
# lab.missions.check("times-fewer-bytes", answer)

# %%
lab.missions.show("which-h")

# %%
# answer = ...
# lab.missions.check("which-h", answer)

# %%
lab.missions.show("sooner-at-the-loss")

# %%
# answer = ...
# lab.missions.check("sooner-at-the-loss", answer)

# %% [markdown]
# `lab.missions.hint(name)` gives one more hint at each call. `lab.missions.answer(name)` shows a worked answer.

# %%
lab.missions.board("13_compression_and_local_updates")
