"""The names that our extensions add to ``lab``, as type checkers and editors know them."""

import ast
from pathlib import Path

from type_checked import refused_lines

import dtfm_lab
from dtfm_lab.domain.extension import extensions, offered

TYPED = {
    "systems": """
lab.strategies("lecture-hall", systems="fsdp").sentence
lab.strategies("lecture-hall", over="bandwidth", values=[1, 2]).crossings
lab.strategies("lecture-hall", value=3)  # refused
""",
    "advice": """
lab.advise("lecture-hall", tokens="100M", steps=1).verdict
lab.advise("lecture-hall", token=3)  # refused
""",
    "elasticity": """
lab.replay("lecture-hall", "small", "spot", every_s=60).samples
lab.replay("lecture-hall", "small", "spot", start_s="soon")  # refused
""",
}


def test_a_type_checker_knows_the_keywords(tmp_path: Path) -> None:
    typed = "import dtfm_lab as lab" + "".join(text for name, text in TYPED.items() if name in extensions())
    assert refused_lines(typed, tmp_path) == [n for n, line in enumerate(typed.splitlines(), 1) if "refused" in line]


def test_type_checkers_are_told_what_is_offered_at_run_time() -> None:
    source = (Path(dtfm_lab.__file__).parent / "extensions" / "names.py").read_text(encoding="utf-8")
    found = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    imports = [node for node in found if str(node.module).split(".")[2] in extensions()]
    listed = {each.asname or each.name: f"{node.module}.{each.name}" for node in imports for each in node.names}
    places = {name: place.replace(":", ".") for name, place in offered("api").items()}
    assert listed == {name: place for name, place in places.items() if place.startswith("dtfm_lab.")}
