"""Look up the peak and memory of the GPUs that tools name: in the table of hardware, or in what the user states."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network import HARDWARE, as_number, hardware_of, known_gpu, variants_of
from dtfm_lab.domain.units import TERA, GiB
from dtfm_lab.extensions.machines.seen import ReportedGpu, ReportedHost


class GivenHardware:
    """Peak and memory of GPUs by the names that tools use: from the table of hardware, or as the user states them."""

    def __init__(self, peak_tflops: Mapping[str, float], memory_gib: Mapping[str, float]) -> None:
        self._peak_tflops = {name.casefold(): value for name, value in peak_tflops.items()}
        self._memory_gib = {name.casefold(): value for name, value in memory_gib.items()}

    def lacking(self, host: ReportedHost) -> dict[str, str]:
        """Return what the user must state about the host's GPUs, by GPU name: ``peak_tflops and memory_gib``, or one of
        them. Empty if nothing is missing. Raises TopologyError for an invalid number from the user."""
        found = {}
        for gpu in dict.fromkeys(host.gpus):
            fields = self.fields(gpu)
            wanted = {"peak_tflops": "peak_flop_per_s", "memory_gib": "memory_bytes"}
            missing = [word for word, key in wanted.items() if key not in fields]
            if missing and not _is_in_table(gpu):
                found[gpu.name] = " and ".join(missing)
        return found

    def wanted(self, hosts: Sequence[ReportedHost]) -> str:
        """Return the end of an error message: what the user can state about the GPUs that are not in the table."""
        lacking = {name: what for host in hosts for name, what in self.lacking(host).items()}
        example = f"--gpu {next(iter(lacking))!r}".replace("'", '"').rstrip('"')
        of_all = {each for what in lacking.values() for each in what.split(" and ")}
        fields = [each for each in ("peak_tflops", "memory_gib") if each in of_all]
        whose = "its" if len(lacking) == 1 else "their"
        values = {"peak_tflops": "TFLOPS", "memory_gib": "TFLOPS,GIB"}[fields[-1]]
        return f'{whose} {" and ".join(fields)} ({example}={values}")'

    def fields(self, gpu: ReportedGpu) -> dict[str, Any]:
        """Return the fields of a device with this GPU. Its peak or its memory is left out if it is unknown, or if the
        table of hardware has it for this GPU. Raises TopologyError for an invalid number from the user."""
        stated = self._given(gpu.name)
        known = known_gpu(*gpu)
        if known is None and hardware_of(gpu.name) is not None:  # a whole computer, by the table's own name
            known = gpu.name
        memory = {} if gpu.memory_bytes is None else {"memory_bytes": gpu.memory_bytes}
        fields: dict[str, Any] = {"gpu": known or gpu.name, **memory, **stated}
        if stated and known is not None:  # the user's peak, and the table's memory
            row = hardware_of(known)
            assert row is not None, "it is in the table"
            fields = {"peak_flop_per_s": row.peak_flop_per_s, "memory_bytes": row.memory_bytes} | fields
        return fields

    def notes(self, hosts: Sequence[ReportedHost]) -> Iterator[str]:
        """Yield a note for each GPU whose memory no one states and whose name fits several sizes: which one is
        assumed."""
        stated = {gpu.name for host in hosts for gpu in host.gpus if gpu.memory_bytes is None}
        for name in sorted(each for each in stated if each.casefold() not in self._memory_gib):
            if (known := known_gpu(name)) is None or not (variants := variants_of(name)):
                continue
            gib, others = HARDWARE[known].memory_bytes / GiB, " or ".join(each for each in variants if each != known)
            yield f"{name!r} does not give the memory: {known} with {gib:.0f} GiB is assumed, it may be {others}"

    def _given(self, name: str) -> dict[str, float]:
        stated = {}
        for what, given, scale, unit in (
            ("peak_flop_per_s", self._peak_tflops, TERA, "peak_tflops"),
            ("memory_bytes", self._memory_gib, GiB, "memory_gib"),
        ):
            if (value := given.get(name.casefold())) is None:
                continue
            number = as_number(value)
            if number is None or not 0 < number * scale < 1e30:
                wanted = "TFLOP/s in half precision" if unit == "peak_tflops" else "GiB of memory"
                raise TopologyError(f"{unit} of {name!r} is {value!r}; wanted {wanted}")
            stated[what] = number * scale
        return stated


def _is_in_table(gpu: ReportedGpu) -> bool:
    return known_gpu(*gpu) is not None or hardware_of(gpu.name) is not None
