"""Every mistake in a file is one line that says where, what was found and what was wanted."""

import json
import os

import pytest

from dtfm_lab.domain.errors import FileError
from dtfm_lab.files import (
    load_job,
    load_plan,
    load_topology,
    load_trace,
    reading,
    save_topology,
)
from dtfm_lab.files.reading import (
    LONGEST_SCALAR,
    MOST_LEVELS,
    MOST_YAML_BYTES,
    parse,
    read_mapping,
    require_version,
    write_text,
)


def written(folder, text: str, name="mine.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("mine.yaml", "dtfm_topology: 1\nregions: [a, b\nname: x\n", r"mine.yaml: line 3, column 5: broken YAML: "),
        ("mine.yaml", "a: 1\n\tb: 2\n", r"line 2, column 1: broken YAML: "),
        ("mine.json", '{"a": 1,\n "b": }', r"mine.json: line 2, column 7: broken JSON: Expecting value"),
        ("mine.yaml", "- a\n- b\n", "holds a list; wanted a mapping of keys to values"),
        ("mine.yaml", "just words\n", "holds text; wanted a mapping"),
        ("mine.yaml", "", "holds nothing; wanted a mapping"),
        ("mine.yaml", "7\n", "holds a single value; wanted a mapping"),
        (
            "mine.yaml",
            "a: !!python/object/apply:os.system [ls]\n",
            "line 1, column 4: .*could not determine a constructor",
        ),
        ("mine.yaml", "a: 1\nb: !!int x\n", "line 2, column 4: broken YAML: 'x' is not a valid int"),
        ("mine.yaml", "a: 2026-13-45\n", "line 1, column 4: broken YAML: '2026-13-45' is not a valid timestamp"),
        ("mine.yaml", f"a: {'9' * 5000}\n", r"line 1, column 4: broken YAML: '999.*\.\.\. is not a valid int"),
        ("mine.yaml", f"a: 1{':59' * 3000}\n", "line 1, column 4: broken YAML: '1:59:59.* is not a valid int"),
        ("mine.yaml", 'a: "\\UFFFFFFFF"\n', "invalid Unicode character|holds a number or a character out of range"),
        ("mine.yaml", "a: !!map x\n", "line 1, column 4: broken YAML: wanted a mapping"),
        ("mine.yaml", "a: 1\na: 2\n", "line 2, column 1: broken YAML: key 'a' stands twice"),
        ("mine.yaml", "? [a]\n: 1\n", "line 1, column 3: broken YAML: a key is not a single value"),
        ("mine.yaml", "a: \0\n", "broken YAML: unacceptable character #x0000"),
        ("mine.json", "[" * 100_000, "is nested too deeply; wanted a few levels"),
        ("mine.json", f'{{"a": {"9" * 5000}}}', "holds a number or a character out of range"),
        ("mine.json", "", "line 1, column 1: broken JSON: Expecting value"),
    ],
)
def test_a_broken_file_is_refused_with_line_and_column(tmp_path, name, text, says):
    with pytest.raises(FileError, match=says):
        read_mapping(written(tmp_path, text, name))


def test_a_missing_file_a_folder_and_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(FileError, match=r"nowhere\.yaml: no such file"):
        read_mapping(tmp_path / "nowhere.yaml")
    with pytest.raises(FileError, match="cannot be read"):
        read_mapping(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(FileError, match="cannot be read"):
        read_mapping(tmp_path / "latin.yaml")


M = 1 << 20
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
REPEATED = "broken YAML: aliases repeat more than 100000 values"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: " + "x" * (15 * M), f"a value of {15 * M:,} characters; wanted at most {LONGEST_SCALAR:,}"),
        ("a: 1:" + "59:" * M + "1", f"wanted at most {LONGEST_SCALAR:,}"),
        ("[" * (MOST_YAML_BYTES - 10), "is nested too deeply"),
        ("- " * (M // 2), "is nested too deeply"),
        ("a: " + "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1), "is nested too deeply"),
        ("- 1\n" * M, "holds a list; wanted a mapping"),
        (LAUGHS, REPEATED),
        ("a: &a [*a]\n", REPEATED),
        ("a: &a {b: *a}", REPEATED),
        ("b: &b\n" + "- {c: 1}\n" * 500 + "a:\n" + "- *b\n" * 500, REPEATED),
        ("a: *b\n", "found undefined alias"),
        ("---\na: 1\n" * 1000, "but found another document"),
        ("#\n" * (7 * M), "holds nothing; wanted a mapping"),
        ("a: [" + "1," * (MOST_YAML_BYTES // 2) + "]", f"wanted at most {MOST_YAML_BYTES} as YAML; JSON may be"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_a_file_made_to_keep_a_reader_busy_is_refused_before_a_tree_is_built(tmp_path, text, says):
    """One value of 15 MB once took PyYAML 13 CPU seconds and was read."""
    with pytest.raises(FileError) as refused:
        read_mapping(written(tmp_path, text))
    assert says in str(refused.value)
    assert len(str(refused.value)) < 400


def test_of_many_broken_sections_the_first_is_told(tmp_path):
    text = json.dumps({"dtfm_topology": 1, "devices": [{"colour": 1}] * 200_000})
    with pytest.raises(FileError, match=r"devices\[0\]"):
        load_topology(written(tmp_path, text, "broken.json"))


def test_a_large_file_of_something_else_is_not_read_to_the_end(tmp_path):
    with pytest.raises(FileError, match="no column 'source' among '1, 2'; wanted one row per link"):
        load_topology(written(tmp_path, "1,2\n" * 10_000, "many.csv"))


def test_a_few_aliases_and_merges_are_read(tmp_path):
    text = "base: &base {gpu: T4}\nlist: [*base, {<<: *base, name: x}]\nc: &c text\nd: *c\n"
    read = read_mapping(written(tmp_path, text))
    assert (read["list"], read["d"]) == ([{"gpu": "T4"}, {"gpu": "T4", "name": "x"}], "text")


def test_a_file_too_large_to_be_one_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 5)
    with pytest.raises(FileError, match=r"mine\.json: has 7 bytes; wanted at most 5"):
        read_mapping(written(tmp_path, '{"a":1}', "mine.json"))


def test_yaml_is_refused_by_its_number_of_values_where_they_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_YAML_NODES", 50)
    with pytest.raises(FileError, match=r"line 1, column \d+: broken YAML: more than 50 values; wanted fewer, or JSON"):
        read_mapping(written(tmp_path, "a: [" + "1, " * 60 + "]"))


def test_yaml_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    network = load_topology("lecture-hall")
    monkeypatch.setattr(reading, "MOST_YAML_BYTES", 50)
    with pytest.raises(FileError, match=r"net\.yaml: would have \d+ bytes; wanted at most 50 as YAML, or JSON"):
        save_topology(network, tmp_path / "net.yaml")
    assert not (tmp_path / "net.yaml").exists()


@pytest.mark.parametrize("name", ["mine.yaml", "mine.json", "MINE.JSON"])
def test_a_byte_order_mark_is_dropped(tmp_path, name):
    assert read_mapping(written(tmp_path, '\ufeff{"a": 1}', name)) == {"a": 1}


LOADERS = {"topology": load_topology, "job": load_job, "plan": load_plan, "trace": load_trace}


@pytest.mark.parametrize("noun", LOADERS)
def test_another_version_is_refused(tmp_path, noun):
    for version in ("2", "true"):
        says = f"mine.yaml: dtfm_{noun} is version {version.title()}; this release reads version 1"
        with pytest.raises(FileError, match=says):
            LOADERS[noun](written(tmp_path, f"dtfm_{noun}: {version}\n"))


@pytest.mark.parametrize("noun", LOADERS)
@pytest.mark.parametrize("other", LOADERS)
def test_another_kind_of_file_is_refused_by_name(tmp_path, noun, other):
    path = written(tmp_path, f"dtfm_{other}: 1\n")
    if noun != other:
        with pytest.raises(FileError, match=rf"no key 'dtfm_{noun}'; wanted a {noun} file \(it holds a {other}\)"):
            LOADERS[noun](path)


def test_a_file_without_a_first_line_is_told_which_to_write():
    with pytest.raises(FileError, match=r"wanted a job file \(first line 'dtfm_job: 1'\)"):
        require_version({"name": "x"}, "dtfm_job", "mine.yaml")


def test_a_write_is_whole_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    for text in ("old ✓", "new"):
        assert write_text(path, text) == path
        assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = written(tmp_path, "old", "a.json")
    (tmp_path / ".a.json.partial").mkdir()  # where the new text would go first
    (tmp_path / "b.json").mkdir()
    for each in (path, tmp_path / "b.json"):
        with pytest.raises(FileError, match=r"\.json: cannot be written: "):
            write_text(each, "new")
    assert path.read_text() == "old"
    assert {each.name for each in tmp_path.iterdir()} == {"a.json", "b.json", ".a.json.partial"}


def test_a_write_into_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(FileError, match="cannot be written: No such file or directory"):
        write_text(tmp_path / "nowhere" / "a.json", "new")


def test_a_name_is_no_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, load in (("tiny", load_job), ("spot", load_topology)):
        (tmp_path / name).mkdir()
        assert load(name).name == name


def test_a_link_is_followed_and_stays_one(tmp_path):
    path, link = written(tmp_path, "old", "a.json"), tmp_path / "link.json"
    link.symlink_to(path)
    write_text(link, "new")
    assert (link.is_symlink(), path.read_text()) == (True, "new")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "new")
        assert os.read(reader, 10) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_path_without_a_name_is_not_written(path):
    with pytest.raises(FileError, match="cannot be written: wanted the name of a file"):
        write_text(path, "new")


CELLS = ("a\rb", "x" * 200_000, '"a"b', '"never closed')


def refuses_broken_csv(load, path, head: str) -> None:
    """Hold a reader of CSV to one line for each cell that is broken."""
    for cell in CELLS:
        path.write_bytes(f"{head}\n{cell}{',1' * head.count(',')}\n".encode())
        with pytest.raises(FileError) as refused:
            load(path)
        assert str(refused.value).startswith(path.name)
        assert len(str(refused.value).splitlines()) == 1


def test_broken_csv_is_refused_in_one_line(tmp_path):
    refuses_broken_csv(load_topology, tmp_path / "links.csv", "source,target,latency_ms")


def test_a_key_that_breaks_lines_does_not_break_the_line_of_its_error():
    with pytest.raises(FileError, match=r"mine\.json: held\?\?elements: .*integer") as refused:
        parse(dict[str, int], {"held\u2028\u0085elements": "x"}, "mine.json")
    assert str(refused.value).isprintable()


def test_a_planted_link_in_place_of_the_unfinished_file_is_not_followed(tmp_path):
    victim = written(tmp_path, "mine", "victim.txt")
    (tmp_path / ".new.txt.partial").symlink_to(victim)
    write_text(tmp_path / "new.txt", "new")
    assert victim.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.txt", "victim.txt"]
