"""The commands that make a network of your own machines, which the help of ``network`` names."""

from pathlib import Path

RECORDED = Path(__file__).with_name("recorded")


def test_a_network_is_made_from_what_tools_say(tells, refuses):
    sources = [str(RECORDED / name) for name in ("gpubox.smi.xml", "task.yaml", "vms.csv")]
    told = tells("network", "from", *sources, "--at", "gpubox=Zurich", "-o", "mine.yaml")
    assert (told["devices"], told["gpus"], told["written"]) == (18, {"RTX A5000": 2, "V100": 16}, "mine.yaml")
    assert "4 links: estimated from their distance" in told["notes"]
    tells("plan", "mine.yaml", "--job", "gpt2-small", "--seconds", "0.1")
    for wrong, says in {
        ("from",): "Missing argument 'FILE...'",
        ("probe", "from", sources[0]): "wanted dtfm-lab network probe HOST...",
        ("from", sources[0], "--at", "gpubox"): "--at is 'gpubox'; wanted HOST=REGION",
        ("from", sources[0], "--gpu", "A=b"): "--gpu says 'b' TFLOP/s; wanted a number",
        ("from", *sources[:2]): "the link gpubox -> rented-0 is unknown",
    }.items():
        refuses(says, "network", *wrong)


def test_the_help_of_network_names_them(prints):
    told = " ".join(prints("network", "--help").split())
    assert "dtfm-lab network from Make a network" in told
    assert "dtfm-lab network probe Measure" in told
