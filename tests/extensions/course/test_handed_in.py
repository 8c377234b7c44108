"""Answers as data: what they hold comes through JSON as it was, and nobody's code runs to read them."""

import ast
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.course import handed_in
from dtfm_lab.extensions.course.api import missions
from dtfm_lab.extensions.course.handed_in import pack, unpack
from dtfm_lab.extensions.elasticity.api import ReconfigurationCosts, TableFleet
from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policy import PolicyEvent, Response, WorkKept
from dtfm_lab.simulation.schedules import schedules

PACKAGE = Path(lab.__file__).parent
PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "loky", "multiprocessing"}


def through_json(answer, ask=None, functions=None):
    return unpack(json.loads(json.dumps(pack(answer, functions))), ask)


@pytest.fixture(scope="module")
def plan():
    return lab.plan("lecture-hall", "tiny", planner="random", seed=0, steps=1)


@pytest.mark.parametrize(
    "answer",
    [
        *(None, True, 3, 0.1, float("inf"), "Oregon", [1, "a", [2.5]], (1, 2), {1: [2.0]}, {3}, frozenset({1, 2})),
        *(WorkKept.STEP, PolicyEvent.TIME, ReconfigurationCosts(restart_s=3.0)),
        Response(None, pause_s=2.0, again=PolicyEvent.STEP),
    ],
)
def test_data_comes_through_as_it_is(answer):
    again = through_json(answer)
    assert (again, type(again)) == (answer, type(answer))


@pytest.mark.parametrize("array", [np.eye(3) / 7, np.arange(4), np.array([True, False]), np.zeros((0, 2))])
def test_arrays_come_through_to_the_last_bit(array):
    again = through_json(array)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert (again == array).all()


def test_nouns_come_through_as_their_files(plan):
    for answer in (plan, plan.topology, plan.job, lab.simulate(plan), schedules["gpipe"](2, 4)):
        assert type(through_json(answer)) is type(answer)
    again = through_json(plan)
    assert again.device_names == plan.device_names
    assert again.topology.fingerprint == plan.topology.fingerprint
    assert lab.simulate(again).iteration_s == lab.simulate(plan).iteration_s


def test_an_outcome_comes_through_with_its_system(plan):
    variant = lab.systems.variant("megatron", transport="overlapped")
    answer = lab.strategies(plan.topology, "gpt2-small", systems=[variant, "ddp"])[variant.label]
    again = through_json(answer)
    assert again.strategy == answer.strategy
    assert again.plan.device_names == answer.plan.device_names
    assert again.iteration_s == answer.iteration_s


def test_an_operation_comes_through():
    operation = Operation(devices=frozenset({1}), step_s=1.0, samples=2.0)
    assert vars(through_json(operation)) == vars(operation)


def test_a_table_of_speeds_comes_through():
    fleet = through_json(TableFleet(n_devices=8, samples_per_s={4: 160.0, 5: 200.0}, batch=512.0))
    assert fleet.operation(frozenset(range(5))).samples_per_s == pytest.approx(200)


class Runs:
    """What runs code where it is unpickled."""

    def __reduce__(self):
        return (exec, ("raise SystemExit",))


class Wide(int):
    def __repr__(self):
        return "2"


class Loud(str):
    def __str__(self):
        return "loud"


class Half(np.float64):
    def __eq__(self, other):
        return True

    __hash__ = np.float64.__hash__


class Shy(np.float64):
    def item(self):
        return self


class Endless(list):
    def __iter__(self):
        while True:
            yield 1


class Disguised:
    __class__ = property(lambda self: float)


class Full(dict):
    def __reduce__(self):
        return Runs().__reduce__()


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (Wide(3), 3),
        (Loud("quiet"), "quiet"),
        (Half(0.5), 0.5),
        (Shy(0.5), 0.5),
        (Endless([1]), [1]),
        (Full(a=1), {"a": 1}),
    ],
)
def test_a_subclass_is_reduced_to_what_it_holds(answer, data):
    again = through_json(answer)
    assert (again, type(again)) == (data, type(data))


def test_a_plan_of_ones_own_class_is_a_plan(plan):
    class Liar(Plan):
        device_names = ("nobody",)

    liar = Liar(**{each.name: getattr(plan, each.name) for each in fields(plan)})
    assert type(through_json(liar)) is Plan


@pytest.mark.parametrize(
    "answer",
    [
        Runs(),
        Disguised(),
        [Runs()],
        {"a": Runs()},
        object,
        print,
        lambda: 1,
        [1 << 20_000],
        2j,
        b"bytes",
        np.array([Runs()]),
    ],
    ids=lambda one: type(one).__name__,  # an object that poses as text would be named by its address
)
def test_what_is_no_data_is_refused_in_one_line(answer):
    with pytest.raises(LabError, match="wanted"):
        pack(answer)


def test_a_function_stays_where_it_is_and_is_asked():
    scale, functions, asked = 3.0, [], []

    def times(number):
        return scale * number

    def ask(number, arguments):
        asked.append(arguments)
        return functions[number](*arguments)

    (again,) = through_json([times], ask, functions)
    assert again(2) == 6
    assert asked == [(2,)]
    with pytest.raises(LabError, match="no process to ask"):
        unpack({"is": "function", "number": 0})


@pytest.mark.parametrize(
    "packed",
    [
        *(None, [], {}, {"is": "code", "bytes": ""}, {"is": []}, {"is": "value", "value": {}}, {"is": "value"}),
        *(
            {"is": "list", "items": 3},
            {"is": "set", "items": [{"is": "list", "items": []}]},
            {"is": "dict", "items": [1]},
        ),
        *(
            {"is": "array", "type": "O", "shape": [1], "items": [{}]},
            {"is": "array", "type": "", "shape": [9], "items": []},
        ),
        *({"is": "plan.json", "bytes": "e30="}, {"is": "plan.json", "bytes": "%"}, {"is": "../plan.json", "bytes": ""}),
        *({"is": "Response", "fields": {"shell": {"is": "value", "value": 1}}}, {"is": "WorkKept", "name": "name"}),
        *(
            {"is": "strategy", "name": "os", "fields": {}},
            {"is": "Path", "fields": {}},
            {"is": "function", "number": True},
        ),
        {"is": "strategy", "name": "ddp", "fields": {"name": {"is": "value", "value": "megatron"}}},
    ],
)
def test_what_is_no_answer_is_refused(packed):
    with pytest.raises(LabError):
        unpack(packed)


def test_no_part_of_the_course_or_of_marking_imports_what_pickles():
    for path in (PACKAGE / "extensions" / "course").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & PICKLERS, path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("eval", "exec", "__import__"), path


def test_every_type_that_a_mission_takes_is_data():
    known = (*handed_in.NOUNS, *handed_in.RECORDS.values(), *handed_in.COLLECTIONS.values(), int, float, str)
    for each in missions.values():
        for kind in each.takes if isinstance(each.takes, tuple) else (each.takes,):
            assert kind in known or kind.__name__ == "function", each.name
