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
# # The network
#
# **Is it latency or bandwidth that a message pays for?**
#
# 40 minutes. Needs only Python; words are in the [glossary](../docs/glossary.md).
#
# You will be able to:
#
# - Compute the seconds of a message, and the size at which latency and bandwidth cost the same.
# - Count the rounds of an average, and say when more devices make it slower.
# - Find the links that are worth improving, and those where twice the bandwidth saves nothing.
# - Fit latency and bandwidth to messages timed on your machine.

# %%
import socket
import threading
import time

import numpy as np
import pandas as pd
import plotly.express as px

import dtfm_lab as lab

pd.set_option("display.max_colwidth", None)  # sentences in full

# %% [markdown]
# ## 1. A line with two numbers
#
# A message of $b$ bytes from one device to another takes
#
# $$t(b) = \alpha + \frac{b}{\beta}$$
#
# $\alpha$ is the *latency*: the seconds until the first byte arrives. Light in glass needs about 5 µs per kilometre,
# so money hardly shortens it. $\beta$ is the *bandwidth*: the bytes per second from then on. You can buy more. It is
# sold in Gbit/s: $10^9$ bits, or 125 MB, per second.
#
# A [topology](../docs/glossary.md#the-nouns) holds both numbers for every ordered pair of devices. The next cell
# shows three links of the paper's world-wide case (eight AWS regions, from the [public code of
# DT-FM](https://github.com/DS3Lab/DT-FM)).

# %%
world = lab.load_topology("worldwide")
pairs = [("Oregon-0", "Oregon-1"), ("Virginia-0", "London-0"), ("Oregon-0", "Tokyo-0")]
latency_ms, gbps = world.to_matrices()
# A table with one column per link. T swaps rows and columns.
pd.DataFrame({f"{a} to {b}": {"latency, ms": latency_ms.loc[a, b], "Gbit/s": gbps.loc[a, b]} for a, b in pairs}).T

# %% [markdown]
# A message of 64 kB goes from Oregon to Tokyo, and someone doubles the bandwidth of that link. Answer both questions,
# then continue.


# %%
def message_s(source, target, n_bytes, faster=1):
    """Seconds of a message on a link of `world`, its bandwidth multiplied."""
    alpha = latency_ms.loc[source, target] / 1000
    beta = gbps.loc[source, target] * 1e9 / 8
    return alpha + n_bytes / (beta * faster)


lab.guess(
    "network-double-bandwidth",
    "By how many per cent is a message of 64 kB from Oregon to Tokyo shorter when the bandwidth is doubled?",
    of=(message_s,),
    unit="%",
    low=0,
    high=100,
)

# %%
lab.guess(
    "network-which-term",
    "And what does that message of 64 kB pay for, mostly?",
    of=(message_s,),
    choices=("its latency", "its bandwidth", "both alike"),
)

# %%
lab.reveal("network-double-bandwidth", "network-which-term")
for n_bytes in (64_000, 64_000_000):
    before, after = (message_s("Oregon-0", "Tokyo-0", n_bytes, faster) for faster in (1, 2))
    print(f"{n_bytes / 1e6:6.3f} MB: {before * 1e3:7.1f} ms, with twice the bandwidth {after * 1e3:6.1f} ms")
    print(f"so it is {1 - after / before:.1%} shorter")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The short message is nearly all latency. Twice the bandwidth halves only the rest.
#
# </details>

# %% [markdown]
# When do both cost the same? If $\alpha = b / \beta$, then $b = \alpha \beta$. This is the [half-and-half
# size](../docs/glossary.md#training-in-parallel) of a link, or its bandwidth-delay product. With 50 ms and 1 Gbit/s,
# it is 6.25 MB. A message of that size uses half of the bandwidth that you pay for.

# %%
rows = []
for a, b in pairs:
    # alpha x beta, in seconds and bytes per second
    half_bytes = latency_ms.loc[a, b] / 1000 * gbps.loc[a, b] * 1e9 / 8
    rows += [
        {"link": f"{a} to {b}", "bytes": n, "seconds": message_s(a, b, n), "half and half": half_bytes}
        for n in np.geomspace(1e3, 1e9, 40)
    ]
    print(f"{a} to {b}: half and half at {half_bytes / 1e6:.2f} MB")
times = pd.DataFrame(rows)
px.line(
    times, x="bytes", y="seconds", color="link", log_x=True, log_y=True, title="Flat is latency, slope is bandwidth"
)

# %% [markdown]
# ## 2. Which messages does training send?
#
# A pipeline *stage* holds some layers. For each *micro-batch*, a part of the batch, it sends its output,
# *activations*, to the next stage. *Replicas* of a stage average their *gradients*, in parts. The next lesson derives
# the sizes.

# %%
for name in ("tiny", "gpt3-xl"):
    job = lab.load_job(name, n_stages=8, n_replicas=8, global_batch=64, microbatch=1)
    part_bytes = job.gradient_bytes / job.n_replicas  # a group of 8 averages in parts of an eighth
    print(f"{name:8} activation {job.activation_bytes / 1e6:8.3f} MB, part of a gradient {part_bytes / 1e6:8.3f} MB")

# %% [markdown]
# The messages of `tiny` are on the flat side of every link above, and GPT3-XL's gradients are on the slope. So the
# size decides, not the link: **small messages pay for latency, large ones for bandwidth.** A demonstration with a
# small model says little about a large one.
#
# ## 3. Rounds: latency counts more than once
#
# Replicas average their gradients of $S$ bytes. This is an *all-reduce*. In a ring of $N$ devices, each device sends
# one $N$-th to its right neighbour, and receives another. It adds its own numbers and sends the sum on. After $N - 1$
# rounds, every part is summed somewhere. After $N - 1$ more, all devices have all sums.
#
# $$t = 2 (N - 1) \left(\alpha + \frac{S}{N \beta}\right)$$
#
# The second term hardly grows with $N$: it tends to $2 S / \beta$. The first grows without limit.
#
# Now eight devices average the gradients of `tiny`, with 20 ms and 1 Gbit/s between any two. Then 32 devices do.


# %%
def averaging_s(n, how, gbps=1.0, latency_ms=20.0, **options):
    """Seconds from the last backward until all of n devices have the averaged gradient, simulated."""
    # The same latency and bandwidth between any two of n devices.
    net = lab.Topology.from_matrices(np.full((n, n), latency_ms), np.full((n, n), gbps), gpu="V100")
    job = lab.load_job("tiny", n_stages=1, n_replicas=n, global_batch=n, microbatch=1, synchronisation=how)
    trace = lab.simulate(lab.evaluate(net, job, stages=[list(range(n))]), **options)
    rows = trace.to_frame()
    # Kind B is a backward pass.
    return trace.iteration_s - rows.end_s[rows.kind == "B"].max()


lab.guess(
    "network-more-devices",
    "How many times as long does the average take among 32 devices as among 8?",
    of=(averaging_s,),
    unit="times",
    low=0.25,
    high=16,
)

# %%
lab.reveal("network-more-devices")
s_bytes = lab.load_job("tiny", n_stages=1, n_replicas=2, global_batch=2, microbatch=1).gradient_bytes
rows = []
for n in (2, 4, 8, 16, 32):
    latency_part_s, bandwidth_part_s = 2 * (n - 1) * 0.020, 2 * (n - 1) / n * s_bytes * 8 / 1e9
    rows.append([n, 2 * (n - 1), latency_part_s, bandwidth_part_s, averaging_s(n, "ring"), averaging_s(n, "ring", 2)])
columns = ["devices", "rounds", "latency part, s", "bandwidth part, s", "simulated, s", "with 2 Gbit/s, s"]
rounds = pd.DataFrame(rows, columns=columns).set_index("devices")
assert np.allclose(rounds.iloc[:, 1] + rounds.iloc[:, 2], rounds["simulated, s"])
rounds.round(4)

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The simulator agrees with the formula. In the last row, twice the bandwidth saves only 4 %, because a round is
# nearly all latency. **More devices make each message smaller, and send more of them.** So latency matters more.
#
# Do fewer rounds help? A *central* server receives whole gradients and sends the average back: two rounds for any
# $N$. But if it has only one link, everything crosses that. So each device now has one network card, or NIC
# (`queueing="nics"`). It sends one message at a time. Above, each pair had a separate line.
#
# </details>

# %%
lab.guess(
    "network-central-server",
    "32 devices, 20 ms: how many times as fast as the ring is a central server with one NIC of 1 Gbit/s?",
    of=(averaging_s,),
    unit="times",
    low=0.01,
    high=10,
)

# %%
lab.reveal("network-central-server")
for n in (4, 8, 32):
    ring_s, central_s = (averaging_s(n, how, queueing="nics") for how in ("ring", "central"))
    own_s = averaging_s(n, "central")
    print(f"{n:2} devices: ring {ring_s:.3f} s, central {central_s:.3f} s, {own_s:.3f} s with a link to each device")

# %% [markdown]
# <details><summary>After your guess</summary>
#
# The server's NIC receives $(N - 1) S$ bytes and sends as many. In a ring, each NIC receives and sends $2 S (N - 1) /
# N$. A ring saves bandwidth but needs more rounds. So neither is always faster. With a tenth of these gradients, 32
# devices would take 1.25 s in a ring and 0.37 s with a server. That is why libraries choose the algorithm by message
# size. ([Other ways](../docs/glossary.md#training-in-parallel))
#
# </details>
#
# ## 4. Where twice the bandwidth does nothing
#
# More bandwidth is worth nothing on three kinds of links. Some carry small messages, some carry theirs while devices
# compute, and some carry nothing. The next cell plans eight laptops. `.sensitivity()` improves each link and device
# that the plan uses and simulates again. It also improves all links and all devices of a kind together.

# %%
plan = lab.plan("lecture-hall", lab.load_job("tiny", n_stages=4, n_replicas=2), seed=0, steps=5)
gains = lab.explain(plan).sensitivity(factor=2)
links = gains[(gains["of"] == "link") & (gains.what == "bandwidth")]
# change_s is the new iteration time minus the old one, so below zero is faster.
idle = links.change_s > -1e-9
print(f"twice the bandwidth shortens the iteration on {(~idle).sum()} of {len(links)} links")
links[["name", "iteration_s", "change_s", "sentence"]].head(4)

# %%
lab.figures.sensitivity(gains)

# %% [markdown]
# One better link helps little if others are as slow, because devices still wait for those. All links of a region
# together help more. Latency can also matter where bandwidth does not. So improve the whole network in both ways:

# %%
for what in ("bandwidth", "latency"):
    sweep = lab.sweep(plan, **{what: [1, 2, 4, 8] if what == "bandwidth" else [1, 1 / 2, 1 / 4, 1 / 8]})
    print(f"{what:9} better by 1, 2, 4, 8: ", ", ".join(f"{s:.3f} s" for s in sweep.iteration_s))

# %% [markdown]
# ## 5. Prove it wrong on your machine
#
# The line $\alpha + b / \beta$ is a claim about machines, so test it on yours. The next cell sends messages of 1 kB
# to 4 MB between two sockets, over your loopback interface. It keeps the fastest of 15 tries, because other programs
# can only slow a message down. Nothing leaves the machine.


# %%
def time_messages(sizes, repeats=15):
    """Seconds from sending a message until its last byte was read and one byte came back, by size."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer():
        connection, _ = server.accept()
        with connection:
            for n_bytes in sizes:
                for _ in range(repeats):
                    left = n_bytes
                    while left:
                        left -= len(connection.recv(min(left, 1 << 16)))
                    connection.sendall(b"!")

    threading.Thread(target=answer, daemon=True).start()
    best_s = []
    with socket.create_connection(server.getsockname()) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for n_bytes in sizes:
            message, times_s = bytes(n_bytes), []
            for _ in range(repeats):
                began = time.perf_counter()
                client.sendall(message)
                client.recv(1)
                times_s.append(time.perf_counter() - began)
            best_s.append(min(times_s))
    server.close()
    return np.array(best_s)


sizes = [int(n) for n in np.geomspace(1e3, 4e6, 13)]
measured_s = time_messages(sizes)
# Each equation is divided by its measured seconds, so that small messages count as much as large ones.
weights = np.stack([1 / measured_s, np.array(sizes) / measured_s], axis=1)
alpha, per_byte = np.linalg.lstsq(weights, np.ones(len(sizes)), rcond=None)[0]
fitted_s = alpha + np.array(sizes) * per_byte
print(f"latency {alpha * 1e6:.0f} µs there and back, bandwidth {8e-9 / per_byte:.1f} Gbit/s")
print(f"half and half at {alpha / per_byte / 1e3:.0f} kB; off by {np.abs(fitted_s / measured_s - 1).max():.0%} at most")

# %%
# melt puts both columns, measured and line, below each other, as plotly needs them.
loopback = pd.DataFrame({"bytes": sizes, "measured": measured_s, "line": fitted_s}).melt("bytes", value_name="seconds")
px.line(loopback, x="bytes", y="seconds", color="variable", log_x=True, log_y=True, markers=True)

# %% [markdown]
# Is your line straight? Real links bend: a protocol starts slowly, buffers overflow, and large messages do not fit
# caches. So a `Topology` can hold measured times (`message_bytes`, `message_s`). [The real run](10_real_run.ipynb)
# measures how wrong a line is for *training*.
#
# > **Takeaway.** A message takes its latency plus its bytes over the bandwidth. Small messages pay for latency, large
# > ones for bandwidth. A ring of more devices sends more and smaller messages, so latency matters more.
#
# ## Missions

# %%
lab.missions.show("half-and-half")

# %%
# answer = ...
# lab.missions.check("half-and-half", answer)

# %%
lab.missions.show("ring-by-hand")

# %%
# def ring_s(n, n_bytes, latency_s, bandwidth_bytes_per_s): ...
# lab.missions.check("ring-by-hand", ring_s)

# %%
lab.missions.show("best-upgrade")

# %%
# given = lab.missions.given("best-upgrade")
# answer = ...
# lab.missions.check("best-upgrade", answer)

# %% [markdown]
# Next: [Data, pipeline and both](03_data_and_pipeline.ipynb): what crosses which wire?

# %%
lab.missions.board("02_network")
