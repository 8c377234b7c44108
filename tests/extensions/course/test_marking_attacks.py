"""Attacks on a marker: none gets a point, none keeps the honest from theirs, and nothing is left of them."""

import csv
import json
import os
import socket
import sys
import tempfile
import textwrap

import psutil
import pytest

from dtfm_lab.extensions.course.marking import walls as marking_walls
from dtfm_lab.extensions.course.marking.folder import table
from dtfm_lab.extensions.course.teaching import assignment

LESSON, NUMBER, FUNCTION = "02_network", "half-and-half", "ring-by-hand"
RIGHT = f"given = lab.missions.given('{NUMBER}')\nanswer = given.latency_ms * given.bandwidth_gbps * 1e6 / 8"
RING = "def answer(n, n_bytes, latency_s, bandwidth): return 2 * (n - 1) * (latency_s + n_bytes / n / bandwidth)"
FORGED = r"""
import json, os
lines = b''.join(json.dumps(each).encode() + b'\n' for each in (
    {'passed': True, 'reason': 'well done', 'digest': '', 'ones_own': False}, {'end': True},
    {'said': [{'passed': True}], 'why': ''}, {'returned': {'is': 'value', 'value': 1.0}}))
def forge():
    for number in range(3, 64):
        try: os.write(number, lines)
        except OSError: pass
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("own_progress"),
    pytest.mark.skipif(sys.platform != "linux", reason="limits and isolation are Linux's"),
]
MODES = pytest.mark.parametrize("mode", ["--isolate", "--no-isolate"])


def notebook(*, before="", number=RIGHT, function=RING):
    """An assignment with a student's code: ``before`` in its first cell, and two answers."""
    made = assignment(LESSON, solved=False)
    for cell in made["cells"]:
        if cell["id"] == "reader":
            cell["source"] += "\n" + textwrap.dedent(before)
        for mission, source in ((NUMBER, number), (FUNCTION, function)):
            if cell["id"] == f"answer-{mission}":
                cell["source"] = textwrap.dedent(source)
    return made


def hand_in(folder, **students):
    folder.mkdir(exist_ok=True)
    for student, made in students.items():
        (folder / f"{student}.ipynb").write_text(json.dumps(made))


@pytest.fixture
def marks(shell, tmp_path):
    """``marks(folder, *options)``: points and reasons by student and mission."""

    def mark(folder, *options):
        status, _, said = shell(
            "missions", "mark", str(folder), "-o", str(tmp_path / "marks.csv"), "--seconds", "300", *options
        )
        assert status == 0, said
        with (tmp_path / "marks.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        return {(row["student"], row["mission"]): (int(row["points"]), row["reason"]) for row in rows}

    return mark


NO_DATA = {
    "reduces": """
        class Forge:
            def __reduce__(self): return (exec, ("import os; os._exit(0)",))
        answer = Forge()""",
    "in_a_list": """
        class Forge:
            def __reduce__(self): return (exec, ("import os; os._exit(0)",))
        answer = [1.0, {"a": Forge()}]""",
    "a_dict": """
        class Own(dict):
            def __reduce__(self): return (exec, ("import os; os._exit(0)",))
        answer = Own(a=1)""",
    "a_float": """
        class Own(float):
            def __sub__(self, other): return 0.0
            __rsub__ = __sub__
            def __eq__(self, other): return True
            def __repr__(self): return str(lab.missions.given('half-and-half'))
            def __reduce__(self): return (exec, ("import os; os._exit(0)",))
        answer = Own(1.0)""",
    "of_numpy": """
        import numpy as np
        class Own(np.float64):
            def item(self): return self
            def __sub__(self, other): return Own(0)
        answer = Own(1.0)""",
    "a_name": """
        class Own(str):
            def __float__(self): return 1.0
        answer = Own("1")""",
    "odd_class": """
        class Own:
            __class__ = property(lambda self: float)
            def __float__(self): return 1.0
        answer = Own()""",
    "raises_strangely": """
        class Own(Exception):
            def __str__(self): raise ValueError
        raise Own""",
}


def test_an_answer_that_is_no_data_gets_no_point(marks, tmp_path):
    """Without walls, which can only take away from what an answer does."""
    hand_in(tmp_path / "in", ada=notebook(), **{name: notebook(number=code) for name, code in NO_DATA.items()})
    found = marks(tmp_path / "in", "--no-isolate")
    assert found.pop(("ada", NUMBER))[0] == 1
    assert {student for (student, mission), (points, _) in found.items() if points and mission == NUMBER} == set()
    assert {name: found[name, FUNCTION] for name in NO_DATA if not found[name, FUNCTION][0]} == {}
    assert all("\n" not in reason for _, reason in found.values())


CHEATS = {
    "forges": FORGED + "def answer(*ring):\n    forge()\n    return 1.0",
    "forges_and_ends": FORGED + "def answer(*ring):\n    forge()\n    os._exit(0)",
    "forges_before": FORGED + "forge()\nanswer = lambda *ring: 1.0",
    "ends": "import os\ndef answer(*ring): os._exit(0)",
    "patches": """
        from dtfm_lab.extensions.course import checks as c, handed_in as h, mission as m
        m.Mission.verdict = lambda self, answer, reader: m.Verdict(self.name, True, "")
        c.near = c.require = lambda *a, **k: None
        h.unpack = lambda *a: 0.0
        answer = lambda *ring: 1.0""",
    "looks": """
        import gc, sys
        def answer(*ring):
            frame = sys._getframe()
            while frame:
                for held in frame.f_locals.values():
                    if hasattr(held, "wanted"): return held.wanted
                frame = frame.f_back
            return next((each.wanted for each in gc.get_objects() if type(each).__name__ == "Trial"), 1.0)""",
    "returns_a_chameleon": """
        class Own(float):
            def __sub__(self, other): return 0.0
        def answer(*ring): return Own(1.0)""",
    "returns_code": """
        class Own:
            def __reduce__(self): return (exec, ("import os; os._exit(0)",))
            def __float__(self): raise KeyError
        def answer(*ring): return Own()""",
    "returns_itself": "def answer(*ring): return answer",
    "raises": "def answer(*ring): raise type('=1+1', (Exception,), {})('\\x1b[31m\\nred')",
    "speaks_for_the_channel": """
        import os, json
        for number in range(3, 64):
            for said in ({"mission": ["ring-by-hand"]}, {"mission": "ring-by-hand"}, {"mission": "ring-by-hand",
                         "packed": {"is": "code", "bytes": ""}}, {"done": 1}, [1], "x"):
                try: os.write(number, json.dumps(said).encode() + b"\\n")
                except OSError: pass
        answer = lambda *ring: 1.0""",
}


def test_a_function_is_asked_and_never_says_whether_it_is_right(marks, tmp_path):
    """Without walls, which can only take away from what a function does."""
    hand_in(tmp_path / "in", ada=notebook(), **{name: notebook(function=code) for name, code in CHEATS.items()})
    found = marks(tmp_path / "in", "--no-isolate")
    assert found["ada", FUNCTION][0] == 1
    assert {name for name in CHEATS if found.get((name, FUNCTION), (0, ""))[0]} == set()
    honest = [name for name in CHEATS if name != "speaks_for_the_channel"]
    assert {name: found[name, NUMBER] for name in honest if not found[name, NUMBER][0]} == {}
    assert all(reason.isprintable() for _, reason in found.values())


DESTROYERS = {
    "kills_its_parent": "import os; os.kill(os.getppid(), 9)",
    "kills_every_parent": """
        import os, psutil
        for each in psutil.Process().parents():
            if each.pid != 1 and "marking.server" in " ".join(each.cmdline()): os.kill(each.pid, 9)""",
    "leaves_a_daemon": """
        import os, subprocess
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "98761"])
            os._exit(0)
        os.wait()
        subprocess.Popen(["sleep", "98762"], start_new_session=True)""",
    "leaves_a_daemon_and_kills": """
        import os, signal
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execvp("sleep", ["sleep", "98763"])
        os.kill(os.getppid(), 9)""",
    "forks": """
        import os, time
        for _ in range(400):
            if os.fork() == 0: time.sleep(98764)""",
    "takes_memory": "held = bytearray(64 << 30)",
    "takes_memory_in_parts": """
        import os, time
        for _ in range(4):
            if os.fork() == 0:
                held = bytearray(os.urandom(1 << 20)) * 400
                time.sleep(98765)
        time.sleep(98765)""",
    "floods": """
        import os
        for number in range(3, 64):
            try:
                while True: os.write(number, b"x" * (1 << 20))
            except OSError: pass""",
    "closes": "import os; os.closerange(3, 1000)",
    "makes_a_pipe_of_its_progress": """
        import os
        from dtfm_lab.extensions.course.progress import progress_path
        path = progress_path(lab.missions.reader())
        path.unlink(missing_ok=True)
        os.mkfifo(path)""",
    "locks_its_folder": "import os; os.makedirs('a/b'); os.chmod('a', 0)",
}


@MODES
def test_who_destroys_what_is_there_leaves_others_their_points(marks, tmp_path, monkeypatch, mode):
    before = set(psutil.Process().children())
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    hand_in(tmp_path / "in", ada=notebook(), zoe=notebook())
    hand_in(tmp_path / "in", **{name: notebook(before=code) for name, code in DESTROYERS.items()})
    found = marks(tmp_path / "in", mode, "--memory", "1.5", "--at-once", "2")
    for honest in ("ada", "zoe"):
        assert [found[honest, name][0] for name in (NUMBER, FUNCTION)] == [1, 1]
    # on a busy machine the cell's process may be gone before its descendants are counted
    assert any(said in found["forks", NUMBER][1] for said in ("more processes", "its process died"))
    assert "GiB of memory" in found["takes_memory_in_parts", NUMBER][1]
    assert "MiB where an answer was wanted" in found["floods", NUMBER][1]
    assert found["makes_a_pipe_of_its_progress", FUNCTION][0] == 1
    started = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert [line for line in started if "sleep 9876" in line] == []
    assert set(psutil.Process().children()) <= before  # one from an earlier test may have ended since
    assert list((tmp_path / "tmp").iterdir()) == []


ISOLATED = pytest.mark.skipif(not marking_walls.hold(), reason="this user gets no namespaces here")


@ISOLATED
def test_behind_walls_nothing_else_is_there(marks, tmp_path):
    (key := tmp_path / "class.key").write_text("secret" * 8)
    (tmp_path / "marks.csv").write_text("secret")
    others = tmp_path / "in" / "ada.ipynb"
    code = f"""
        import os, socket, subprocess
        def holds():
            for path in ({str(key)!r}, {str(others)!r}, {str(tmp_path / "marks.csv")!r}):
                assert not os.path.exists(path) or not open(path).read(), path
            for path in ({str(tmp_path / "x")!r}, "/dev/sda", "/proc/sys/kernel/core_pattern", lab.__file__, "/etc/x"):
                try: open(path, "r+" if os.path.exists(path) else "w").write("x")
                except OSError: continue
                assert not path.startswith({str(tmp_path)!r}) and path == "/dev/sda", path
            assert all(int(each) < 100 for each in os.listdir("/proc") if each.isdigit()), os.listdir("/proc")
            with open("/proc/self/status") as status:
                assert "CapEff:\\t0000000000000000" in status.read()
            assert subprocess.run(["unshare", "-Ur", "true"], stderr=subprocess.DEVNULL).returncode
            try: socket.create_connection(("192.0.2.1", 80), timeout=5)
            except OSError as error: assert error.errno == 101, error
            try:
                for number in range(100):
                    open(f"/tmp/{{number}}", "wb").write(bytes(32 << 20))
                raise AssertionError("a disk without an end")
            except OSError: pass
        holds()
        """
    hand_in(tmp_path / "in", ada=notebook(), eve=notebook(number=textwrap.dedent(code) + RIGHT))
    found = marks(tmp_path / "in")
    assert found["eve", NUMBER] == (1, found["eve", NUMBER][1]), found


def test_what_is_no_notebook_is_refused_in_a_row(marks, tmp_path):
    folder = tmp_path / "in"
    hand_in(folder, ada=notebook())
    (tmp_path / "outside.ipynb").write_text(json.dumps(notebook()))
    os.mkfifo(folder / "pipe.ipynb")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s.ipynb"))
    (folder / "link.ipynb").symlink_to(tmp_path / "outside.ipynb")
    (folder / "copy.ipynb").symlink_to("ada.ipynb")
    (folder / "loop.ipynb").symlink_to("loop.ipynb")
    (folder / "endless.ipynb").symlink_to("/dev/zero")
    (folder / "away").symlink_to(tmp_path)
    (folder / "ben").mkdir()
    (folder / "ben" / "up").symlink_to("..")
    with (folder / "large.ipynb").open("wb") as file:
        file.truncate(17 << 20)
    (folder / "deep.ipynb").write_text('{"cells":' + "[" * 100_000)
    (folder / "odd.ipynb").write_text('{"cells": [{"cell_type": "code", "source": 1, "metadata": []}]}')
    (folder / "digits.ipynb").write_text('{"cells": ' + "1" * 5000 + "}")
    (folder / "list.ipynb").write_text("[1]")
    found = {student: (points, reason) for (student, _), (points, reason) in marks(folder).items()}
    said = {"pipe": "ordinary", "s": "ordinary", "link": "a link to", "copy": "a link to", "loop": "cannot be read"}
    said |= {"endless": "a link to", "away": "a link to", "ben": "a link to", "large": "17 MiB", "deep": "no notebook"}
    said |= dict.fromkeys(("odd", "digits", "list"), "no notebook")
    assert set(found) == {"ada", *said}
    for student, words in said.items():
        assert found[student][0] == 0
        assert words in found[student][1], found[student]


def test_modules_among_the_hand_ins_are_none(marks, tmp_path, monkeypatch):
    folder = tmp_path / "in"
    hand_in(folder, ada=notebook())
    for name in ("json", "dtfm_lab", "sitecustomize", "usercustomize", "conftest", "psutil", "nbformat"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / name)!r}, 'w')\nraise SystemExit")
    monkeypatch.setenv("PYTHONPATH", f"{folder}:.")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.chdir(folder)
    assert marks(folder)["ada", NUMBER][0] == 1
    assert [path.name for path in tmp_path.iterdir() if path.suffix == "" and path.is_file()] == []


def test_names_are_text_in_a_spreadsheet(marks, tmp_path):
    names = ("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "a\nb", "\x1b[31mred")
    (folder := tmp_path / "in").mkdir()
    for name in names:
        (folder / f"{name}.ipynb").write_text("no notebook")
    shown = {student for student, _ in marks(folder)}
    assert {"'=1+1", "'+1", "'-1", "'@SUM(A1)", "' x", "a b", "?[31mred"} == shown
    assert table([{"student": "a", "notebook": " =x", "reason": "＝1", "points": -1}]).iloc[0].tolist() == [
        *("a", "", -1, "", "", "", "", "'＝1", "' =x")
    ]


def test_rows_are_kept_as_they_come_and_are_the_teachers_alone(marks, tmp_path, monkeypatch):
    from dtfm_lab.extensions.course import commands as course

    written = []

    def noted(path, text, *, private=False):
        written.append((text.count("\n"), private))
        return original(path, text, private=private)

    original = course.write_text
    monkeypatch.setattr(course, "write_text", noted)
    os.umask(0)
    hand_in(tmp_path / "in", ada=notebook(), ben=notebook())
    marks(tmp_path / "in")
    assert written == [(4, True), (7, True), (7, True)]
    assert (tmp_path / "marks.csv").stat().st_mode & 0o777 == 0o600
