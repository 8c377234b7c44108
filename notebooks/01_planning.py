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
# # Planning: who holds which layers?
#
# A model is cut into *stages* of consecutive layers, and every stage is copied to several devices. Which device
# should hold which stage, when the links between the devices are unequal? This notebook follows the answer of
# *Decentralized Training of Foundation Models in Heterogeneous Environments* (Yuan et al., NeurIPS 2022, [arXiv
# 2206.01288](https://arxiv.org/abs/2206.01288)), step by step, and then goes beyond it: proofs, reasons, idle
# devices, your own networks and models.
#
# Nothing here computes with a model; everything is priced. It runs in under a minute on a laptop. Six exercises
# (**Try it**) ask for a guess first; running them gives the answer.

# %%
import tempfile
from pathlib import Path

import numpy as np

import dtfm_lab as lab

# %% [markdown]
# ## 1. A network and a job
#
# The paper's world-wide case: 64 GPUs, eight in each of eight cities. A network is two matrices, latency and
# bandwidth, from every device to every other; the rest is drawing, as `lab.figures.network_map(world)` does it. Here is
# one of the two, for two devices of each city, which stand for all eight. (For a dark page, wrap any figure in
# `lab.figures.theme`.)

# %%
world = lab.load_topology("worldwide")
lab.figures.link_matrix(world.subset(range(0, 64, 4)))

# %% [markdown]
# The job is GPT3-XL in 8 stages of 8 replicas. Two sizes matter to the planner: the gradient of one stage, which its
# replicas average, and what one pipeline sends over one stage boundary in an iteration. `dtfm-gpt3-xl` takes both
# from the paper's public code.

# %%
job = lab.load_job("dtfm-gpt3-xl")
print(f"{job.model.name}: {job.n_stages} stages x {job.n_replicas} replicas")
print(f"gradient of a stage         {job.gradient_bytes / 1e6:.0f} MB")
print(f"activations over a boundary {job.hop_bytes / 1e6:.0f} MB, and gradients of the same size back")

# %% [markdown]
# ## 2. What a placement costs
#
# Let $\alpha_{ij}$ be the latency and $\beta_{ij}$ the bandwidth from device $i$ to device $j$. Devices that hold the
# same stage form a **data-parallel group** $C_j$ of $D$ devices. Each owns one $D$-th of the gradient $c_{dp}$,
# collects that part from all others and sends back the mean, one peer after the other; the slowest member sets the
# pace:
#
# $$\text{DataP}(C_j) = \max_{d \in C_j} \sum_{d' \in C_j \setminus d}
# 2 \left(\alpha_{dd'} + \frac{c_{dp}}{D\,\beta_{dd'}}\right) \tag{2}$$
#
# Two neighbouring stages are joined by pairing their devices, one pair for each pipeline. The best pairing is the one
# whose *slowest* pair is fastest, and that pair is the weight of the edge (3):
#
# $$w(C_j, C_k) = \min_{\text{pairings } M}\; \max_{(d, d') \in M}
# 2\left(\alpha_{dd'} + \frac{c_{pp}}{\beta_{dd'}}\right) \tag{3}$$
#
# The groups are stages in some order, and an order is a path through all groups (4). The cost of a placement is the
# slowest group plus the path:
#
# $$\text{cost} = \max_j \text{DataP}(C_j) + \min_{\text{paths}} \sum_{\text{hops}} w \tag{4}$$
#
# The 2 stands for there and back. Where the two directions of a link differ, the lab charges each its own.
#
# Two placements by hand: every city a stage, or every city a pipeline.

# %%
cities = [[device.name for device in world.devices if device.region == city] for city in world.regions]
city_is_stage = lab.evaluate(world, job, groups=cities)
city_is_pipeline = lab.evaluate(world, job, groups=list(zip(*cities, strict=True)))
lab.figures.cost_breakdown(city_is_stage, city_is_pipeline)

# %% [markdown]
# Keeping groups at home makes synchronisation cheap and every hop dear; keeping pipelines at home does the opposite,
# and is the better of the two here. A search has to find out which, and everything in between.
#
# > **Try it (1).** Price the two placements again for a larger gradient,
# > `heavy = lab.load_job("dtfm-gpt3-xl", gradient_bytes=2e9)`. Which one is cheaper now? At about which size do they
# > change places, and is either of them the best there? (`lab.plan(world, heavy, steps=10)`.)
#
# ## 3. Chance, and a plan
#
# Any random grouping, well paired and in its best order, is a placement too.

# %%
rng = np.random.default_rng(0)
by_chance = [lab.evaluate(world, job, groups=rng.permutation(64).reshape(8, 8).tolist()) for _ in range(100)]
costs_s = [placement.cost.total_s for placement in by_chance]
print(f"100 random placements: {min(costs_s):.1f} to {max(costs_s):.1f} s, {np.mean(costs_s):.1f} s on average")

# %% [markdown]
# `lab.plan` searches. A plan comes with a **lower bound**, a cost that no placement can undercut, and the **gap**
# between the two: what a better plan could save at most.

# %%
plan = lab.plan(world, job, seed=0, steps=10)
print(f"cost {plan.cost.total_s:.2f} s, no placement below {plan.lower_bound_s:.2f} s, gap {plan.gap:.1%}")
plan

# %% [markdown]
# The paper's way from network to plan has five steps: (a) the communication graph, (b) groups of equal size, (c) the
# coarsened graph, one node a group, (d) its weights, (e) the path, which says which group holds which stage. Here they
# are for three devices of each city.

# %%
few = world.subset(i for i in range(64) if i % 8 < 3)
sketch_job = lab.load_job("dtfm-gpt3-xl", n_stages=6, n_replicas=4)
sketch = lab.plan(few, sketch_job, objective="communication", seed=0, steps=10)
lab.figures.five_steps(sketch)

# %%
lab.figures.plan_map(sketch)

# %% [markdown]
# `plan_map(sketch, pipeline=0)` brings out one pipeline and `plan_map(sketch, group=0)` one group; `step(plan, "d")`
# shows one of the five steps at full size. And this is the pairing behind one edge of the coarsened graph:

# %%
lab.figures.matching(sketch, 0)

# %% [markdown]
# > **Try it (2).** Stages 0 and 2 of `plan`, with all 64, are no neighbours, yet have an edge in the coarsened graph.
# > What does it weigh? `lab.figures.matching(plan, (0, 2))`. Why is the order of the stages of this plan a matter of
# > taste, and that of `city_is_stage` not? (`lab.figures.step(plan, "d")`, `lab.figures.step(city_is_stage, "d")`.)
#
# ## 4. Watch the search
#
# The *spot* case: 32 GPUs in instances of four, 32 alone, one speed between all of them. It looks easy, and is a
# trap: nearly all placements cost the same, so a search that goes by the cost sees no slope to walk down.
#
# `random` prices random groupings. `dtfm` is the paper's genetic algorithm, `hybrid` the variant that it is compared
# with in the paper: a population of 100, one new grouping a step, improved by swaps and kept if it is no worse.
# `evolutionary` is the lab's own: it begins with structured groupings, dealt out along the clusters of the network,
# and anneals. Steps make a search repeatable; seconds make it comparable.

# %%
searches = {
    "random": lab.search("spot", job, planner="random", seed=0, steps=2000),
    "dtfm": lab.search("spot", job, planner="dtfm", seed=0, steps=4900),
    "hybrid": lab.search("spot", job, planner="hybrid", seed=1, steps=4900),
    "evolutionary": lab.search("spot", job, planner="evolutionary", seed=0, steps=10),
}
searches = {name: list(steps) for name, steps in searches.items()}
lab.figures.convergence(searches)

# %% [markdown]
# The genetic algorithm comes to rest on plateaus: 49.5 s is what nearly every random placement costs, 43.5 s the next
# below. After 5,000 evaluations the paper's public code ends on the same two (49.5 s in two of three runs, 43.5 s in
# the third). A structured start is at 31.63 s at once; the bound meets it, so no search can do better.
#
# Where structure does not decide, the population has to: 24 gaming computers at home, whose lines send far slower
# than they receive. A step carries more than the best cost: the median of the population, how different its members
# still are, and which operator made the newest one. (Without a job, the lab cuts the paper's to use every device.)

# %%
generations = list(lab.search("volunteers", objective="communication", seed=0, steps=16))
lab.figures.convergence(generations, against="generation", diversity=True)

# %% [markdown]
# > **Try it (3).** Give `dtfm` on `spot` other seeds, 0 to 7, with
# > `lab.plan("spot", job, planner="dtfm", seed=seed, steps=4900).cost.total_s`. How many plateaus do you count? And
# > how many with ten times as many steps?
#
# ## 5. Proof
#
# A gap has two sides: there may be a better plan, or the bound is loose. Every search lets its bound rise a little on
# the side. The planner `exact` works on both for as long as it is given: it tries all chains of groups where there are
# few, and asks a constraint solver where many devices are alike. Twelve machines thrown on a plane, near ones fast and
# far ones slow, no two links alike, are few enough for a proof by either.

# %%
places = np.random.default_rng(3).uniform(0, 1, (12, 2))
distance = np.linalg.norm(places[:, None] - places[None, :], axis=-1)
plane = lab.Topology.from_matrices(latency_ms=100 * distance, bandwidth_gbps=0.2 / (0.05 + distance), name="plane")
trio = lab.load_job("gpt3-xl", n_stages=4, n_replicas=3, global_batch=96)
proof = {
    "evolutionary": list(lab.search(plane, trio, objective="communication", seed=0, steps=20)),
    "exact": list(lab.search(plane, trio, planner="exact", objective="communication", steps=1000)),
}
lab.figures.convergence(proof, against="seconds")

# %%
for name, steps in proof.items():
    print(f"{name:13} {steps[-1].best_s:.3f} s, bound {steps[-1].bound_s:.3f} s, gap {steps[-1].gap:.1%}")

# %% [markdown]
# `lab.plan(world, job, planner="exact", seconds=60)` settles the 8 % of section 3 as well, within half a minute: was it
# the plan or the bound?
#
# ## 6. Why so?
#
# Every plan explains itself: what binds, what each part costs, and whether exchanging two devices would help.

# %%
reasons = lab.explain(plan)
reasons  # or reasons.text

# %%
print(reasons.why("Tokyo-3"))

# %% [markdown]
# `reasons.to_frame()` has a row for each device with its best exchange, `reasons.places("Tokyo-3")` what each other
# place would cost it. Two plans are laid side by side by `lab.diff`: stages are matched by the devices they share, so
# that a mere renumbering counts as none.

# %%
difference = lab.diff(city_is_stage, plan)
print(difference.text)
difference.parts.round(2)

# %% [markdown]
# ## 7. Doing without
#
# The paper uses every device. That can be a mistake: seven V100s in one room, and a Raspberry Pi on a home connection
# that wants to help.

# %%
pi = lab.load_topology("raspberry-pi")
with_pi = lab.plan(pi, lab.load_job("tiny", n_stages=8, n_replicas=1), objective="communication", steps=10)
without = lab.plan(pi, lab.load_job("tiny", n_stages=7, n_replicas=1), objective="communication", steps=10)
for each in (with_pi, without):
    idle = [pi.names[i] for i in each.idle_devices]
    print(f"{each.job.n_stages} stages: {each.cost.total_s * 1e3:.1f} ms, idle {idle}")

# %% [markdown]
# A planner leaves out whom it does not need when the job is smaller than the network. What each device is *worth* is
# the cost without it less the cost with it serving: above zero it helps, below it harms.

# %%
lab.worth(without, steps=1)[["device", "stage", "worth_s", "verdict", "without_s", "serving_s"]].round(4)

# %% [markdown]
# Now a campus at night: 32 computers, eight of them laptops on a hall of residence's Wi-Fi. The batch stays the same,
# so fewer replicas send more each. The cost counts no computation; `lab.simulate` puts both into one iteration, and
# there the laptops are far slower still.

# %%
campus = lab.load_topology("campus")
for n_replicas in (8, 7, 6, 5):
    smaller = lab.load_job("gpt3-xl", n_stages=4, n_replicas=n_replicas, global_batch=840)
    found = lab.plan(campus, smaller, objective="communication", seed=0, steps=5)
    wifi = sum(campus.devices[i].region == "residence" for i in found.idle_devices)
    print(
        f"4 x {n_replicas}: cost {found.cost.total_s:6.1f} s, simulated iteration "
        f"{lab.simulate(found, 'gpipe').iteration_s:7.1f} s, idle {len(found.idle_devices):2}, {wifi} of them on Wi-Fi"
    )

# %% [markdown]
# > **Try it (4).** The shape is a choice as well. Plan 24 of the 32 as 1 x 24, 2 x 12, 4 x 6, 6 x 4 and 12 x 2 (with
# > `global_batch=960`). Which shape is cheapest? And of 2 x 16, 4 x 8 and 8 x 4 (with `global_batch=1024`), which
# > have to use them all?
#
# ## 8. One way is not the other
#
# Home lines send slower than they receive; the thin link between two clusters below is five times slower out of the
# annex than into it. Every exchange of training goes both ways, so the cost of a pair is the sum of both directions,
# whichever stage stands first. The bandwidth of four machines, from row to column, in Gbit/s:

# %%
thin = lab.load_topology("thin-link")
latency_ms, gbps = thin.to_matrices()
four = ["hall-0", "hall-1", "annex-0", "annex-1"]
gbps.loc[four, four]

# %%
split_job = lab.load_job("dtfm-gpt3-xl", n_stages=6, n_replicas=8)
split = lab.plan(thin, split_job, objective="communication", seed=0, steps=10)
print(f"synchronisation {split.cost.data_parallel_s:.2f} s, hops {split.cost.hop_s.round(2)} s")

# %% [markdown]
# One hop crosses the thin link and is nearly all of the cost.
#
# > **Try it (5).** Guess what doubling only the slow direction saves, and only the fast one. Then choose rows and
# > columns by name (`annex = [name for name in thin.names if name.startswith("annex")]`, likewise `hall`),
# > `gbps.loc[annex, hall] *= 2`, and plan `lab.Topology.from_matrices(latency_ms, gbps)`.
#
# ## 9. Your own network
#
# From two matrices, as the plane above; from a table of links; from any `networkx` graph; from YAML, CSV, GraphML or
# JSON files. Files go out as they come in.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = lab.save_topology(plane, Path(folder) / "plane.csv")
    print(*path.read_text().splitlines()[:3], "...", sep="\n")
    again = lab.load_topology(path)
print("the same links:", np.allclose(again.bandwidth_bytes_per_s, plane.bandwidth_bytes_per_s))

# %%
graph = plane.to_networkx()
for source, target in graph.edges("device-0"):  # somebody lays fibre to it
    for link in (graph.edges[source, target], graph.edges[target, source]):
        link["bandwidth_bytes_per_s"] *= 10
fibre = lab.Topology.from_networkx(graph, name="plane, with fibre")
upgraded = lab.plan(fibre, trio, objective="communication", seed=0, steps=20)
print(lab.diff(proof["evolutionary"][-1].plan, upgraded).text)

# %% [markdown]
# Drawing one is easiest in the lab: `lab.Lab()` begins with a blank canvas.
#
# ## 10. Your own model
#
# Jobs known by name include `gpt2-xl`, `llama-3-8b` and `mistral-7b`; any field can be overridden. Message sizes
# follow from the model's layers, the batch and the length of the sequences.

# %%
llama = lab.load_job("llama-3-8b", n_stages=8, n_replicas=8, global_batch=512, seq_len=2048)
print(f"{llama.model}: gradient {llama.gradient_bytes / 1e9:.2f} GB, activations {llama.hop_bytes / 1e9:.2f} GB")
lab.plan(world, llama, objective="communication", seed=0, steps=10)

# %% [markdown]
# A `config.json` from the Hugging Face Hub is read as well, from a file or a model's folder; nothing is downloaded.

# %%
config = """{
  "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
  "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048
}"""
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "small-llama.json"
    path.write_text(config)
    small = lab.load_job("gpt3-xl", model=path, n_stages=8, n_replicas=8, global_batch=512)
print(f"{small.model}: gradient {small.gradient_bytes / 1e9:.2f} GB, activations {small.hop_bytes / 1e9:.2f} GB")

# %% [markdown]
# > **Try it (6).** A vocabulary of 128,256 words makes the outer stages of `llama` heavier than the others
# > (`llama.stage_gradient_bytes`), and the cost charges the heaviest to every group. Which of the two placements by
# > hand is better for it, and how far from the plan found? (`lab.evaluate(world, llama, groups=cities)`.)
#
# ## 11. What is not in the price
#
# - **Computation and memory.** A slow device costs no more than a fast one, and no stage is too large for one.
#   `lab.simulate(plan)` adds computation, `lab.advice(plan)` says who lacks memory.
# - **Overlap.** The activations of the whole mini-batch are charged on each hop as one message. The cost ranks plans,
#   it predicts no seconds; the simulator queues every micro-batch and does.
# - **Sharing.** Each pair of devices has its links to itself. `lab.simulate(plan, queueing="cards")` gives a device one
#   network card.
# - **Change.** Links keep their speed and devices stay.
# - **Other collectives.** One way to average gradients, every iteration. The simulator knows five, and every H-th.
#
# ## 12. Planning for seconds
#
# What people wait and pay for is the simulated iteration. `objective="iteration"`, the default wherever a job has a
# model and no given message sizes, searches over all that the job leaves open: stages and replicas, who stays idle, the
# blocks of each stage, the micro-batches of each pipeline, the order of passes; memory is a hard limit. The bound on
# seconds holds for every plan. `lab.why_they_differ` says what the communication cost does not see.

# %%
mixed = lab.load_topology("mixed-gpus")
xl = lab.load_job("gpt3-xl")  # names neither stages nor replicas
cheapest = lab.plan(mixed, xl, objective="communication", seed=0, steps=5)
fastest = lab.plan(mixed, xl, objective="iteration", seed=0, steps=5)
for each in (cheapest, fastest):
    print(f"{each.objective:13} {each.iteration_s:6.2f} s an iteration, communication cost {each.cost.total_s:.2f} s")
print(f"no plan is faster than {fastest.iteration_lower_bound_s:.2f} s")
print(lab.why_they_differ(fastest, cheapest))
fastest.to_frame()

# %% [markdown]
# What the simulator makes of all this is [02_schedules](02_schedules.ipynb).
# From here: [00_start](00_start.ipynb) trains a small GPT under a plan, on this machine, over links as slow as drawn,
# and measures how wrong the prediction was. Your own planner is a generator of steps with a name
# (`dtfm_lab/planning/planners/`); from then on it stands in every list and beside the others in
# `lab.figures.convergence`.
