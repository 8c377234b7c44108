"""The two schedules: valid at every size, and what each holds in memory."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.simulation.schedules import peak_activations, schedules

sizes = st.tuples(st.integers(1, 9), st.integers(1, 12))


@given(sizes, st.sampled_from(["gpipe", "1f1b"]))
@settings(max_examples=50, deadline=None)
def test_a_builder_makes_each_forward_and_backward_once(size, name):
    n_stages, n_microbatches = size
    schedule = schedules[name](n_stages, n_microbatches)
    assert (schedule.name, schedule.n_stages, schedule.n_microbatches) == (name, n_stages, n_microbatches)
    for stage, program in enumerate(schedule.programs):
        assert set(program) == {
            Action(stage, k, m) for k in (Kind.FORWARD, Kind.BACKWARD) for m in range(n_microbatches)
        }
        assert len(program) == 2 * n_microbatches


@given(sizes, st.sampled_from(["gpipe", "1f1b"]))
@settings(max_examples=30, deadline=None)
def test_microbatches_pass_every_stage_in_order(size, name):
    for program in schedules[name](*size).programs:
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            assert [a.microbatch for a in program if a.kind is kind] == list(range(size[1]))


@given(sizes)
@settings(max_examples=50, deadline=None)
def test_1f1b_holds_fewer_activations_than_gpipe(size):
    n_stages, n_microbatches = size
    assert peak_activations(schedules["gpipe"](*size)) == (n_microbatches,) * n_stages
    assert peak_activations(schedules["1f1b"](*size)) == tuple(
        min(n_stages - s, n_microbatches) for s in range(n_stages)
    )


def test_schedules_written_out():
    def text(name):
        return [" ".join(str(action)[1:] for action in program) for program in schedules[name](3, 4).programs]

    assert text("gpipe") == ["F0 F1 F2 F3 B0 B1 B2 B3"] * 3
    assert text("1f1b") == ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]


def test_an_unknown_schedule_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="no pipeline schedule named 'interleaved'; known: 1f1b, gpipe"):
        schedules["interleaved"]
    with pytest.raises(UnknownName, match="did you mean 'gpipe'"):
        schedules["gpip"]
