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
# On slow links an iteration is mostly messages. They can be made smaller, or rarer. Both save seconds an iteration, and
# both change what is learnt. So seconds an iteration are the wrong question: what counts is *seconds to a loss*, and
# that takes training for real.
#
# Afterwards you can
#
# - compute how many bytes compression and local updates save, and what they leave;
# - measure what they cost the loss, in a real run;
# - compare ways of training by seconds to a loss, not by seconds an iteration.
#
# 45 minutes. Needs [10, the real run](10_real_run.ipynb). Five small runs train here, each with four workers, on the
# [virtual clock](../docs/glossary.md#running-and-comparing): computing counts the CPU seconds of this machine, a
# message what its drawn link needs.

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
# Both replicas of a stage sit at two ends of the hall, and most of an iteration is averaging gradients.
#
# ## 1. Smaller messages
#
# **What.** A gradient is sent as one byte a number (`int8`) instead of four: blocks of 256 numbers share a scale of 4
# bytes, each number is rounded to one of 255 multiples of it ([Dettmers et al.
# 2022](https://arxiv.org/abs/2110.02861)). That is $4 \cdot 256 / (256 + 4) = 3.94$ times fewer bytes.
#
# **What it leaves.** Computing, latency, hops, and coding itself, which takes time at both ends.

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
# **Why so little.** Rounding errors have no direction: over many numbers and steps they cancel, where the batch's own
# noise is larger by far. With `compression="int8"` activations and their gradients are rounded as well. These are noise
# in every forward, and on larger models activations with outliers suffer first ([Dettmers et al.
# 2022](https://arxiv.org/abs/2208.07339)); two stages of a small model are no proof of the opposite.
#
# **Why not 3.94 times.** Amdahl's law: only the part that is shortened gets shorter.
#
# </details>
#
# ## 2. Rarer messages
#
# **What.** With `synchronise_every=H`, *local updates*, each replica takes H steps alone; then the replicas average how
# their parameters have changed ([McMahan et al. 2017](https://arxiv.org/abs/1602.05629); [DiLoCo, Douillard et al.
# 2023](https://arxiv.org/abs/2311.08105), with Nesterov momentum outside, which workers here do not have). Messages are
# as large as before and H times rarer. Between two averagings the replicas drift apart, and that is no rounding error.

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
# By iterations the plain run is below the others, by seconds it is last. Which way round it comes depends on the links,
# and that can be worked out without training again:
#
# ## 3. Seconds to a loss
#
# Losses know nothing of links: the same steps give the same losses on any network, to the last digit. So iterations to
# a loss are measured once, above, and seconds an iteration are simulated for every other network, from the profiles
# that were taken before the runs. Their product is the seconds to the loss. (Passes take what they took in the plain
# run, for all but `everything int8`, whose passes code messages: the noise of this machine shall not decide.)

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
# **When does H pay?** With $c$ seconds of computing and $m$ of averaging an iteration takes $c + m / H$, and $n_H$
# iterations are needed. H pays where $n_H (c + m / H) < n_1 (c + m)$. As links get faster $m$ goes to 0, and what is
# left is $n_H$ against $n_1$: no gain where rarer averages need as many iterations or more. Rounding has the same end
# by another way: coding takes computing time, which no link gives back.
#
# Three warnings. A loss after two dozen iterations of a small model says little about the end of a long training: with
# large H the gap may close or grow. A good H depends on the learning rate, which is the same for all here, and on the
# outer optimiser. And seconds of computing are this machine's, so where the columns cross is *your* measurement.
#
# </details>
#
# ## 4. The two together
#
# Fewer bytes and fewer messages multiply. [14, systems compared](14_systems.ipynb) asks DiLoCo for its best
# plan, and trains it; [15, co-design](15_codesign.ipynb) shows which H and which batch make a network
# compute-bound. Here is what is predicted for the hall:

# %%
both = lab.evaluate(hall, job.with_fields(compression="int8", synchronise_every=8), stages=stages)
both_s = lab.simulate(both, "1f1b", profile=runs["everything int8"].context.profile).iteration_s
print(f"int8 and H = 8: {both_s:.3f} s an iteration, {plain.iteration_s / both_s:.1f} times shorter than plain")

# %% [markdown]
# > **Takeaway.** Fewer bytes and rarer averages shorten an iteration. Only the seconds to a loss say whether training
# > is faster.
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
# `lab.missions.hint(name)` helps a step further each time, `lab.missions.answer(name)` works it out.

# %%
lab.missions.board("13_compression_and_local_updates")
