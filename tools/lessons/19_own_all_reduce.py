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
# # Your own all-reduce
#
# **What does an all-reduce do, message by message?**
#
# You will be able to:
#
# - Start processes that send tensors to each other with torch.distributed.
# - Count the bytes that an average sends through a server, and in a ring.
# - Write a ring all-reduce, and say why it does not deadlock.
#
# 40 minutes. Needs [02, the network](02_network.ipynb) and [10, the real run](10_real_run.ipynb). You write
# about 15 lines of PyTorch. Words: [all-reduce, ring](../docs/glossary.md#training-in-parallel).

# %%
import numpy as np

import dtfm_lab as lab

# %% [markdown]
# ## 1. Processes that talk
#
# Each process has a *rank*, from 0 to N - 1. `dist.send(tensor, to)` sends. `dist.recv(tensor, from)` waits and fills
# `tensor`. Below, rank 0 is a *central server*: it receives the numbers of all others, and sends their mean back.


# %%
def by_server(rank, n, numbers):
    own = torch.tensor(numbers, dtype=torch.float64)
    if rank > 0:
        dist.send(own, 0)
        dist.recv(own, 0)
        return own
    received = torch.empty_like(own)
    total = own.clone()
    for other in range(1, n):
        dist.recv(received, other)
        total += received
    for other in range(1, n):
        dist.send(total / n, other)
    return total / n


# %% [markdown]
# `lab.missions.distributed` runs a function in real processes, and records every message. They know `torch` and `dist`,
# and nothing else of this notebook. They send through PyTorch's library *gloo*.

# %%
rng = np.random.default_rng(0)
numbers = rng.normal(size=(4, 1000))
server = lab.missions.distributed(by_server)(4, [{"numbers": each.tolist()} for each in numbers])
for rank, done in enumerate(server):
    assert np.allclose(done.value, numbers.mean(axis=0))
    print(f"process {rank} has the mean, after {len(done.messages)} messages")

# %%
lab.guess(
    "own-ring-bytes",
    "In a ring of four processes, how many bytes does each one send to average these 1,000 numbers of 8 bytes?",
    of=(4, 8000),
    unit="bytes",
    low=1000,
    high=100_000,
)

# %%
lab.reveal("own-ring-bytes")
print("by the server:", [done.sent_bytes for done in server], "bytes sent by each process")
print(f"in a ring: {2 * 3 * 8000 // 4} bytes by each process")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# In a ring, each process sends an N-th of the numbers 2 (N - 1) times, so no NIC carries more than another. A server's
# NIC carries N - 1 times the numbers, in and out.
#
# </details>
#
# ## 2. The ring
#
# Cut the numbers into N parts. In each round a process sends one part to the next process, and receives one from the
# previous one. The drawing shows who holds which sums after each round, with four processes:
#
# ![A ring of four processes. In rounds 1 to 3 each process adds the part that it receives, until it holds one finished
# sum. In rounds 4 to 6 the finished sums go round.](../docs/pictures/ring-all-reduce.svg)
#
# All processes send and receive at the same time. If each calls `dist.send` first, each may wait for a receive that
# never comes: a *deadlock*. `dist.isend` starts the send and returns.
#
# > **Takeaway.** An all-reduce gives every process the mean, by sends and receives. A ring spreads the bytes evenly
# > over all processes, and pays with 2 (N - 1) rounds of latency.
#
# ## Missions

# %%
lab.missions.show("own-ring")

# %%
# def all_reduce(rank, n, numbers): ...
# lab.missions.check("own-ring", lab.missions.distributed(all_reduce))

# %% [markdown]
# Next: [Your own pipeline](20_own_pipeline.ipynb).

# %%
lab.missions.board("19_own_all_reduce")
