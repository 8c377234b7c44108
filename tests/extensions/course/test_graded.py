"""Graded work: what is off is off everywhere, numbers of a key, and checks that no loop halves."""

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError, LabError, UnknownName
from dtfm_lab.extensions.course import graded
from dtfm_lab.extensions.course.api import missions
from dtfm_lab.extensions.course.checks import NotYet, near
from dtfm_lab.extensions.course.teaching import Own, assignment

LESSON, MISSION = "02_network", "half-and-half"


def test_a_number_that_stays_is_not_found_by_halves():
    for found in (1.0, 3.0):
        with pytest.raises(NotYet, match=f"^{found:g} is not it$"):
            near(found, 2.0)
        with pytest.raises(NotYet, match="above" if found > 2 else "below"):
            near(found, 2.0, side=True)


@pytest.mark.parametrize("name", [name for name, each in missions.items() if each.takes is float])
def test_no_mission_of_a_number_says_on_which_side_of_it_an_answer_is(name):
    said = {missions[name].verdict(found, "ada").reason.replace(f"{found:.6g}", "") for found in (-1e30, 1e30)}
    assert len(said) == 1, said


def test_an_assignment_turns_answers_off_and_hints_where_it_says_so():
    lab.missions.answer(MISSION)
    assert "worked answers are off, hints are on" in repr(lab.missions.assignment(LESSON))
    with pytest.raises(LabError, match="02_network is graded, and its answers are off"):
        lab.missions.answer(MISSION)
    with pytest.raises(LabError, match="off"):
        lab.missions.answer_code(MISSION)
    while "that was the last" not in (said := repr(lab.missions.hint(MISSION))):
        pass
    assert "answer(" not in said
    lab.missions.assignment(LESSON, hints=False)
    with pytest.raises(LabError, match="its hints are off"):
        lab.missions.hint(MISSION)
    assert lab.missions.answer("four-by-hand"), "another lesson is not graded"
    with pytest.raises(UnknownName):
        lab.missions.assignment("02_networks")


@pytest.mark.parametrize("lessons", [LESSON, f"04_cost_model, {LESSON}", "all"])
def test_what_the_environment_turns_off_nothing_turns_on(monkeypatch, lessons):
    monkeypatch.setenv(graded.GRADED, lessons)
    lab.missions.assignment(LESSON, answers=True)
    for shown in (lab.missions.answer, lab.missions.hint):
        with pytest.raises(LabError, match="off"):
            shown(MISSION)


def test_numbers_of_a_key_follow_from_neither_name_nor_code():
    own = graded.variant_of(b"k" * 32, LESSON, "ada")
    others = [
        graded.variant_of(b"k" * 32, LESSON, "barbara"),
        graded.variant_of(b"l" * 32, LESSON, "ada"),
        graded.variant_of(b"k" * 32, "exam", "ada"),
    ]
    assert len({own, *others}) == 4
    public = lab.missions.given(MISSION)
    lab.missions.assignment(LESSON, variant=own)
    keyed = lab.missions.given(MISSION)
    assert keyed != public
    assert str(keyed.latency_ms) in repr(lab.missions.show(MISSION))
    assert lab.missions.check(MISSION, keyed.latency_ms * keyed.bandwidth_gbps * 1e6 / 8)
    assert not missions[MISSION].verdict(public.latency_ms * public.bandwidth_gbps * 1e6 / 8, own)


def test_a_students_own_notebook_has_their_variant_and_no_other():
    first = assignment(LESSON, solved=False, hints=False, own=Own("ada", "f00"))["cells"][1]["source"]
    exec(first, {})
    assert lab.missions.reader() == "ada"
    assert graded.assignment_of(missions[MISSION], "ada").variant == "f00"
    with pytest.raises(LabError, match="hints are off"):
        lab.missions.hint(MISSION)


def test_a_key_is_made_once_and_is_the_teachers_alone(tmp_path):
    path = tmp_path / "class.key"
    with pytest.raises(FileError, match="cannot be read"):
        graded.read_key(path)
    key = graded.read_key(path, make=True)
    assert graded.read_key(path, make=True) == key
    assert path.stat().st_mode & 0o077 == 0
    path.write_text("short")
    with pytest.raises(FileError, match="has 5 bytes; wanted at least 16"):
        graded.read_key(path)


@pytest.mark.parametrize(("text", "says"), [("", "''"), ("a/b", "a/b"), ("ada\nada", "twice"), (".x", ".x")])
def test_names_of_a_class_are_names_that_files_can_have(tmp_path, text, says):
    (path := tmp_path / "class.txt").write_text(text)
    with pytest.raises(FileError, match=says):
        graded.read_students(path)
    path.write_text("# 2026\nada\n\n b \n")
    assert graded.read_students(path) == ["ada", "b"]


def test_tries_are_counted_and_shown():
    lab.missions.check(MISSION, 1.0)
    verdict = lab.missions.check(MISSION, 2.0)
    assert "not yet, try 2" in repr(verdict)
    bundle = lab.missions.board(LESSON)._repr_mimebundle_()
    [record] = bundle.values()
    assert (record["reader"], record["missions"][MISSION]) == ("ada", [2, 0, False])
