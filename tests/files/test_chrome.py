"""Chrome traces keep the rules of the Trace Event Format, and lose no action and no message."""

import json
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import SENDS, Action
from dtfm_lab.domain.trace import RunContext, Span, Trace, TracedPlan
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.files.traces import chrome_events, save_chrome_trace
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.simulate import simulate

METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}
METADATA |= {"thread_sort_index": "sort_index"}


def faults(events):
    """What breaks the format's rules, in words; nothing where all is well."""
    found, slices, flows, named = [], defaultdict(list), defaultdict(list), set()
    for event in events:
        phase = event.get("ph")
        if not isinstance(event.get("pid"), int) or not isinstance(event.get("name"), str):
            found.append(f"no pid or name: {event}")
        elif phase == "M":
            if METADATA.get(event["name"]) not in event.get("args", {}):
                found.append(f"metadata without its argument: {event}")
            named.add((event["pid"], event.get("tid"), event["name"]))
        elif phase not in ("X", "s", "f") or not isinstance(event.get("tid"), int) or not event.get("cat"):
            found.append(f"phase, tid or category: {event}")
        elif not all(math.isfinite(event.get(key, 0.0)) and event.get(key, 0.0) >= 0 for key in ("ts", "dur")):
            found.append(f"time: {event}")
        elif phase == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
        else:
            flows[event["cat"], event["name"], event["id"]].append(event)
    for (pid, tid), some in slices.items():
        if {(pid, None, "process_name"), (pid, tid, "thread_name")} - named:
            found.append(f"thread {tid} of process {pid} has no name")
        # as viewers read them: whole nanoseconds, fractions cut off
        inside = []
        for begin, end in sorted((int(ts * 1000), int(ts * 1000) + int(dur * 1000)) for ts, dur in some):
            while inside and inside[-1] <= begin:
                inside.pop()
            if inside and inside[-1] < end:
                found.append(f"thread {tid} of process {pid} overlaps in part at {begin} ns")
            inside.append(end)
    for key, ends in flows.items():
        if [end["ph"] for end in ends] != ["s", "f"] or ends[1].get("bp") != "e" or ends[0]["ts"] > ends[1]["ts"]:
            found.append(f"flow {key} is not one start and one end after it")
        for end in ends:
            if end["ts"] not in {ts for ts, _ in slices[end["pid"], end["tid"]]}:
                found.append(f"flow {key} begins or ends at no slice")
    return found


def simulated(name="1f1b", queueing="pairs", **job):
    topology = load_topology("lecture-hall")
    job = load_job("tiny", n_stages=2, n_replicas=4, **job)
    return simulate(evaluate(topology, job, stages=np.arange(8).reshape(2, 4).tolist()), name, queueing=queueing)


def spans_of(*spans, devices=(("a", "b"), ("c", "d"))):
    context = RunContext(
        source="measured", clock="real", schedule="gpipe", links="real", plan=TracedPlan(devices=devices)
    )
    return Trace.from_spans(context, [Span(i, r, Action.parse(text), s, e) for i, r, text, s, e in spans])


def of_phase(events, phase):
    return [event for event in events if event["ph"] == phase]


@pytest.mark.parametrize(
    ("name", "synchronisation", "queueing"),
    [
        ("gpipe", "sharded", "pairs"),
        ("1f1b", "sharded-at-once", "nics"),
        ("zb-h1", "central", "pairs"),
        ("interleaved-1f1b", "ring", "nics"),
    ],
)
def test_a_simulated_trace_keeps_the_formats_rules(name, synchronisation, queueing):
    trace = simulated(name, queueing, synchronisation=synchronisation, synchronise_every=2)
    events = chrome_events(trace)
    assert faults(events) == []
    slices = of_phase(events, "X")
    assert len(slices) == len(trace)
    written = Counter((e["args"]["iteration"], e["args"]["replica"], e["args"]["action"]) for e in slices)
    assert written == Counter((s.iteration, s.replica, str(s.action)) for s in trace.spans())
    n_messages = sum(span.action.kind in SENDS for span in trace.spans())
    assert len(of_phase(events, "s")) == len(of_phase(events, "f")) == n_messages


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.floats(0, 100), st.floats(0, 1)), max_size=30))
@settings(max_examples=25)
def test_any_times_at_all_keep_the_formats_rules(messages):
    """Sends that overlap in any way, receives long after."""
    spans = [(0, 0, "0F0", 0.0, 1 / 3)]
    for m, (iteration, replica, start_s, seconds) in enumerate(messages):
        spans += [(iteration, replica, f"0SEND_F{m}", start_s, start_s + seconds)]
        spans += [(iteration, replica, f"1RECV_F{m}", start_s + 0.1, start_s + 0.1 + seconds)]
    events = chrome_events(spans_of(*spans))
    assert faults(events) == []
    assert len(of_phase(events, "f")) == len(messages)


def test_an_arrow_leads_from_each_send_to_its_receive():
    events = chrome_events(simulated(synchronisation="sharded-at-once"))
    at = {(e["pid"], e["tid"], e["ts"], e["name"].split("_")[0]): e for e in of_phase(events, "X")}
    ends = {e["id"]: e for e in of_phase(events, "f")}
    for start in of_phase(events, "s"):
        sent = at[start["pid"], start["tid"], start["ts"], "SEND"]
        received = at[ends[start["id"]]["pid"], ends[start["id"]]["tid"], ends[start["id"]]["ts"], "RECV"]
        assert received["name"] == sent["name"].replace("SEND", "RECV")
        assert received["dur"] == pytest.approx(sent["dur"], abs=2e-3)


def test_messages_that_overlap_get_lanes_of_their_own():
    trace = spans_of((0, 0, "0SEND_G+1", 0, 4), (0, 0, "0SEND_F0", 1, 2), (0, 0, "0SEND_F1", 2, 6), (0, 0, "0F0", 0, 1))
    events = chrome_events(trace)
    assert faults(events) == []
    names = {e["tid"]: e["args"]["name"] for e in of_phase(events, "M") if e["name"] == "thread_name"}
    lanes = {e["args"]["action"]: names[e["tid"]] for e in of_phase(events, "X")}
    assert lanes == {"0F0": "compute", "0SEND_G+1": "send 1", "0SEND_F0": "send 2", "0SEND_F1": "send 2"}
    assert not of_phase(events, "s"), "no other end was traced"


def test_devices_stand_in_stage_order_and_iterations_one_after_the_other():
    trace = spans_of(*((i, r, f"{s}F0", s, s + 1) for i in (4, 7) for r in (0, 1) for s in (0, 1)))
    events = chrome_events(trace)
    order = {e["pid"]: e["args"]["sort_index"] for e in of_phase(events, "M") if e["name"] == "process_sort_index"}
    names = {e["pid"]: e["args"]["name"] for e in of_phase(events, "M") if e["name"] == "process_name"}
    in_order = ["stage 0 · a", "stage 0 · b", "stage 1 · c", "stage 1 · d"]
    assert [names[pid] for pid in sorted(names, key=order.__getitem__)] == in_order
    begun = {(e["args"]["iteration"], e["args"]["stage"]): e["ts"] for e in of_phase(events, "X")}
    assert begun == {(4, 0): 0, (4, 1): 1e6, (7, 0): 2e6, (7, 1): 3e6}


def test_the_file_is_one_object_with_the_context_and_names_as_they_are(tmp_path):
    trace = spans_of((0, 0, "0F0", 0, 1), devices=(("Zürich",),))
    text = save_chrome_trace(trace, tmp_path / "trace.json").read_text(encoding="utf-8")
    data = json.loads(text)
    assert data["traceEvents"] == chrome_events(trace)
    assert data["displayTimeUnit"] in ("ms", "ns")
    assert data["otherData"]["clock"] == "real"
    assert "Zürich" in text


def test_a_trace_of_years_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"trace lasts 1e\+08 s; wanted at most 9.01e\+06 s"):
        save_chrome_trace(spans_of((0, 0, "0F0", 0, 1e8)), tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())
