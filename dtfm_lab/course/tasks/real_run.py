"""Missions about a real run: to predict it, to find what was not as drawn, and to fit a link."""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dtfm_lab.compare import compare
from dtfm_lab.course.evidence import fresh_cases, predicted_before, ran_plan, require, traces_of, value_of
from dtfm_lab.course.mission import Given, NotYet, mission
from dtfm_lab.course.small_networks import plan_of_laptops
from dtfm_lab.domain.trace import Trace
from dtfm_lab.simulation import simulate


def give_plan(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan of four laptops."""
    return {"plan": plan_of_laptops(rng, bandwidth=0.2)}


@mission(
    "predicted-within-5",
    lesson="10_real_run",
    title="Predicted within 5 %",
    takes=(list, tuple),
    wanted="[predicted, measured], two Traces",
    minutes=8,
    give=give_plan,
    hints=(
        "Which clock shows that a prediction is right, and not only that this machine can wait?",
        "`measured = lab.run(given.plan, iterations=4)`. What of a run may its prediction know?",
        "`lab.simulate(given.plan, like=measured)` knows the profile that was taken before the first iteration.",
    ),
    answer="""
        measured = lab.run(given.plan, "1f1b", iterations=4)
        answer = [lab.simulate(given.plan, like=measured), measured]
    """,
)
def predicted_within_5(answer: Sequence[object], given: Given) -> str:
    """`lab.missions.given("predicted-within-5").plan` is a plan of four laptops of your own. Run it for four iterations
    or more on the virtual clock and predict that run, from nothing that was learnt during it. Hand in the two traces
    `[predicted, measured]`, whose iterations differ by less than 5 %.
    """
    predicted, measured = traces_of(answer, "predicted", "measured")
    ran_plan(measured, given.plan, iterations=4)
    require(
        measured.context.clock != "paced",
        "on the paced clock computations are padded to what the prediction knows: it agrees by construction",
    )
    require(
        measured.context.clock == "virtual",
        "on the real clock workers wait for each other's cores, which no profile knows, and no link is emulated; "
        "wanted the virtual clock",
    )
    predicted_before(predicted, measured, given.plan)
    error = compare(predicted, measured).iteration_error
    require(
        abs(error) < 0.05, f"it is off by {error:+.1%}; wanted less than 5 %. Is this machine busy with other things?"
    )
    return (
        f"Off by {error:+.1%}: order, waiting and messages follow from the plan, so only the seconds of single "
        "computations had to be timed before."
    )


def give_secret(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan, and a network on which one of the links that it uses is slower, one way."""
    plan = plan_of_laptops(rng, bandwidth=0.2)
    here, there = (int(place) for place in plan.placement.devices[:, int(rng.integers(2))])
    if rng.random() < 0.5:
        here, there = there, here
    bandwidth = plan.topology.bandwidth_bytes_per_s.copy()
    bandwidth[here, there] /= int(rng.integers(4, 9))
    return {"plan": plan, "secretly": replace(plan.topology, bandwidth_bytes_per_s=bandwidth)}


def secret_link(given: Given) -> tuple[str, str]:
    """Names of the two ends of the link that is not as drawn, from sender to receiver."""
    drawn, truth = given.plan.topology, given.secretly
    here, there = np.argwhere(drawn.bandwidth_bytes_per_s != truth.bandwidth_bytes_per_s)[0]
    return drawn.names[here], drawn.names[there]


@mission(
    "mystery-link-measured",
    lesson="10_real_run",
    title="The link that is not as drawn",
    takes=(list, tuple),
    wanted='[measured, "a -> b"], a Trace and the name of a link',
    minutes=10,
    give=give_secret,
    hints=(
        "Run the plan with `emulated=given.secretly`, predict it as drawn, and lay one over the other.",
        "Who is late because of others, and who by their own doing? `lab.compare(...).suspects` tells them apart.",
        'The name of a link has a direction: "ada -> alan" carries what ada sends.',
    ),
    answer="""
        measured = lab.run(given.plan, "1f1b", iterations=4, emulated=given.secretly)
        suspects = lab.compare(lab.simulate(given.plan, like=measured), measured).suspects
        answer = [measured, suspects.loc[suspects["of"] == "link", "name"].iloc[0]]
    """,
)
def mystery_link_measured(answer: Sequence[object], given: Given) -> str:
    """You are given a `plan` and the network `secretly`, on which it really runs: one link that the plan uses is slower
    there than drawn. Find it by a run, `lab.run(given.plan, iterations=4, emulated=given.secretly)`, as one has to
    where nobody hands out the matrix. Hand in the measured trace and the link's name, `[measured, "ada -> alan"]`.
    """
    require(len(answer) == 2, f'the list has {len(answer)} things; wanted [measured, "a -> b"]')
    measured, name = answer
    if not isinstance(measured, Trace) or not isinstance(name, str):
        raise NotYet(f'found {measured!r:.40} and {name!r:.40}; wanted [measured, "a -> b"]')
    ran_plan(measured, given.plan, iterations=4)
    require(measured.context.links == "emulated", "no link was emulated in this run; wanted the virtual clock")
    source, target = secret_link(given)
    links = compare(simulate(given.plan, like=measured), measured).links
    wanted = f"{source} -> {target}"
    late = float((links["measured_s"] / links["predicted_s"])[wanted])
    require(late > 2, "all its messages took what was drawn: this run was not on emulated=given.secretly")
    said = " -> ".join(part.strip() for part in name.split("->"))
    require(said != f"{target} -> {source}", "that is the way back; each direction is a link of its own")
    require(
        said not in given.plan.topology.names,
        "that is a device. Its computations took what they should; what did it send, or wait for?",
    )
    require(said == wanted, f"messages of {said} took what was drawn: if it was late, then it waited for another")
    return f"{wanted} takes {late:.1f} times as long as drawn. Everything downstream was late, and none of it to blame."


Fit = Callable[[Sequence[float], Sequence[float]], tuple[float, float]]


@mission(
    "line-through-outliers",
    lesson="10_real_run",
    title="A line through outliers",
    takes=types.FunctionType,
    wanted="a function of (sizes in bytes, seconds) that returns (latency_s, bytes_per_s)",
    minutes=15,
    hints=(
        "A message of b bytes takes latency + b / bandwidth: a line. Least squares finds it, where nothing is far off.",
        "One message of five waited behind another. By how much does a mean move for it, and by how much a median?",
        "Theil and Sen: the median of the slopes between all pairs of points, then the median of what is left.",
    ),
    answer="""
        def fit(sizes, seconds):
            pairs = [(i, j) for i in range(len(sizes)) for j in range(i) if sizes[i] != sizes[j]]
            slopes = sorted((seconds[i] - seconds[j]) / (sizes[i] - sizes[j]) for i, j in pairs)
            slope = slopes[len(slopes) // 2]
            left = sorted(s - slope * b for b, s in zip(sizes, seconds))
            return left[len(left) // 2], 1 / slope

        answer = fit
    """,
)
def line_through_outliers(fit: Fit, given: Given) -> str:
    """Write a function `fit(sizes, seconds)` that finds a link's latency in seconds and its bandwidth in bytes a second
    from the sizes in bytes and the seconds of some thirty messages, one in five of which waited behind another message
    and took up to ten times as long. It returns `(latency_s, bytes_per_s)`, both within 5 %, on links that it has never
    seen.
    """
    rng = fresh_cases()
    for _ in range(5):
        latency_s, bytes_per_s = rng.uniform(0.02, 0.1), rng.uniform(1e6, 2e7)
        sizes = rng.uniform(0.1, 1.0, 31) * latency_s * bytes_per_s * 4
        seconds = (latency_s + sizes / bytes_per_s) * rng.normal(1, 0.001, 31)
        waited = rng.choice(31, 6, replace=False)
        seconds[waited] *= rng.uniform(2, 10, 6)
        found = value_of(fit, sizes.tolist(), seconds.tolist())
        try:
            found_latency_s, found_bytes_per_s = (float(each) for each in found)
        except (TypeError, ValueError):
            raise NotYet(f"your function returned {found!r:.60}; wanted (latency_s, bytes_per_s)") from None
        _, intercept = np.polyfit(sizes, seconds, 1)
        if abs(found_latency_s - latency_s) > 0.05 * latency_s or abs(found_bytes_per_s / bytes_per_s - 1) > 0.05:
            least_squares = abs(found_latency_s - intercept) < 1e-3 * abs(intercept)
            raise NotYet(
                "that is the line of least squares: six messages that waited pull it away from the other 25"
                if least_squares
                else f"of a link of {latency_s:.3g} s and {bytes_per_s:.3g} bytes/s it says {found_latency_s:.3g} s "
                f"and {found_bytes_per_s:.3g} bytes/s"
            )
    return (
        "Medians of Theil and Sen: up to 29 % of the points may be anywhere, and the line stays. So does lab.refit's."
    )
