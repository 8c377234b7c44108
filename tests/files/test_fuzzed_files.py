"""Whatever a file holds, reading it ends in a value or in one line that names the file: mutations of valid ones."""

import copy
import io
import json
import warnings

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import LabError
from dtfm_lab.files import (
    load_job,
    load_plan,
    load_schedule,
    load_topology,
    load_trace,
    save_plan,
    save_schedule,
    save_topology,
    save_trace,
)
from dtfm_lab.files.workspaces import WorkspaceState, load_workspace, save_workspace
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.simulate import simulate

SOME_EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

JOB = """dtfm_job: 1
base: tiny
n_stages: 2
n_replicas: 2
model: {name: small, n_layers: 2, d_model: 8, n_heads: 2, seq_len: 8, vocab_size: 16}
"""


SMALL = load_topology("volunteers").subset(["amy", "eve", "gus", "mia"])


def small_plan():
    return evaluate(SMALL, load_job("tiny", n_stages=2, n_replicas=2), stages=[[0, 1], [3, 2]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def valid(folder):
    """The bytes of a valid file by (loader, ending)."""
    files = {}
    for ending in ("yaml", "json", "npz", "csv"):
        files[load_topology, ending] = save_topology(SMALL, folder / f"valid.{ending}").read_bytes()
    files[load_plan, "json"] = save_plan(small_plan(), folder / "plan.json").read_bytes()
    files[load_trace, "json"] = save_trace(simulate(small_plan()), folder / "trace.json").read_bytes()
    for ending in ("txt", "csv"):
        files[load_schedule, ending] = save_schedule(schedules["zb-h1"](2, 2), folder / f"valid.{ending}").read_bytes()
    files[load_workspace, "json"] = save_workspace(WorkspaceState(topology=SMALL), folder / "lab.json").read_bytes()
    files[load_job, "yaml"] = JOB.encode()
    return files


def reads_or_refuses_in_one_line(load, path) -> None:
    says = f"{path.stem}: "
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            load(path)
        except LabError as error:
            says = str(error)
    assert "fuzzed" in says
    assert len(says) < 1000 or load is not load_topology


TOKENS = [
    *b"nan -1 0 1e999 inf null true [] {} '' ~ NaN 1e-320 1e308 1:1:1 2026-13-45 *a a ; , &lol; </a> <a/>".split(),
    *(b'"', b'""', b"&a ", b"<<: *a", b"!!python/object/apply:os.system ", b"!!int ", b"? ", b"- ", b"---\n"),
    *(b"9" * 5000, b"[" * 1500, b"\x00", b"\t", b"\r", b"\n", b"\xff", b"\\ud800", b"\xef\xbb\xbf"),
    *(b"%YAML 9", "é".encode(), "\u2028".encode()),
]

edits = st.lists(
    st.tuples(
        st.sampled_from(["cut", "put", "copy", "flip", "end"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 40),
        st.sampled_from(TOKENS),
    ),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, changes) -> bytes:
    for kind, where, length, token in changes:
        at = int(where * len(data))
        match kind:
            case "cut":
                data = data[:at] + data[at + length :]
            case "put":
                data = data[:at] + token + data[at + length % 3 :]
            case "copy":
                data = data[: at + length] + data[at:]
            case "flip":
                data = data[:at] + bytes(b ^ (1 << length % 8) for b in data[at : at + 1]) + data[at + 1 :]
            case "end":
                data = data[:at]
    return data


KINDS = [
    *((load_topology, ending) for ending in ("yaml", "json", "npz", "csv")),
    (load_plan, "json"),
    (load_trace, "json"),
    (load_job, "yaml"),
    (load_schedule, "txt"),
    (load_schedule, "csv"),
    (load_workspace, "json"),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0].__name__}-{kind[1]}")
@given(changes=edits)
@SOME_EXAMPLES
def test_edited_bytes_are_read_or_refused_in_one_line(kind, folder, valid, changes):
    load, ending = kind
    path = folder / f"fuzzed.{ending}"
    path.write_bytes(edited(valid[kind], changes))
    reads_or_refuses_in_one_line(load, path)


STRANGE = st.sampled_from(
    [
        *(None, True, 0, -1, 1, 2.5, 1e999, float("nan"), 1e-320, 1e308, 10**400, 10**15),
        *("", "a", "amy", "nan", "a\nb", "\ud800", "\0", "x" * 5000),
        *([], [[]], [None], [1, 2], ["a", "a"], [0] * 50),
        *({}, {"a": 1}, {"name": "a"}, {"": None}),
    ]
).map(copy.deepcopy)


def places(value, path=()):
    """The path of every value within."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*path, key))


def restructured(value, draw):
    """A copy with one to three places replaced, removed, doubled or moved into another."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        every = [path for path in places(value) if path]
        *outer, key = draw(st.sampled_from(every)) if every else (None,)
        if key is None:
            return draw(STRANGE)
        holder = value
        for step in outer:
            holder = holder[step]
        match draw(st.sampled_from(["replace", "replace", "remove", "double", "wrap", "swap"])):
            case "replace":
                holder[key] = draw(STRANGE)
            case "remove":
                del holder[key]
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case "double":
                holder[f"{key}s"] = copy.deepcopy(holder[key])
            case "wrap":
                holder[key] = [holder[key]]
            case "swap":
                other = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
                holder[key], holder[other] = holder[other], holder[key]
    return value


STRUCTURED = [kind for kind in KINDS if kind[1] == "json"] + [(load_job, "json"), (load_topology, "yaml")]


@pytest.mark.parametrize("kind", STRUCTURED, ids=lambda kind: f"{kind[0].__name__}-{kind[1]}")
@given(data=st.data())
@SOME_EXAMPLES
def test_another_structure_is_read_or_refused_in_one_line(kind, folder, valid, data):
    load, ending = kind
    given = JOB if load is load_job else valid[kind]
    value = json.loads(given) if kind in valid and ending == "json" else yaml.safe_load(given)
    write = json.dumps if ending == "json" else yaml.safe_dump
    path = folder / f"fuzzed.{ending}"
    path.write_text(write(restructured(value, data.draw)), encoding="utf-8", errors="surrogatepass")
    reads_or_refuses_in_one_line(load, path)


ARRAYS = st.sampled_from(
    [
        *(np.zeros(shape) for shape in [(), (0,), (4,), (4, 4), (3, 4), (4, 2), (0, 0), (2, 2, 2), (1, 1)]),
        *(np.full((4, 4), value) for value in (-1.0, np.nan, np.inf, 1e308, 1j, True, 2**63, "a")),
        *(np.array(value) for value in ("", "a\0b", "a\nb", ["a"] * 4, list("abcd"), b"a", [b"a"] * 4, [" "] * 4)),
        np.array([{}, None, 1, "a"], dtype=object),
        np.zeros((4, 4), dtype=[("a", float)]),
        np.zeros((4, 4), dtype="M8[s]"),
        np.zeros((4, 4), dtype=">f2"),
        np.asfortranarray(np.arange(16.0).reshape(4, 4)),
    ]
)


@given(st.dictionaries(st.sampled_from(["latency_ms", "names", "region", "gpu", "position", "name", "x"]), ARRAYS))
@SOME_EXAMPLES
def test_other_arrays_are_read_or_refused_in_one_line(folder, valid, others):
    arrays = dict(np.load(io.BytesIO(valid[load_topology, "npz"])))
    path = folder / "fuzzed.npz"
    np.savez(path, allow_pickle=True, **arrays | others)
    reads_or_refuses_in_one_line(load_topology, path)
