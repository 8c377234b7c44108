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
# # Your own pipeline
#
# **How do two processes train one model?**
#
# You will be able to:
#
# - Cut a forward and a backward between two processes.
# - Write GPipe with sends and receives, and show that another implementation has the same losses.
# - Say what each process has to keep between a forward and its backward.
#
# 50 minutes. Needs [08, schedules](08_schedules.ipynb) and [10, the real run](10_real_run.ipynb). You write
# about 25 lines of PyTorch. Words: [stage, micro-batch](../docs/glossary.md#training-in-parallel).

# %%
import dtfm_lab as lab

# %% [markdown]
# ## 1. One stage after the other
#
# `pieces(stage, n_stages, seed)` returns the parts of a stage of `tiny`: its `module`, its optimiser's `step`, the
# `microbatches` of an iteration, the `loss`, and the `shape` of activations. With the same seed, the lab uses the same
# parts.
#
# The first process computes its layers and sends the activations. The second computes the rest and the loss. It sends
# back the gradient of what it received. Here only one micro-batch is in flight at a time, so one process always waits.


# %%
def one_at_a_time(rank, n, seed, iterations):
    mine, losses = pieces(rank, n, seed), []
    for iteration in range(iterations):
        batch, total = mine.microbatches(iteration), 0.0
        for inputs, targets in batch:
            if rank == 0:
                outputs = mine.module(inputs)
                dist.send(outputs.detach(), 1)
                gradient = torch.empty(mine.shape)
                dist.recv(gradient, 1)
                outputs.backward(gradient)
            else:
                received = torch.empty(mine.shape)
                dist.recv(received, 0)
                received.requires_grad_()
                loss = mine.loss(mine.module(received), targets) / len(batch)
                loss.backward()
                dist.send(received.grad, 0)
                total += float(loss.detach())
        mine.step(iteration)
        losses.append(total)
    return losses


first, last = lab.missions.distributed(one_at_a_time)(2, seed=0, iterations=3)
print("losses:", [round(each, 4) for each in last.value])
print("the first process:", " ".join(kind for kind, _ in first.messages[:8]))

# %% [markdown]
# Compare with a run of the lab: the same seed, the same two stages, four micro-batches of two sequences.

# %%
job = lab.load_job("tiny", n_stages=2, n_replicas=1, global_batch=8, microbatch=2)
plan = lab.evaluate(lab.load_topology("lecture-hall").subset(range(2)), job, stages=[[0], [1]])
ran = lab.run(plan, "gpipe", iterations=3)
print("losses:", [round(each, 4) for each in ran.context.losses])
assert all(abs(one - other) < 1e-4 * other for one, other in zip(last.value, ran.context.losses, strict=True))

# %%
lab.guess(
    "own-pipeline-megabytes",
    "How many megabytes does the first process send in one iteration?",
    of=(job,),
    unit="MB",
    low=0.01,
    high=10,
)

# %%
lab.reveal("own-pipeline-megabytes")
print(f"{first.sent_bytes / 3 / 1e6:.2f} MB an iteration, the same for every order of passes")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# Four micro-batches have 2 sequences of 64 tokens each. A token has 128 numbers of 4 bytes. Another order of passes
# sends the same messages, at other times.
#
# </details>
#
# ## 2. GPipe
#
# GPipe runs all forwards of an iteration first, then all backwards. So the first process computes the second
# micro-batch while the second process computes the first one.
#
# The drawing compares it with the function above. The time in which a process waits is the *bubble*:
#
# ![Four micro-batches in two processes. One at a time takes 24 units of time. GPipe takes 15: F0 to F3, then B0 to B3,
# the second process one forward later.](../docs/pictures/two-process-pipeline.svg)
#
# Each process keeps the inputs and outputs of every micro-batch until its backward. That is the memory of lesson 09.
#
# > **Takeaway.** A pipeline is a model cut in two, a send and a receive at the cut, and an order of passes. The order
# > changes the time and the memory, but not the loss.
#
# ## Missions

# %%
lab.missions.show("own-gpipe")

# %%
# def train(rank, n, seed, iterations): ...
# lab.missions.check("own-gpipe", lab.missions.distributed(train))

# %% [markdown]
# Next: [The cost model](04_cost_model.ipynb): what does a placement cost?

# %%
lab.missions.board("20_own_pipeline")
