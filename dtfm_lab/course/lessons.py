"""The lessons, in the order in which they build on each other: one table for the board, the site and the teacher."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One notebook of the course."""

    name: str
    """Name of its file in ``notebooks/``, without the ending."""
    title: str
    question: str
    """What the lesson answers."""
    minutes: int
    """To read it, run it and do its first missions."""
    goals: tuple[str, ...] = ()
    """What a reader can do afterwards, each beginning with a verb."""
    needs: tuple[str, ...] = ()
    """Names of the lessons that it builds on."""


LESSONS: dict[str, Lesson] = {
    lesson.name: lesson
    for lesson in (
        Lesson(
            name="00_tour",
            title="The tour",
            question="What does the lab do, from a drawing to a measured error?",
            minutes=5,
            goals=(
                "Place a network's devices in a plan, and say how much faster any plan could be at most.",
                "Train a small GPT for real under that plan, and say by how many per cent the prediction was wrong.",
                "Name the five nouns: Topology, Job, Plan, Schedule, Trace.",
            ),
        ),
        Lesson(
            name="01_why_decentralise",
            title="Why decentralise?",
            question="When do many slow cities train as fast, or as cheaply, as one data centre?",
            minutes=30,
            goals=(
                "Compute the dollars of a billion tokens from seconds, devices and prices.",
                "Find the price and the batch at which slow cities cost as much as a data centre.",
                "Say what the fastest and the cheapest plan do differently, and why.",
                "Name what makes a slow network matter less, and what does not.",
            ),
        ),
        Lesson(
            name="02_network",
            title="The network",
            question="Is it latency or bandwidth that a message pays for?",
            minutes=30,
            goals=(
                "Compute the seconds of a message, and the size at which latency and bandwidth cost the same.",
                "Count the rounds of an average, and say when more devices make it slower.",
                "Find the links that are worth improving, and those where twice the bandwidth saves nothing.",
                "Fit latency and bandwidth to messages timed on one's own machine.",
            ),
        ),
        Lesson(
            name="03_data_and_pipeline",
            title="Data, pipeline and both",
            question="What crosses which wire?",
            minutes=40,
            goals=(
                "Compute the bytes that data parallelism and a pipeline send, from model, batch and shape.",
                "Read from a trace which bytes crossed which wire.",
                "Say which of the two should cross a network's slow links, and at which batch that changes.",
            ),
            needs=("02_network",),
        ),
        Lesson(
            name="04_cost_model",
            title="The cost model",
            question="What does a placement cost, by hand and by code?",
            minutes=45,
            goals=(
                "Price a placement of four devices on paper, from latencies and bandwidths.",
                "Say which device and which pair everybody waits for.",
                "Write equations 1 to 4 as a function and check it against the library.",
                "Tell from two message sizes whether groups or pipelines belong at home.",
            ),
            needs=("03_data_and_pipeline",),
        ),
        Lesson(
            name="05_five_steps",
            title="The five steps",
            question="How does a network become a plan?",
            minutes=30,
            goals=(
                "Lead a network through the five steps to a plan.",
                "Find the bottleneck matching of two groups, by hand and by code.",
                "Find the order of the stages as a path, and say why it is open.",
                "Say which links of a network a plan pays for.",
            ),
            needs=("04_cost_model",),
        ),
        Lesson(
            name="06_searching",
            title="Searching",
            question="How is a good placement found, and how does one know that it is good?",
            minutes=45,
            goals=(
                "Tell a good plan from one that is only better than chance.",
                "Explain why a search by swaps cannot leave a plateau.",
                "Say what a lower bound and a gap promise, and what they do not.",
                "Write a lower bound and test that it is one.",
            ),
            needs=("05_five_steps",),
        ),
        Lesson(
            name="07_communication_or_seconds",
            title="Communication or seconds",
            question="What does the closed form not see?",
            minutes=40,
            goals=(
                "Name what the communication cost leaves out, and say when that matters.",
                "Compute how much of a pipeline's messages overlap.",
                "Find a plan whose proof does not help it, and explain why.",
                "Plan for seconds, and read the bound that holds for these.",
            ),
            needs=("06_searching",),
        ),
        Lesson(
            name="08_schedules",
            title="Schedules",
            question="In which order should stages work?",
            minutes=45,
            goals=(
                "say how long an iteration of GPipe and of 1F1B takes, and what share of it is bubble",
                "explain why 1F1B loses on slow links, and compute the warm-up that repairs it",
                "write an order of passes of one's own, and play it",
            ),
            needs=("03_data_and_pipeline",),
        ),
        Lesson(
            name="09_memory",
            title="Memory",
            question="What fills a device, and when?",
            minutes=30,
            goals=(
                "say what fills a device: parameters, gradients, optimiser states, activations",
                "read off a schedule how many activations it holds, without playing it",
                "choose among schedule, checkpoints and ZeRO, knowing what each costs",
            ),
            needs=("08_schedules",),
        ),
        Lesson(
            name="10_real_run",
            title="The real run",
            question="Was the prediction right?",
            minutes=45,
            goals=(
                "run a plan for real and lay the measurement over its prediction, action by action",
                "say which clock a run counts by, what its agreement proves, and what is exact by construction",
                "tell who is late by their own doing from who waits for others",
                "refit links and computations from a run, and judge the fit on iterations that it has not seen",
            ),
            needs=("08_schedules",),
        ),
        Lesson(
            name="11_faults",
            title="Faults and churn",
            question="What happens when a device dies?",
            minutes=30,
            goals=(
                "say where a lost worker's state comes from: a peer, a checkpoint, or nowhere",
                "kill, pause and slow workers of a run, and read what each cost",
                "show that losses stay what they were, and name what would break that",
                "decide how often to write a checkpoint, and which churn a plan survives",
            ),
            needs=("10_real_run",),
        ),
        Lesson(
            name="12_unequal_devices",
            title="Unequal devices",
            question="What is a Raspberry Pi worth?",
            minutes=30,
            goals=(
                "compute what a slow device is worth, and when it harms",
                "share a batch and cut a model among devices of different speed",
                "say why the speed of a device depends on the precision",
            ),
            needs=("07_communication_or_seconds",),
        ),
        Lesson(
            name="13_compression_and_local_updates",
            title="Compression and local updates",
            question="What does it cost the loss to send less?",
            minutes=40,
            goals=(
                "compute how many bytes compression and local updates save, and what they leave",
                "measure what they cost the loss, in a real run",
                "compare ways of training by seconds to a loss, not by seconds an iteration",
            ),
            needs=("10_real_run",),
        ),
        Lesson(
            name="14_systems",
            title="Systems compared",
            question="What would each system do with my machines?",
            minutes=40,
            goals=(
                "compare systems on a network of yours, and say what their seconds go to",
                "explain why one is slower, one thing taken away at a time",
                "change an assumption of a rival, and tell what it is worth",
                "say when seconds alone do not compare systems, and what does",
            ),
            needs=("07_communication_or_seconds", "08_schedules"),
        ),
        Lesson(
            name="15_codesign",
            title="Co-design",
            question="What would make this network compute-bound?",
            minutes=30,
            goals=(
                "say how much of an iteration would remain were every message free",
                "tell by a formula which batch makes data parallelism compute-bound, and why a pipeline breaks it",
                "name what each change does to the training itself",
                "find the bandwidth at which another system wins",
            ),
            needs=("14_systems",),
        ),
        Lesson(
            name="16_published",
            title="What others measured",
            question="Do the predictions agree with what others measured?",
            minutes=30,
            goals=(
                "read a ledger of predictions beside published numbers: class of evidence, ratio, band, assumptions",
                "say which kinds of numbers are predicted well, and which are not",
                "add a number of your own, and see which assumption it contradicts",
                "fit an efficiency without judging it on the rows it was fitted to",
            ),
            needs=("10_real_run",),
        ),
        Lesson(
            name="17_capstone",
            title="Capstone",
            question="What would you do with a network of your own?",
            minutes=120,
            goals=(
                "describe a network that you know, with the source of each number",
                "plan on it within a factor of a proven bound, and say what binds",
                "predict a real run of the plan, or of a part, and explain what was off",
                "report it so that somebody else could prove you wrong",
            ),
            needs=("07_communication_or_seconds", "10_real_run"),
        ),
    )
}
