"""How well a probe finds a network that is known: delays and rates of a proxy between two hosts on this machine.

For each line the one-way latency and the bandwidth that were found, both directions, and the error of the time that
a message of 3 MB would be predicted to take. ``at best`` is half of the least round trip, which a busy machine cannot
make longer.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import click

from dtfm_lab.runtime.probe import ProbeListener, join

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "runtime"))
from slow_proxy import Line, slow_proxy

LINES = {
    "a city": (Line(0.002, 50e6), Line(0.002, 50e6)),
    "a home": (Line(0.010, 2.5e6), Line(0.010, 20e6)),
    "a continent": (Line(0.050, 40e6), Line(0.050, 40e6)),
    "the world": (Line(0.110, 20e6), Line(0.110, 10e6)),
}
MESSAGE_BYTES = 3e6


@click.command(help=__doc__)
@click.option("--seconds", default=6.0, show_default=True, help="For each line.")
def main(seconds: float) -> None:
    columns = ["latency ms", "found", "at best", "there MB/s", "found", "back MB/s", "found", "3 MB"]
    print(f"{'line':12}" + "".join(f"{column:>12}" for column in columns))
    for name, (there, back) in LINES.items():
        told: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as held:
            data_port = held.getsockname()[1]
        with slow_proxy(data_port, there, back) as reached_at, ProbeListener() as listener:
            for host, options in (
                ("a", {}),
                ("b", {"advertise": ("127.0.0.1", reached_at), "data_port": data_port}),
            ):
                arguments = {"token": listener.token, "name": host, **options}
                threading.Thread(target=join, args=("127.0.0.1", listener.port), kwargs=arguments, daemon=True).start()
            network = listener.probe(2, seconds=seconds, report=told.append)
        true_s = (there.delay_s + back.delay_s) / 2
        best = told[-1].split("at best ")[1].split(")")[0]
        rates = network.bandwidth_bytes_per_s
        error = network.transfer_s(MESSAGE_BYTES)[0, 1] / (true_s + MESSAGE_BYTES / there.bytes_per_s) - 1
        numbers = [1e3 * true_s, 1e3 * network.latency_s[0, 1], best, there.bytes_per_s / 1e6, rates[0, 1] / 1e6]
        numbers += [back.bytes_per_s / 1e6, rates[1, 0] / 1e6]
        shown = "".join(f"{x:>12}" if isinstance(x, str) else f"{x:>12.4g}" for x in numbers)
        print(f"{name:12}{shown}{error:>+12.1%}", flush=True)


if __name__ == "__main__":
    main()
