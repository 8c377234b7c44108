"""A probe finds the network that is there, and says in one line what is in its way."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from slow_proxy import Line, slow_proxy

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import known_gpu
from dtfm_lab.runtime.probe import ProbeListener, facts, host_and_port, join, listening
from dtfm_lab.runtime.probe.facts import devices_of, facts_of_this_host, sentence_of
from dtfm_lab.runtime.probe.timing import bandwidth_of, one_way_s, topology_of
from dtfm_lab.runtime.protocol.channels import PROTOCOL, Channel, respond
from dtfm_lab.simulation.efficiency import peak_of, share_of

TOKEN = "of this test"


@pytest.fixture(autouse=True)
def _quick_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "FACTS_S", 0.02)
    monkeypatch.setattr(facts, "_operator_times", lambda seconds: {})


@pytest.fixture
def listener() -> Iterator[ProbeListener]:
    """Closed by the test that probes with it, or here."""
    opened = ProbeListener(token=TOKEN)
    yield opened
    opened.close()


class Host:
    """Joins from a thread of this process; ``outcome`` is what the probe was for it."""

    def __init__(self, listener: ProbeListener, name: str, token: str = TOKEN, **options: Any) -> None:
        self.outcome: str | None = None
        self._thread = threading.Thread(target=self._join, args=(listener.port, name, token, options), daemon=True)
        self._thread.start()

    def _join(self, port: int, name: str, token: str, options: dict[str, Any]) -> None:
        try:
            join("127.0.0.1", port, token=token, name=name, **options)
            self.outcome = "done"
        except LabError as error:
            self.outcome = str(error)

    def end(self) -> str | None:
        self._thread.join(120)
        return self.outcome


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def stranger(listener: ProbeListener, say: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", listener.port), timeout=60)
    connection.sendall(say)
    return connection


def test_delay_and_rate_of_a_known_network_are_found_in_both_directions(listener):
    there, back = Line(0.010, 4e6), Line(0.020, 2e6)  # slow enough for a proxy in Python on busy cores
    lines: list[str] = []
    with slow_proxy(data_port := free_port(), there, back) as reached_at, listener:
        hosts = [
            Host(listener, "ada", region="Oslo"),
            Host(listener, "barbara", advertise=("127.0.0.1", reached_at), data_port=data_port),
        ]
        network = listener.probe(2, seconds=1.5, name="two", report=lines.append)
    assert [host.end() for host in hosts] == ["done", "done"]
    assert (network.name, network.names) == ("two", ("ada", "barbara"))
    assert network.devices[0].region == "Oslo"
    # computers that have other things to do are late, never early: the least of many times is the network's
    assert 0.015 <= network.latency_s[0, 1] == network.latency_s[1, 0]
    (least_ms,) = (float(line.split("at best ")[1].split(" ms")[0]) for line in lines if "at best" in line)
    assert 14 < least_ms < 200
    for n_bytes in (5e4, 7e5, 1e7):
        moving_s = network.transfer_s(n_bytes) - network.latency_s
        for found_s, line in ((moving_s[0, 1], there), (moving_s[1, 0], back)):
            expected_s = n_bytes / line.bytes_per_s
            assert expected_s / 6 - 0.02 < found_s < 6 * expected_s + 1  # a late small message makes more seem fast
    for found, line in ((network.bandwidth_bytes_per_s[0, 1], there), (network.bandwidth_bytes_per_s[1, 0], back)):
        assert line.bytes_per_s / 6 < found < 6 * line.bytes_per_s
    assert "reached in products" in network.description
    assert any("pair 1 of 1: ada - barbara" in line for line in lines)


def test_strangers_are_turned_away_and_do_not_keep_hosts_from_coming(listener):
    lines: list[str] = []
    callers = [stranger(listener, b"GET / HTTP/1.1\r\n\r\n"), stranger(listener, json.dumps([1]).encode() + b"\n")]
    callers.append(stranger(listener, json.dumps({"protocol": PROTOCOL, "proof": "none"}).encode() + b"\n"))
    callers.append(stranger(listener))
    callers[-1].close()
    with listener:
        thief = Host(listener, "eve", token="guessed")
        assert "its token is another; wanted the one that the listener printed" in collected(listener, lines, thief.end)
        hosts = [Host(listener, name) for name in ("ada", "barbara")]
        network = listener.probe(2, seconds=0.2, report=lines.append)
    assert network.names == ("ada", "barbara")
    assert [host.end() for host in hosts] == ["done", "done"]
    assert sum("turned 127.0.0.1 away" in line for line in lines) == 5
    for caller in callers:
        caller.close()


def collected(listener: ProbeListener, lines: list[str], then: Callable[[], str | None]) -> str:
    """Let the listener meet who is waiting, and nobody stays."""
    with pytest.raises(RunError, match=r"0 of 2 hosts came within 1 s: nobody"):
        listener.probe(2, wait_s=1, report=lines.append)
    return str(then())


def test_a_listener_that_does_not_know_the_token_gets_no_measurements():
    """Whoever took its place on the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        outcome: list[str | None] = []

        def pretend() -> None:
            connection, _ = server.accept()
            channel = Channel(connection)
            channel.send(protocol=PROTOCOL, nonce="n")
            channel.receive(5)
            channel.send(proof="made up")
            outcome.append("proof sent")

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(RunError, match="does not know the token itself"):
            join("127.0.0.1", server.getsockname()[1], token=TOKEN, name="ada")


def test_another_version_is_refused_on_both_sides(listener, monkeypatch):
    lines: list[str] = []
    caller = stranger(listener, json.dumps({"protocol": 99, "nonce": "n", "proof": "p"}).encode() + b"\n")
    collected(listener, lines, lambda: None)
    assert lines == [
        f"turned 127.0.0.1 away: speaks version 99 of the protocol; wanted {PROTOCOL}, the same dtfm_lab everywhere"
    ]
    with pytest.raises(Exception, match=f"speaks version 99 of the protocol; the listener speaks {PROTOCOL}"):
        respond(Channel(caller), TOKEN)


def test_a_name_that_is_there_already_is_refused(listener):
    with listener:
        first = Host(listener, "ada")
        time.sleep(0.2)
        second = Host(listener, "ada")
        with pytest.raises(RunError, match="1 of 2 hosts came within 1 s: ada"):
            listener.probe(2, wait_s=1)
    assert "a host named 'ada' is there already; wanted a name of its own" in str(second.end())
    first.end()


@contextlib.contextmanager
def two_and(listener: ProbeListener, what: Callable[[Channel], None]) -> Iterator[Host]:
    """``ada`` is an ordinary host; ``barbara`` joins and then does ``what``."""
    ada = Host(listener, "ada")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel = Channel(stranger(listener))

        def barbara() -> None:
            respond(channel, TOKEN)
            channel.send(name="barbara", port=silent.getsockname()[1])
            what(channel)

        threading.Thread(target=barbara, daemon=True).start()
        yield ada


def test_a_host_that_vanishes_is_named(listener):
    complaint = "host barbara closed the connection, asked for its facts"
    with two_and(listener, lambda channel: channel.close()) as ada, pytest.raises(RunError, match=complaint), listener:
        listener.probe(2)
    assert "host barbara closed the connection" in str(ada.end())


def test_a_host_that_others_do_not_reach_is_named_with_its_address(listener):
    hosts = [Host(listener, name, advertise=("127.0.0.1", free_port())) for name in ("ada", "barbara")]
    with listener, pytest.raises(RunError) as refused:
        listener.probe(2)
    assert "ada does not reach barbara at 127.0.0.1 port" in str(refused.value)
    assert "barbara does not reach ada" in str(refused.value)
    for host in hosts:
        host.end()


def test_a_pair_is_timed_from_the_end_that_reaches_the_other(listener):
    with listener:
        hosts = [Host(listener, "ada"), Host(listener, "barbara", advertise=("127.0.0.1", free_port()))]
        network = listener.probe(2, seconds=0.2)
    assert np.isfinite(network.message_s[0, 1]).all()
    assert [host.end() for host in hosts] == ["done", "done"]


def test_what_says_nothing_of_itself_makes_no_device(listener):
    def lie(channel: Channel) -> None:
        channel.receive(5)
        channel.send(cores=0, memory_bytes=1, flop_per_s=[1], operators={}, gpus=[])

    complaint = r"host barbara says of itself .*; wanted its facts"
    with two_and(listener, lie), pytest.raises(RunError, match=complaint), listener:
        listener.probe(2)


def test_a_port_that_is_taken_and_an_address_of_another_machine_are_refused():
    with (
        ProbeListener() as holding,
        pytest.raises(LabError, match=f"port {holding.port} on 127.0.0.1 is taken; wanted a"),
    ):
        ProbeListener("127.0.0.1", holding.port)
    with pytest.raises(LabError, match=r"192\.0\.2\.1 is no address of this machine"):
        ProbeListener("192.0.2.1")


def test_a_host_that_finds_no_listener_says_where_it_looked():
    with pytest.raises(RunError, match=f"127.0.0.1 port {(port := free_port())} could not be reached for 0.5 s"):
        join("127.0.0.1", port, token=TOKEN, name="ada", wait_s=0.5)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"n_hosts": 1}, "hosts of a probe is 1; wanted 2 to 256"),
        ({"n_hosts": 2, "seconds": 0.0}, "seconds of a probe is 0.0; wanted 0.1 to 3600"),
        ({"n_hosts": 2, "wait_s": float("nan")}, "wait of a probe is nan; wanted 0 to 86400"),
    ],
)
def test_numbers_out_of_range_are_refused(listener, options, complaint):
    with listener, pytest.raises(LabError, match=complaint):
        listener.probe(**options)


def test_addresses_are_a_host_and_a_port():
    assert host_and_port("10.0.0.1:4711") == ("10.0.0.1", 4711)
    assert host_and_port("[::1]:4711") == ("::1", 4711)
    assert host_and_port("4711", default_host="127.0.0.1") == ("127.0.0.1", 4711)
    for wrong in ("4711", "host:", "host:port", "host:70000", ""):
        with pytest.raises(LabError, match="is no address; wanted HOST:PORT"):
            host_and_port(wrong)


def test_one_way_is_a_round_trip_less_half_of_a_small_one_and_never_less_for_more():
    sizes, times = one_way_s(0.02, [(1000, 0.021), (4000, 0.024), (16000, 0.023), (64000, 0.084)])
    assert sizes.tolist() == [1000, 4000, 16000, 64000]
    assert times == pytest.approx([0.011, 0.014, 0.014, 0.074])
    assert bandwidth_of(np.array([1e6, 4e6, 16e6]), np.array([0.11, 0.41, 1.61])) == pytest.approx(1e7)
    assert bandwidth_of(np.array([1e6, 4e6]), np.array([0.5, 0.5])) == 8e6  # times that do not grow: size over time
    late_s = np.array([0, 0.02, 0, 0])  # at one size a computer had other things to do
    four = 2.0 ** np.array([14, 16, 18, 20])
    assert bandwidth_of(four, 0.01 + four / 4e6 + late_s) == pytest.approx(4e6)


NAMES = {
    "NVIDIA A100-SXM4-40GB": "A100 40GB",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA A100 80GB PCIe": "A100",
    "Tesla P100-PCIE-16GB": "P100 PCIe",
    "Tesla V100-SXM2-32GB": "V100 32GB",
    "Tesla T4": "T4",
    "NVIDIA A10G": "A10G",
    "NVIDIA L40S": "L40S",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H200": "H200",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA RTX A6000": "RTX A6000",
    "Quadro RTX 6000": "Quadro RTX 6000",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA GeForce RTX 3060": "RTX 3060",
    "NVIDIA GeForce RTX 3060 Ti": "RTX 3060 Ti",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "RTX 4090 Laptop",
    "AMD Instinct MI300X OAM": "MI300X",
    "NVIDIA GeForce RTX 4090 D": None,
    "NVIDIA GeForce RTX 3060 Laptop GPU": None,
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None,
}


@pytest.mark.parametrize("name", NAMES)
def test_gpus_are_known_by_what_their_driver_calls_them(name):
    assert known_gpu(name) == NAMES[name]


FACTS = {"cores": 8, "memory_bytes": 2.0**34, "flop_per_s": [250e9, 256e9, 23e9], "operators": {}, "gpus": []}


def test_a_processor_reaches_the_median_of_what_was_measured_and_no_share_of_it():
    (device,) = devices_of("ada", "", FACTS)
    assert (device.gpu, device.host) == ("CPU, 8 cores", "")
    job = lab.load_job("tiny", n_stages=1, n_replicas=1)
    assert peak_of(device, "fp32") * share_of(job, device) == pytest.approx(250e9)
    assert "250 GFLOP/s reached in products of numpy (23 to 256 in 3 samples)" in sentence_of("ada", FACTS)


def test_a_block_is_timed_by_its_operators_as_a_worker_computes_them(monkeypatch):
    """On one thread: what it reaches is the block's FLOP, as a model counts them, over the sum of the seconds."""
    monkeypatch.undo()
    found = facts_of_this_host(0.1)
    assert found["operators"].keys() == set(facts.OPERATORS)
    block = gpt(n_layers=1, d_model=256, n_heads=4, seq_len=128, vocab_size=1).layers[1]
    reached = 3 * block.forward_flop / sum(found["operators"].values())
    assert min(found["flop_per_s"]) / 3 < reached < 3 * max(found["flop_per_s"])
    assert "reached in a block" in sentence_of("ada", found)


def test_links_are_as_sure_as_single_messages_were_alike():
    timing = {"median_s": 0.02, "there": [(1000, 0.021), (64000, 0.084)], "back": [(1000, 0.021), (64000, 0.084)]}
    hosts = [devices_of(name, "", FACTS) for name in ("ada", "alan", "grace")]
    timed = {(i, j): timing | {"spread": 0.1 * (i + j)} for i, j in ((0, 1), (0, 2), (1, 2))}
    assert topology_of(hosts, timed, name="three", facts=[]).link_spread == pytest.approx((0.14 / 3) ** 0.5, rel=0.03)


def test_eight_gpus_of_a_host_are_eight_devices():
    facts = FACTS | {"gpus": [("NVIDIA H100 80GB HBM3", 81559 * 2**20)] * 8}
    ada, alan = devices_of("ada", "x", facts), devices_of("alan", "x", FACTS | {"gpus": [("Tesla T4", None)]})
    assert [d.name for d in ada] == [f"ada-{i}" for i in range(8)]
    assert {d.gpu for d in ada} == {"H100"}
    assert "8 x NVIDIA H100 80GB HBM3" in sentence_of("ada", facts)
    way = [(1000, 0.021), (64000, 0.084)]
    timing = {"median_s": 0.02, "spread": 0.1, "there": way, "back": way}
    network = topology_of([ada, alan], {(0, 1): timing}, name="two", facts=["it"])
    assert len(network) == 9
    assert network.card_of.tolist() == [0] * 8 + [8]
    assert network.bandwidth_bytes_per_s[0, 7] == 25e9
    assert network.latency_s[0, 8] == network.latency_s[7, 8] == 0.01
    assert network.transfer_s(1000)[3, 8] == pytest.approx(0.011)


def test_a_gpu_that_is_not_in_the_table_keeps_its_name_and_memory_and_asks_for_its_peak():
    facts = FACTS | {"gpus": [("NVIDIA GeForce GTX 1060", 6 * 2**30)]}
    (device,) = devices_of("ada", "", facts)
    assert (device.gpu, device.memory_bytes) == ("NVIDIA GeForce GTX 1060 (peak unknown)", 6 * 2**30)
    assert "NVIDIA GeForce GTX 1060 is not in the table of GPUs: fill in its peak_tflops" in sentence_of("ada", facts)


def test_a_gpu_of_another_memory_keeps_its_own():
    (device,) = devices_of("ada", "", FACTS | {"gpus": [("NVIDIA GeForce RTX 3060", 8 * 2**30)]})
    assert (device.gpu, device.memory_bytes) == ("RTX 3060", 8 * 2**30)
    (device,) = devices_of("ada", "", FACTS | {"gpus": [("Tesla T4", 15360 * 2**20)]})  # error correction takes some
    assert device == lab.Device(name="ada", gpu="T4")
