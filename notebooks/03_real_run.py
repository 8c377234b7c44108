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
# # The real run: was the prediction right?
#
# A plan and a schedule make a prediction. This notebook tries to prove it wrong: real torch processes train a small GPT
# under that very plan and schedule, one process a device, over links as slow as drawn. It measures every computation
# and every message, lays them beside the prediction, and looks for whom to blame. Then it kills workers.
#
# All of it runs on a laptop of two cores in about a minute. Six exercises (**Try it**) ask for a guess first; running
# them gives the answer. For plans see [01_planning](01_planning.ipynb), for schedules
# [02_schedules](02_schedules.ipynb).

# %%
import tempfile
from pathlib import Path

import pandas as pd

import dtfm_lab as lab

# %% [markdown]
# ## 1. Start it and watch
#
# Eight laptops in a lecture hall, and `tiny`: a GPT of 1.7 million parameters on bytes of text, in 4 stages of 2
# replicas. `lab.start` returns at once with a handle on the run; `lab.run` is the same, waited for.

# %%
hall = lab.load_topology("lecture-hall")
plan = lab.plan(hall, lab.load_job("tiny", n_stages=4, n_replicas=2), objective="communication", seed=0, steps=10)
run = lab.start(plan, "1f1b", iterations=16, evaluate_every=4, sample_bytes=120)
run

# %% [markdown]
# The workers report what they do as it happens. First each is *calibrated*: it times its computations, so that there is
# a profile *before* the first iteration; then come the spans of every action, the loss of every iteration, and now and
# then a look at the last tenth of the text, which is never trained on.

# %%
async for event in run.events():
    if event["event"] == "iteration":
        print(f"iteration {event['iteration']:2}: loss {event['loss']:.3f}")
    elif event["event"] == "held_out":
        print(f"  after {event['iteration']} iterations: held-out loss {event['loss']:.3f}")
    elif event["event"] not in ("spans", "parameters"):
        print(event["event"])

# %%
run

# %%
measured = run.wait()
lab.figures.losses(measured)

# %% [markdown]
# A loss in nats says little without a yardstick. Whoever knows nothing pays $\ln 256 = 5.55$ a byte. Whoever knows how
# frequent each byte is, and nothing of what came before, pays the *unigram entropy*, here 3.06. Below that line a model
# has begun to use context. Sixteen iterations get there; what it writes shows how far that is from English.

# %%
print(run.prompt + run.text)

# %% [markdown]
# > **Try it (1).** `small` has four times the parameters (`lab.load_job("small")`). After how many iterations is its
# > held-out loss below 2.6? Ask for 60, look now and then at `run.held_out`, and end it with `run.stop()`. Then train
# > on a text of your own, `text="..."`. How much higher can its unigram entropy be?
#
# ## 2. Predicted against measured
#
# `like=measured` predicts what ran: its schedule, its links, and the profile taken before the first iteration. Spans of
# the run itself are never looked at; else it would be no prediction.

# %%
predicted = lab.simulate(plan, like=measured)
comparison = lab.compare(predicted, measured)
print(f"predicted {predicted.iteration_s:.4f} s, measured {measured.iteration_s:.4f} s")
print(f"error {comparison.iteration_error:+.2%}", *comparison.verdict.split("; "), sep="\n")
lab.figures.gantt(predicted, against=measured, lanes=["compute"])

# %%
lab.figures.comparison(comparison)

# %% [markdown]
# The same as tables: `comparison.kinds`, `.stages`, `.devices`, `.links`, and `.rows` with every single action.

# %%
comparison.devices.round(5)

# %% [markdown]
# ### What does it prove?
#
# Eight workers on two cores take turns on them, and the links are drawn, not there. How, then, can anything be measured
# in seconds? That depends on the clock.
#
# | clock | a computation takes | a message takes | what agreement proves |
# | --- | --- | --- | --- |
# | `virtual` | the CPU seconds it really took | what its emulated link needs | order, dependencies, profile |
# | `paced` | what it takes on the drawn device | what its emulated link needs | order, links and transport in time |
# | `real` | wall seconds | what loopback takes | this machine; nothing about drawn links |
#
# On the *virtual* clock nobody waits: seconds are added up, worker by worker, and messages carry them along. A busy
# machine hardly disturbs. On the *paced* clock a computation is done and then waited for until the drawn device would
# have it, and everything is slowed down so that this machine keeps up. That it agrees is partly by construction, since
# the prediction knows what computations are padded to: it proves nothing about the cost model, but much about schedule
# and transport. On the *real* clock nothing is padded and nothing emulated.
#
# The losses are the same on all three, to the last digit. Here is the real clock. Where eight workers share two cores,
# a computation often waits for a core, and how long, no profile can know.

# %%
on_real = lab.run(plan, "1f1b", iterations=2, clock="real")
print(*lab.compare(lab.simulate(plan, like=on_real), on_real).verdict.split("; "), sep="\n")
print("the same losses:", on_real.context.losses == measured.context.losses[:2])

# %% [markdown]
# > **Try it (2).** The paced clock: `paced = lab.run(plan, "1f1b", iterations=2, clock="paced")`. It takes half a
# > minute. How many wall seconds was a second (`paced.context.time_scale`)? How large is the error, and why is that no
# > triumph? What do `late_messages`, `overruns` and `stretched` of its context count, and what happens to them with
# > `time_scale=5`?
#
# ## 3. A link that is not as drawn
#
# Networks are drawn from what a provider promises. So let one link be secretly eight times slower than drawn:
# `emulated=` runs the plan on another network than the one that it is predicted on. (From here on the batch is half as
# large, and so is the work.)

# %%
plan = lab.with_job(plan, global_batch=8, microbatch=1)
source, target = plan.pipelines[1][:2]
drawn = hall.bandwidth_bytes_per_s[hall.index(source), hall.index(target)]
truth = hall.with_link(source, target, bandwidth_bytes_per_s=drawn / 8, one_way=True)

surprise = lab.run(plan, "1f1b", iterations=8, emulated=truth)
off = lab.compare(lab.simulate(plan, like=surprise), surprise)
print(*off.verdict.split("; "), *off.suspects["sentence"], sep="\n")

# %% [markdown]
# The link is named, with its factor, and with what it costs an *iteration*: less than its messages' own delay, since
# some of that is hidden behind other work. Everybody downstream was late as well, but not by their own doing: all
# durations are moved evenly from predicted to measured, and at each moment the iteration grows by what grows on the
# chain of actions that is longest then. Waiting for others costs nobody anything.

# %%
lab.figures.blame(off)

# %%
print(*off.drift.sentence.split("; "), sep="\n")
lab.figures.drift(off)

# %% [markdown]
# What would have been right? A refit finds latency and bandwidth of every link, and seconds of every computation, from
# the measured spans, with an interval each; then it predicts again. Since a fit always suits what it was fitted to, the
# last of its three errors is on iterations that it has not seen.

# %%
better = lab.refit(off, plan)
print(better.sentence)
lab.figures.refit(better)

# %% [markdown]
# `better.topology` is a network to plan on anew, or to save: `lab.save_topology(better.topology, "hall.yaml")`.
#
# > **Try it (3).** Is there a link that the plan uses, eight times slower, that costs nothing? Guess from the Gantt
# > chart (`lanes=["compute", "send"]`), or ask `lab.sensitivity(plan, "1f1b", profile=off.predicted.context.profile)`,
# > and run it. What does the list of suspects say of it? Then latency: what is said of 100 ms more?
#
# ## 4. What goes wrong
#
# Volunteers switch their computers off. `run.kill` kills a worker as a power cut would, `run.pause` lets it stand still
# like a laptop that was closed, `run.slow` makes it compute slower. A lost worker is replaced; its parameters and the
# state of its optimiser come from a device that holds the same stage; everybody goes back to the beginning of that
# iteration. A process that dies is noticed at once; one that stands still may do so for a second.

# %%
checkpoints = tempfile.TemporaryDirectory()
run = lab.start(plan, "1f1b", iterations=5, checkpoint_folder=checkpoints.name)
first, last = plan.pipelines[0][0], plan.pipelines[0][-1]


def misfortune(event):
    match event:
        case {"event": "profile"}:
            run.slow(source, 4)
        case {"event": "iteration", "iteration": 1}:
            run.kill(first)
        case {"event": "iteration", "iteration": 3}:
            run.pause(last)


disturbed = run.wait(misfortune)
run

# %%
pd.DataFrame(disturbed.context.faults).round(2)

# %% [markdown]
# Training has not noticed. Its losses are those of section 3, which nobody disturbed, to the last bit:

# %%
calm = surprise.context.losses
assert disturbed.context.losses == calm[:5]
pd.DataFrame({"undisturbed": calm[:5], "disturbed": disturbed.context.losses})

# %% [markdown]
# The clock has: iterations count as they were finally done, and one device was four times slower.

# %%
print(*lab.compare(lab.simulate(plan, like=disturbed), disturbed).suspects["sentence"], sep="\n")

# %% [markdown]
# Where every replica of a stage is lost, or where replicas differ because they average only now and then, no peer has
# the state. Then a checkpoint must. It is a folder: one file a stage with parameters and optimiser state, and one that
# says of what. A run goes on from it under another plan and another schedule too, for it does not matter who held what.

# %%
print(*sorted(path.relative_to(checkpoints.name) for path in Path(checkpoints.name).glob("*/*")), sep="\n")
other_job = lab.load_job("tiny", n_stages=2, n_replicas=4, global_batch=8, microbatch=1)
other = lab.plan(hall, other_job, objective="communication", steps=10)
resumed = lab.run(other, "gpipe", iterations=3, resume_from=checkpoints.name)
checkpoints.cleanup()
pd.DataFrame({"4 x 2, 1f1b": calm[5:], "2 x 4, gpipe, resumed": resumed.context.losses})

# %% [markdown]
# > **Try it (4).** Kill both devices that hold the last stage, one right after the other. What does the error say? And
# > with `checkpoint_folder=` and `checkpoint_every=2`: which iteration do they go back to, and are the losses still the
# > same? How much time was lost in either case?
#
# ## 5. A plan that is too large
#
# The paper's world-wide case needs 64 GPUs and a model of 1.3 billion parameters. A *rehearsal* runs a part of it: some
# of its stages and pipelines on as many workers, with its devices, its links and its micro-batches. A small model
# *stands in*; messages are as long as the real one's, for a link's time depends on their length, not on what is in
# them. (16 micro-batches a pipeline, to be done soon.)

# %%
xl = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=128)
world = lab.plan("worldwide", xl, objective="communication", seed=0, steps=10)
run = lab.start(world, "adaptive-1f1b", iterations=2, workers=(4, 2))
part = run.wait()
run

# %% [markdown]
# A prediction with `like=part` is of exactly what ran: that part, with the seconds that the stand-in takes here.

# %%
rehearsed = lab.simulate(world, like=part)
print(*lab.compare(rehearsed, part).verdict.split("; "), sep="\n")
print(f"the part:       {part.iteration_s:5.2f} s measured, {rehearsed.iteration_s:5.2f} s predicted")
print(f"the whole plan: {lab.simulate(world, 'adaptive-1f1b').iteration_s:5.2f} s predicted, on its GPUs")

# %% [markdown]
# So this checks orders, messages, links and synchronisation of a plan that nobody can run here. It does not check how
# fast a V100 is, and synchronisation between two pipelines takes less than between eight.
#
# > **Try it (5).** Without `workers=` the lab chooses the part. Which, and what of the iteration can that part not
# > tell? Rehearse (2, 4), (4, 2) and (8, 1); look at `lab.figures.bubble` of each.
#
# ## 6. Was planning worth it?
#
# One word runs a plan and three placements that nobody thought about, on the same links, with the same training: one
# drawn at random, one in the order of the file, and the whole model on every device (data parallelism alone). Here it
# is four computers out of 24 volunteers at home, whose lines send slowly; the choice of four is part of the plan.

# %%
small = lab.load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
four = lab.plan("volunteers", small, objective="communication", seed=0, steps=10)
table = lab.baselines(four, "1f1b", iterations=2)
lab.figures.baselines(table)

# %%
table[["placement", "stages", "replicas", "cost_s", "predicted_s", "measured_s", "error"]].round(3)

# %% [markdown]
# ## 7. Does it still learn the same?
#
# Some choices change time only: the placement, the schedule, the order of passes. Others change what is computed. A
# schedule of one's own first: all forwards, then the backwards, last in, first out.

# %%
orders = [f"{s}F0 {s}F1 {s}F2 {s}F3 {s}B3 {s}B2 {s}B1 {s}B0" for s in range(4)]
print(*orders, sep="\n")
own = lab.Schedule.from_orders("last-in-first-out", orders)
runs = {"last in, first out": lab.run(plan, own, iterations=5)}

# %% [markdown]
# Messages can be rounded to one byte a number, and replicas can take steps of their own and average every fourth
# iteration only. How far are their losses from the undisturbed ones, iteration by iteration?

# %%
runs["int8 messages"] = lab.run(lab.with_job(plan, compression="int8"), "1f1b", iterations=5)
runs["average every 4th"] = lab.run(lab.with_job(plan, synchronise_every=4), "1f1b", iterations=5)

losses = pd.DataFrame({name: trace.context.losses for name, trace in runs.items()})
losses.sub(pd.Series(calm[:5]), axis=0).map("{:+.1e}".format)

# %% [markdown]
# Another order of passes adds the same gradients up in another order: that is rounding of single precision, if it shows
# at all. One byte a number moves the loss in the fourth decimal place, local updates in the second; both save seconds:

# %%
seconds = {"1f1b, fp32, every iteration": off.predicted.iteration_s}
pd.Series(seconds | {name: trace.iteration_s for name, trace in runs.items()}).round(3)

# %% [markdown]
# > **Try it (6).** Per iteration, averaging every time learns most. Per second? Run `synchronise_every` 1, 2, 4 and 8
# > for 24 iterations each, and draw losses over `trace.iteration_ends_s.cumsum()`. Which is lowest after three seconds?
# > And on a network with a tenth of the bandwidth (`hall.scaled(bandwidth=0.1)`)?
#
# ## 8. Beyond one machine
#
# The same workers run on hosts of your own. Where the links are not known, measure them: one machine listens, each host
# joins it (`dtfm-lab probe --listen`, `--join`), and out comes a network to plan on. Here are two processes that take
# this machine for two hosts.

# %%
from dtfm_lab.runtime.probe import probe_locally

probed = probe_locally(2, seconds=0.2)
probed.to_frame()

# %% [markdown]
# And a plan is taken along as a *run folder*: `dtfm-lab export plan.json -o run --per-host 4`, or the same in Python.

# %%
from IPython.display import Markdown

from dtfm_lab.runtime.multihost.export import export, spec_for
from dtfm_lab.runtime.multihost.hosts import hosts_of

with tempfile.TemporaryDirectory() as folder:
    spec = spec_for(plan, "1f1b")
    written = export(spec, Path(folder) / "run", hosts_of(spec, 4))
    print(*sorted(path.relative_to(written) for path in written.rglob("*.*")), sep="\n")
    steps = (written / "README.md").read_text().splitlines()[4:17]
Markdown("\n".join(steps))

# %% [markdown]
# `run.sh` starts torchrun, `shape.sh` makes real links as slow as drawn (with `tc`, as root), `unshape.sh` undoes that,
# and the first host leaves `measured.json`, to be compared as above. `spec.json` holds the secret by which the workers
# know each other.
#
# ## Pitfalls
#
# - **Agreement on the paced clock** is partly by construction: section 2.
# - **The real clock emulates nothing.** Links are loopback, cores are shared. With more workers than cores its
#   prediction is off by tens of per cent, on a busy machine by more.
# - **CPU seconds are not quite constant** on the virtual clock either: what else runs shares caches and memory, and
#   frequencies change. One to two per cent of an iteration are noise; suspects smaller than that are not named.
# - **A fit is no prediction.** Look at its error on iterations that it has not seen.
# - **Blame needs a right schedule.** A worker that acts in another order than the schedule says is no late link.
# - **A rehearsal** tells nothing about the speed of devices that are not here.
# - **A loss after sixteen iterations** says that training works, not which way of training is better in the end.
#
# From the shell: `dtfm-lab run plan.json --iterations 16 --evaluate-every 4 --sample 120 -o measured.json`, with
# `--fault "kill ada at 2"`, `--checkpoint folder`, `--resume folder`, `--workers 4x2`, `--emulated other.yaml`;
# `dtfm-lab baselines plan.json`; `dtfm-lab compare predicted.json measured.json --refit plan.json -o refitted.yaml`;
# `dtfm-lab probe --local 2`. All of it with buttons: `lab.Lab("lecture-hall")`.
#
# **For a lecture.** (a) Show that with the sharded average, and every replica of a stage computing the same step, any
# one of them can replace any other bit for bit. Which other ways to average keep that, and what breaks it? (b) A device
# fails once in $T$ seconds, a checkpoint takes $c$: how often should one be written? What changes if peers hold the
# state? (c) Virtual time is a logical clock. Why may a worker process a message before others have reached its time,
# and why does that stop being so where messages share a network card?
