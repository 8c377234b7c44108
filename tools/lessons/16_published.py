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
# Here predictions stand beside tables that others measured: memory, throughput, iterations on real clusters. Every
# number has its source, and a miss stays a miss.
#
# Afterwards you can
#
# - read a ledger of predictions beside published numbers: class of evidence, ratio, band, assumptions;
# - say which kinds of numbers are predicted well, and which are not;
# - add a number of your own, and see which assumption it contradicts;
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
# A *source* is a publication. Each yields rows: a published number, our prediction of it, and the *band* in which the
# ratio of the two was stated to lie. A row's *class* says how much it proves: most where nothing was fitted, least
# where the number follows from what the prediction was given. Six sources are enough here; `lab.reproduce()` has them
# all.

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
# Hollow diamonds are what the systems' own simulators predicted; pale is what was fitted to its source, or follows from
# other numbers, so that it proves less. Which kind of number is hardest? Memory follows from shapes, which were
# published beside it. Seconds need an efficiency that a GPU reaches, and that is not written anywhere.
#
# </details>

# %%
errors = frame.assign(error=(frame["ratio"] - 1).abs()).groupby(["source", "quantity"])["error"]
errors.agg(["count", "mean", "max"]).sort_values("mean").round(3)

# %% [markdown]
# What is missed, the farthest first, and why. An empty table would be suspicious.

# %%
missed = frame.loc[frame["verdict"] != "inside", ["source", "setting", "quantity", "ratio", "note"]]
missed.iloc[(missed["ratio"] - 1).abs().argsort()[::-1]].head(4)

# %% [markdown]
# ## 2. A number of your own
#
# Two rows in a CSV file: an iteration of 11 s, which we make up. Each row is planned and simulated like any other.
# `transport` is a choice in which systems differ: in Megatron-LM a stage waits until what it sends has arrived, others
# compute on meanwhile.

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
# **Which was measured?** The number lies in the band of one of the two assumptions and not of the other. A single row
# does not prove it, though: with another efficiency the other would fit. Two rows that depend on the two in different
# ways do. That is your first mission.
#
# </details>
#
# ## 3. One factor, never judged on its own rows
#
# A prediction from FLOP needs the share of its peak that a GPU reaches. From measured rows it can be fitted; but a fit
# that is judged on what it was fitted to proves nothing. `calibrate` predicts each row from all others.
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
# **Why more than the fit suggests?** One share for all three sits in their middle, so each row pulls it to its own side
# and looks nearer than it is. The calibration goes wherever an efficiency does: `lab.simulate(plan,
# efficiency=calibration)`.
#
# Columns of an own file, and how rows are judged: [the page](../docs/how-far-to-trust-it.md). From the shell, `dtfm-lab
# reproduce --strict` fails where a row leaves its band that is no known miss.
#
# </details>
#
# > **Takeaway.** A prediction proves most where nothing was fitted. Memory follows from shapes; seconds need an
# > efficiency that has to be measured.
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
# `lab.missions.hint(name)` helps a step further each time, `lab.missions.answer(name)` works it out.

# %%
lab.missions.board("16_published")
