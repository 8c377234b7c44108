"""Distributed PyTorch that students write: their functions run in real processes, and a mistake is one line."""

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.course.api import missions

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_progress")]


def by_server(rank, n, numbers):
    own = torch.tensor(numbers, dtype=torch.float64)  # noqa: F821
    if rank > 0:
        dist.send(own, 0)  # noqa: F821
        dist.recv(own, 0)  # noqa: F821
        return own
    received, total = torch.empty_like(own), own.clone()  # noqa: F821
    for other in range(1, n):
        dist.recv(received, other)  # noqa: F821
        total += received
    for other in range(1, n):
        dist.send(total / n, other)  # noqa: F821
    return total / n


def asks_torch(rank, n, numbers):
    own = torch.tensor(numbers, dtype=torch.float64)  # noqa: F821
    dist.all_reduce(own)  # noqa: F821
    return own / n


def test_processes_send_and_what_they_sent_is_counted():
    first, second = lab.missions.distributed(by_server)(2, [{"numbers": [1.0, 2.0]}, {"numbers": [3.0, 6.0]}])
    assert first.value == second.value == [2.0, 4.0]
    assert (first.sent_bytes, second.sent_bytes) == (16, 16)
    assert [kind for kind, _ in second.messages] == ["send", "recv"]


def test_as_many_numbers_travel_as_a_command_line_has_no_room_for():
    numbers = [0.123456789] * 10_000
    first, second = lab.missions.distributed(by_server)(2, [{"numbers": numbers}, {"numbers": numbers}])
    assert len(first.value) == len(second.value) == len(numbers)


def test_what_a_student_is_to_write_is_refused():
    with pytest.raises(LabError, match="all_reduce is what you are to write"):
        lab.missions.distributed(asks_torch)(2, [{"numbers": [1.0]}, {"numbers": [2.0]}])


def test_mistakes_are_one_line():
    with pytest.raises(LabError, match="found 99 processes"):
        lab.missions.distributed(by_server)(99)
    with pytest.raises(LabError, match="cannot be read"):
        lab.missions.distributed(len)


@pytest.mark.parametrize("name", ["own-ring", "own-gpipe"])
def test_the_worked_answer_wins_and_a_server_or_one_at_a_time_does_not(name, tmp_path):
    mission = missions[name]
    verdict = mission.verdict(answer_of(mission, tmp_path), "ada")
    assert verdict, verdict


def answer_of(mission, folder):
    """The worked answer, whose source is in a file, as a notebook's is in a cell."""
    file = folder / "worked.py"
    file.write_text("import dtfm_lab as lab\n" + mission.answer)
    names = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["answer"]


def test_a_server_is_no_ring():
    verdict = missions["own-ring"].verdict(lab.missions.distributed(by_server), "ada")
    assert not verdict
    assert "a ring sends" in verdict.reason


def test_what_starts_no_processes_wins_nothing():
    for name in ("own-ring", "own-gpipe"):
        assert not missions[name].verdict(lambda *each, **given: np.ones(3), "ada")
