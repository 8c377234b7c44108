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
# # Published numbers: do we agree with what others measured?
#
# [03_real_run](03_real_run.ipynb) lays a prediction beside a run on this machine. This notebook lays predictions beside
# tables that others published: bubbles, throughputs and memory of pipeline schedules, iterations on real clusters,
# bandwidths that training over slow links needs. Every number has its source, every prediction its assumptions, and a
# miss stays a miss. It runs in about a minute; three exercises (**Try it**) ask for a guess first.

# %%
import tempfile
from pathlib import Path

import dtfm_lab as lab

# %% [markdown]
# ## 1. The ledger
#
# A *source* is a publication. Each yields rows: a published number, our prediction of it, and the *band* in which the
# ratio of the two is stated to lie.

# %%
lab.published.sources

# %%
ledger = lab.reproduce()
ledger.sentence

# %% [markdown]
# Left, every number against its prediction; right, the ratios by group, on their bands. Move the pointer over a point:
# it says what was assumed. Hollow diamonds are what the systems' own simulators predicted.

# %%
lab.figures.ledger(ledger)

# %% [markdown]
# **Try it.** Which kind of number is hardest to predict: a bubble, a peak of memory, an iteration on one kind of GPU,
# or on three? Guess, then look.

# %%
frame = ledger.to_frame()
frame.assign(error=(frame["ratio"] - 1).abs()).groupby(["source", "quantity"])["error"].agg(["count", "mean", "max"])

# %% [markdown]
# What is missed, the farthest first, and why. An empty table would be suspicious.

# %%
frame.loc[frame["verdict"] != "inside", ["source", "setting", "quantity", "ratio", "note"]]

# %% [markdown]
# ## 2. One source, row by row
#
# A ledger of a single source shows itself by group; groups with a miss are open, the others open on a click.

# %%
lab.reproduce("streaming-diloco")

# %% [markdown]
# ## 3. A number of one's own
#
# Three rows in a CSV file, with numbers that we make up: an iteration of 11 s, and what that is in tokens. Each row is
# planned and simulated like any other. `transport` is a choice in which systems differ: Megatron's sends block, others
# compute on meanwhile. Which kind of system was "measured" here?

# %%
folder = Path(tempfile.mkdtemp())
mine = folder / "mine.csv"
shape = "ten-cities,gpt3-xl,4,2,64,1"
mine.write_text(
    "setting,quantity,published,unit,network,job,n_stages,n_replicas,global_batch,microbatch,transport,band,group\n"
    f"overlapped,iteration,11,s,{shape},overlapped,1.3x,clusters\n"
    f"blocking,iteration,11,s,{shape},blocking,1.3x,clusters\n"
    f"throughput,throughput,12000,tokens/s,{shape},blocking,1.3x,clusters\n"
)
lab.reproduce(own=mine)

# %% [markdown]
# **Try it.** Sends that block are never faster. By how much are they slower here? Guess, then divide the first two
# predictions.

# %%
overlapped, blocking, _ = lab.reproduce(own=mine)
blocking.predicted / overlapped.predicted

# %% [markdown]
# ## 4. One factor, never judged on its own rows
#
# A prediction from FLOP needs the share of its peak that a GPU reaches. From measured rows it can be fitted; but a fit
# that is judged on the rows it was fitted to proves nothing. `calibrate` predicts each row from all others.
#
# Our "measurements" are predictions at 31, 33 and 36 %. **Try it.** How far off is each when the others predict it?

# %%
network = lab.load_topology("fat-node")
plans = [
    lab.plan(network, lab.load_job("gpt3-xl", n_stages=s, n_replicas=d, global_batch=64, microbatch=1), steps=2, seed=0)
    for s, d in [(2, 2), (4, 2), (2, 4)]
]
shares = dict(zip(plans, [0.31, 0.33, 0.36], strict=True))
measured = [(plan, lab.simulate(plan, efficiency=share).iteration_s) for plan, share in shares.items()]
calibration = lab.calibrate(measured)
calibration

# %%
calibration.to_frame()[["measured", "efficiency", "from_others", "predicted", "error"]]

# %% [markdown]
# The calibration goes wherever an efficiency does.

# %%
lab.simulate(plans[0], efficiency=calibration).iteration_s, measured[0][1]

# %% [markdown]
# ## 5. Keep it
#
# A page with the colours, a table, or all of it as JSON. `dtfm-lab reproduce --strict` does the same from the shell,
# and fails where a row leaves its band that is no known miss.

# %%
for name in ("ledger.html", "ledger.md", "ledger.csv", "ledger.json"):
    print(ledger.save(folder / name).name, f"{(folder / name).stat().st_size / 1000:.0f} kB")

# %% [markdown]
# Columns of an own file, and how rows are judged: [docs/published.md](../docs/published.md).
