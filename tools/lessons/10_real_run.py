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
# # The real run
#
# **Was the prediction right?**
#
# A plan and a schedule make a prediction. This lesson tries to prove it wrong: real torch processes train a small GPT
# under that very plan, one process a device, over links as slow as drawn, and every computation and message is
# measured.
#
# Afterwards you can
#
# - run a plan for real and lay the measurement over its prediction, action by action;
# - say which clock a run counts by, what its agreement proves, and what is exact by construction;
# - tell who is late by their own doing from who waits for others;
# - refit links and computations from a run, and judge the fit on iterations that it has not seen.
#
# 40 minutes. Needs [08, schedules](08_schedules.ipynb). Words: [worker](../docs/glossary.md#running-and-comparing),
# [clock, profile, suspect, refit](../docs/glossary.md#running-and-comparing).

# %%
import pandas as pd

import dtfm_lab as lab

# %% [markdown]
# ## 1. Predict, then run
#
# Eight laptops in a lecture hall, and `tiny`: a GPT of 1.7 million parameters on bytes of text, in two stages of two
# replicas on four of them. Nothing has run yet, so the first prediction knows only FLOP and drawn peaks.

# %%
hall = lab.load_topology("lecture-hall")
job = lab.load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
plan = lab.plan(hall, job, objective="communication", seed=0, steps=10)
from_peaks = lab.simulate(plan, "1f1b")
print(f"from peaks and drawn links: {from_peaks.iteration_s:.3f} s an iteration")
pd.DataFrame(plan.stages, index=["stage 0", "stage 1"], columns=["pipeline 0", "pipeline 1"])

# %% [markdown]
# `lab.start` returns at once with a handle. Each worker is *calibrated* first: it times its computations, so that there
# is a profile *before* the first iteration. Then come the spans of every action and the loss of every iteration.

# %%
run = lab.start(plan, "1f1b", iterations=10, evaluate_every=5)
measured = run.wait()
lab.figures.losses(measured)

# %% [markdown]
# Whoever knows nothing of the text pays $\ln 256 = 5.55$ nats per token, which here is a byte. Whoever knows how
# frequent each byte is, and nothing of what came before, pays the dashed line. Below it a model has begun to use
# context.
#
# Now predict *this* run: `like=measured` takes its schedule, its links, and the profile from before the first
# iteration. Spans of the run itself are never looked at; else it would be no prediction.

# %%
predicted = lab.simulate(plan, like=measured)
comparison = lab.compare(predicted, measured)

# %%
lab.guess(
    "run-error",
    "By how many per cent of the prediction does the measured iteration differ from it? (Without a sign.)",
    of=(predicted, measured),
    unit="%",
    low=0.01,
    high=100,
)

# %%
lab.reveal("run-error")
print(f"predicted {predicted.iteration_s:.4f} s, measured {measured.iteration_s:.4f} s, off by {comparison.error_text}")
lab.figures.gantt(predicted, against=measured, lanes=["compute"])

# %% [markdown]
# <details><summary>After your guess</summary>
#
# A prediction is a sum along a chain: what waits for what is known from the schedule, what a message
# takes from the drawn link. Only single computations had to be timed. Which of these could be wrong? That depends on
# what the seconds are.
#
# </details>
#
# ## 2. What does it prove?
#
# Workers share the cores of this machine, and the links are drawn, not there. How, then, can anything be measured in
# seconds? By one of three clocks.
#
# | clock | a computation takes | a message takes | exact by construction | agreement proves |
# | --- | --- | --- | --- | --- |
# | `virtual` | its own CPU seconds | its emulated link's time | messages | order, waiting, profile |
# | `paced` | the drawn device's time | its emulated link's time | both | that it works in time |
# | `real` | wall seconds | loopback's time | nothing | this machine, no drawn link |
#
# On the *virtual* clock nobody waits: seconds are added up, worker by worker, and messages carry them along. The paced
# clock pads each computation to the drawn device's time, so its agreement says nothing about the cost model.
#
# %%
lab.guess(
    "run-which-suspect",
    "This run counted by the virtual clock. What, of its actions, can differ from the prediction?",
    of=(comparison,),
    choices=("messages", "computations"),
)

# %% [markdown]
# Here are the errors of both, messages first.

# %%
lab.reveal("run-which-suspect")
comparison.links[["count", "predicted_s", "measured_s", "seconds_by", "relative_error"]]

# %%
lab.reveal("run-which-suspect")
comparison.devices[["predicted_s", "measured_s", "relative_error"]]

# %% [markdown]
# <details><summary>After your guess</summary>
#
# An emulated message takes what the drawn link says, to the last digit. A run that emulates a link as drawn cannot
# prove that link wrong. Computations are timed, so they can differ.
#
# </details>
#
# On the real clock nothing is emulated. Workers that share cores wait for a core, and how long no profile can know.

# %%
on_real = lab.run(plan, "1f1b", iterations=3, clock="real")
real_error = lab.compare(lab.simulate(plan, like=on_real), on_real).iteration_error

# %%
lab.guess(
    "run-real-clock",
    "And on the real clock, on this machine: how many per cent is the iteration off? (Without a sign.)",
    of=(real_error,),
    unit="%",
    low=0.01,
    high=1000,
)

# %%
lab.reveal("run-real-clock")
print(f"real clock: off by {real_error:+.0%}")
print("the same losses:", on_real.context.losses == measured.context.losses[:3])

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The losses do not know about clocks: they are the same to the last bit.
#
# </details>
#
# ## 3. Be surprised
#
# Networks are drawn from what a provider promises. So let one link be secretly forty times slower than drawn:
# `emulated=` runs the plan on another network than the one it is predicted on.

# %%
source, target = plan.pipelines[1]
here, there = hall.index(source), hall.index(target)
slow = hall.bandwidth_bytes_per_s[here, there] / 40
truth = hall.with_link(source, target, bandwidth_bytes_per_s=slow, one_way=True)
surprise = lab.run(plan, "1f1b", iterations=6, emulated=truth)
off = lab.compare(lab.simulate(plan, like=surprise), surprise)
own_delay_s = float((off.links["measured_s"] - off.links["predicted_s"]) @ off.links["count"])
print(f"{source} -> {target}: its messages took {own_delay_s:.3f} s longer in an iteration, added up")

# %%
lab.guess(
    "run-hidden-delay",
    "How much longer did the iteration become, as a share of that delay, in per cent?",
    of=(off, own_delay_s),
    unit="%",
    low=0,
    high=300,
)

# %%
lab.reveal("run-hidden-delay")
print(f"the iteration became {off.error_s:.3f} s longer: {off.error_s / own_delay_s:.0%} of it")
print(*off.suspects["sentence"], sep="\n")
lab.figures.blame(off)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why another number?** Of a delay, what is hidden behind other work costs nothing; what lies on the [critical
# path](../docs/glossary.md#schedules-and-simulation) costs all of itself. Everybody downstream was late as well, but
# not by their own doing. The blame is found by moving all durations evenly from predicted to measured: at each moment
# the iteration grows by what grows on the chain that is longest then. Waiting for others costs nobody anything.
#
# </details>
#
# ## 4. Refit
#
# What would have been right? A refit finds latency and bandwidth of every link, and the seconds of every computation,
# from the measured spans, with intervals. A fit always suits what it was fitted to; so the last of its three errors is
# on iterations that it has not seen.

# %%
better = off.refit(plan, lab.simulate)
print(better.sentence)
link = better.table.query("of == 'link' and what == 'bandwidth_bytes_per_s'").set_index("name")
link[["drawn", "fitted", "low", "high", "count"]]

# %%
found = link.loc[f"{source} -> {target}", "fitted"]
assert abs(found / slow - 1) < 0.01, "the secret bandwidth, found from the run"

# %% [markdown]
# `better.topology` is a network to plan on anew. Would another plan have been better on the network that there really
# is?

# %%
on_truth = {
    "the plan": lab.evaluate(better.topology, job, rank_map=plan.rank_map),
    "planned anew": lab.plan(better.topology, job, objective="iteration", seed=0, steps=2),
}
pd.DataFrame(
    {name: {"iteration_s": lab.simulate(one).iteration_s, "stages": one.stages} for name, one in on_truth.items()}
).T

# %% [markdown]
# ## What a run does not prove
#
# - **A fit is no prediction.** Look at its error on iterations that it has not seen.
# - **Agreement on the paced clock** is partly by construction.
# - **A plan that is too large runs in part**: `lab.start(plan, workers=(4, 2))` rehearses four stages of two pipelines,
#   with a small model in place of a large one and messages as long as the real one's. It tells nothing of how fast a
#   V100 is. [The capstone](18_capstone.ipynb) does it.
# - **CPU seconds are not quite constant** either: what else runs shares caches and memory. Suspects below 2 % of an
#   iteration are not named.
#
# More: [the real run](../docs/run-for-real.md), on several hosts too; from the shell `dtfm-lab run plan.json -o
# measured.json` and `dtfm-lab compare predicted.json measured.json --refit plan.json`.
#
# > **Takeaway.** Name the clock before you quote an error. What a run emulates agrees by construction. Only what it
# > measures can prove a prediction wrong.
#
# ## Missions

# %%
lab.missions.show("predicted-within-5")

# %%
# given = lab.missions.given("predicted-within-5")
# answer = ...
# lab.missions.check("predicted-within-5", answer)

# %%
lab.missions.show("mystery-link-measured")

# %%
# given = lab.missions.given("mystery-link-measured")
# answer = ...
# lab.missions.check("mystery-link-measured", answer)

# %% [markdown]
# `lab.missions.hint(name)` helps a step further each time, `lab.missions.answer(name)` works it out.

# %%
lab.missions.board("10_real_run")
