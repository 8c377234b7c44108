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
# A plan and a schedule make a prediction. This lesson tries to refute it. Real torch processes train a small GPT under
# that plan, one process per device. Links are emulated, as slow as specified. The run records every computation and
# message.
#
# Afterwards you can
#
# - run a plan for real and compare the measurement with its prediction, action by action;
# - say which clock a run counts by, what its agreement proves, and what is exact by construction;
# - distinguish a device that is slow itself from one that waits for others;
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
# Eight laptops are in a lecture hall. Four of them train `tiny`, a GPT of 1.7 million parameters on bytes of text, in
# two stages of two replicas. Nothing has run yet, so the first prediction knows only FLOP and specified peaks. (Outputs
# say *drawn* for specified.)

# %%
hall = lab.load_topology("lecture-hall")
job = lab.load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
plan = lab.plan(hall, job, objective="communication", seed=0, steps=10)
from_peaks = lab.simulate(plan, "1f1b")
print(f"from peaks and drawn links: {from_peaks.iteration_s:.3f} s an iteration")
pd.DataFrame(plan.stages, index=["stage 0", "stage 1"], columns=["pipeline 0", "pipeline 1"])

# %% [markdown]
# `lab.start` returns a handle at once. Each worker is first *calibrated*: it times its computations. So the *profile*,
# a table of their seconds, exists *before* the first iteration. Then the run records when every action began and ended,
# and the loss of every iteration.

# %%
run = lab.start(plan, "1f1b", iterations=10, evaluate_every=5)
measured = run.wait()
lab.figures.losses(measured)

# %% [markdown]
# A token is one byte here. A model that knows nothing of the text has a loss of $\ln 256 = 5.55$ nats per token. A
# model that knows only how frequent each byte is reaches the dashed line. Below it, a model has begun to use context.
#
# Now predict *this* run. `like=measured` takes its schedule, its links, and the profile from before the first
# iteration. The prediction never sees the seconds of the run itself.

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
# A prediction adds up seconds along a chain of actions. The schedule says what waits for what, and the specified link
# says what a message takes. Only single computations had to be timed. Which of these could be wrong? That depends on
# the clock.
#
# </details>
#
# ## 2. What does it prove?
#
# Workers share the cores of this machine, and the specified links are not here. How, then, can a run measure seconds?
# It uses one of three clocks.
#
# | clock | a computation takes | a message takes | exact by construction | agreement proves |
# | --- | --- | --- | --- | --- |
# | `virtual` | its own CPU seconds | its emulated link's time | messages | order, waiting, profile |
# | `paced` | the specified device's time | its emulated link's time | both | schedule and transport in real time |
# | `real` | wall seconds | loopback's time | nothing | what this machine does, not the specified links |
#
# On the *virtual* clock no worker really waits. Each worker adds up its seconds, and messages carry the sum to the
# receiver. The paced clock pads each computation to the specified device's time. So its agreement says nothing about
# the cost model.
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
# An emulated message takes what the specified link says, up to rounding. So a run that emulates a link cannot prove
# that link wrong. Computations are timed, so they can differ.
#
# </details>
#
# On the real clock nothing is emulated. Workers share cores and wait for one. No profile knows how long.

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
# The losses do not depend on the clock. They are equal to the last bit.
#
# </details>
#
# ## 3. Be surprised
#
# You specify a network from what a provider promises. Now one link is secretly forty times slower. `emulated=` runs the
# plan on another network than the predicted one.

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
# **Why another number?** A delay that hides behind other work costs nothing. A delay on the
# [critical path](../docs/glossary.md#schedules-and-simulation) costs its whole length. Every device downstream was late
# as well, but only because it waited. To find the blame, `lab.compare` moves all durations evenly from predicted to
# measured. At each moment, the iteration grows by what grows on the longest chain. So waiting for others gets no blame.
#
# </details>
#
# ## 4. Refit
#
# Which specification would have been right? A refit finds it from the measured seconds: latency and bandwidth of every
# link, and the seconds of every computation, with intervals. A fit always suits its own data. So the last of its three
# errors is on iterations that it has not seen.

# %%
better = off.refit(plan, lab.simulate)
print(better.sentence)
link = better.table.query("of == 'link' and what == 'bandwidth_bytes_per_s'").set_index("name")
link[["drawn", "fitted", "low", "high", "count"]]

# %%
found = link.loc[f"{source} -> {target}", "fitted"]
assert abs(found / slow - 1) < 0.01, "the secret bandwidth, found from the run"

# %% [markdown]
# `better.topology` is the refitted network, and you can plan on it. Is another plan faster there?

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
# - **A fit is not a prediction.** Look at its error on iterations that it has not seen.
# - **Agreement on the paced clock** is partly by construction.
# - **A plan that is too large runs in part.** `lab.start(plan, workers=(4, 2))` rehearses four stages of two pipelines.
#   It trains a small model, and its messages are as long as the large model's. It does not tell how fast a V100 is.
#   [The capstone](18_capstone.ipynb) does such a rehearsal.
# - **CPU seconds vary**, because other programs share caches and memory. A suspect costs at least 2 % of an iteration,
#   or its own times are off by 25 %.
#
# More: [the real run](../docs/run-for-real.md), on several hosts too. From the shell:
# `dtfm-lab run plan.json -o measured.json` and `dtfm-lab compare predicted.json measured.json --refit plan.json`.
#
# > **Takeaway.** Remember to name the clock before you quote an error. What a run emulates agrees by construction. Only
# > what it measures can refute a prediction.
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
# `lab.missions.hint(name)` gives one more hint at each call. `lab.missions.answer(name)` shows a worked answer.

# %%
lab.missions.board("10_real_run")
