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
# # What others measured
#
# **Do the predictions agree with what others measured?**
#
# Here you compare predictions with numbers that others published: memory, throughput, and iterations on real clusters.
# Every number has its source, and a miss stays a miss.
#
# Afterwards you can
#
# - read a ledger of predictions and published numbers: class of evidence, ratio, band, assumptions;
# - say which kinds of numbers are predicted well, and which are not;
# - add your own number, and see which assumption it contradicts;
# - fit an efficiency without judging it on the rows it was fitted to.
#
# 40 minutes. Needs [10, the real run](10_real_run.ipynb). Nothing is trained here.

# %%
import tempfile
from pathlib import Path

import pandas as pd

import dtfm_lab as lab

pd.set_option("display.max_colwidth", None)  # sentences in full

# %% [markdown]
# ## 1. The ledger
#
# A *source* is a publication. Each row has a published number, our prediction, and their ratio. We stated beforehand
# the *band* in which that ratio should lie, such as 0.83 to 1.2. The *class* says how much a row proves: most if
# nothing was fitted, least if the number follows from the prediction's inputs. Six sources are enough here;
# `lab.reproduce()` has all.

# %%
ledger = lab.reproduce("intellect-1", "sailor", "simumax", "torchtitan", "zero-3", "zero-bubble-memory")
frame = ledger.to_frame()
print(f"{len(ledger)} rows of {frame['source'].nunique()} sources")

# %%
lab.guess(
    "ledger-inside",
    "How many per cent of these rows lie inside their bands?",
    of=(ledger,),
    unit="%",
    low=0,
    high=100,
)

# %%
lab.reveal("ledger-inside")
print(ledger.headline)
print(ledger.sentence)
lab.figures.ledger(ledger)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Crosses lie outside their bands. Pale points prove less: they were fitted to their source, or follow from other
# numbers. Hollow diamonds are the predictions of the systems' own simulators. Which kind of number is hardest? Memory
# follows from published shapes. Seconds need the efficiency that a GPU reaches, which is rarely published.
#
# </details>

# %%
errors = frame.assign(error=(frame["ratio"] - 1).abs()).groupby(["source", "quantity"])["error"]
errors.agg(["count", "mean", "max"]).sort_values("mean").round(3)

# %% [markdown]
# Memory is close in all sources except Sailor. Here are the largest misses, and why. An empty table would be
# suspicious.

# %%
missed = frame.loc[frame["verdict"] != "inside", ["source", "setting", "quantity", "ratio", "note"]]
missed.iloc[(missed["ratio"] - 1).abs().argsort()[::-1]].head(4)

# %% [markdown]
# ## 2. A number of your own
#
# The file below has two rows for an iteration of 11 s, which we made up. The lab plans and simulates each like any
# other row. They differ in `transport`. In Megatron-LM a stage waits until its message has arrived (`blocking`). In
# other systems it computes on (`overlapped`).

# %%
folder = Path(tempfile.mkdtemp())
mine = folder / "mine.csv"
shape = "ten-cities,gpt3-xl,4,2,64,1"
mine.write_text(
    "setting,quantity,published,unit,network,job,n_stages,n_replicas,global_batch,microbatch,transport,band,group\n"
    f"overlapped,iteration,11,s,{shape},overlapped,1.3x,clusters\n"
    f"blocking,iteration,11,s,{shape},blocking,1.3x,clusters\n"
)
own = lab.reproduce(own=mine)
overlapped, blocking = own

# %%
lab.guess(
    "ledger-blocking",
    "Sends that block are never faster. How many times as long does the iteration take with them here?",
    of=(own,),
    unit="times",
    low=1,
    high=10,
)

# %%
lab.reveal("ledger-blocking")
own

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Which was measured?** The number lies in the band of only one assumption. A single row proves nothing, though: with
# another efficiency the other assumption would fit. Two rows on which the two act differently can decide. That is your
# first mission.
#
# </details>
#
# ## 3. One factor, never judged on its own rows
#
# A prediction from FLOP needs the GPU's efficiency: the share of its peak that it reaches. You can fit that to measured
# rows. But a fit proves nothing about the rows it was fitted to. So `calibrate` predicts each row from all others.
#
# Our "measurements" are predictions at 31, 33 and 36 %.

# %%
network = lab.load_topology("fat-node")
plans = [
    lab.plan(network, lab.load_job("gpt3-xl", n_stages=s, n_replicas=d, global_batch=64, microbatch=1), steps=2, seed=0)
    for s, d in [(2, 2), (4, 2), (2, 4)]
]
shares = dict(zip(plans, [0.31, 0.33, 0.36], strict=True))
measured = [(plan, lab.simulate(plan, efficiency=share).iteration_s) for plan, share in shares.items()]
calibration = lab.published.calibrate(measured)
rows = calibration.to_frame()

# %%
lab.guess(
    "ledger-unseen",
    "By how many per cent is the farthest row off when only the two others predict it?",
    of=(rows,),
    unit="%",
    low=0.1,
    high=100,
)

# %%
lab.reveal("ledger-unseen")
print(calibration)
rows[["measured", "efficiency", "from_others", "predicted", "error"]].round(3)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# **Why more than the fit suggests?** One share for all three lies in their middle. Each row pulls it closer, and so
# looks better than it is. The drawing shows these errors, and the interval that the ledger counts:
#
# ![Left: each of three rows is predicted from the two others. Right: a measured number lies inside an interval, or
# outside](../docs/pictures/held-out-row.svg)
#
# You can use the result wherever an efficiency goes: `lab.simulate(plan, efficiency=calibration)`.
#
# [This page](../docs/how-far-to-trust-it.md) lists the columns of your own file, and says how rows are judged. In the
# shell, `dtfm-lab reproduce --strict` fails if a row leaves its band without being a known miss.
#
# </details>
#
# > **Takeaway.** A prediction proves most where nothing was fitted. Memory follows from shapes. Seconds need an
# > efficiency that somebody has to measure.
#
# ## Missions

# %%
lab.missions.show("what-was-measured")

# %%
# given = lab.missions.given("what-was-measured")
# answer = ...
# lab.missions.check("what-was-measured", answer)

# %%
lab.missions.show("judged-on-the-unseen")

# %%
# def errors(full_peak_s, measured_s): ...
# lab.missions.check("judged-on-the-unseen", errors)

# %% [markdown]
# `lab.missions.hint(name)` gives one more hint, `lab.missions.answer(name)` the worked answer.

# %%
lab.missions.board("16_published")
