"""The lessons, in the order in which they build on each other: one table for the board, the site and the teacher."""

from __future__ import annotations

from typing import NamedTuple


class Lesson(NamedTuple):
    """One notebook of the course. What a reader can do afterwards is the first list in it."""

    name: str
    """Name of its file in ``notebooks/``, without the ending."""
    title: str
    question: str
    """What the lesson answers."""
    minutes: int
    """To read it, run it and do its first missions."""
    needs: tuple[str, ...] = ()
    """Names of the lessons that it builds on."""


_IN_ORDER = (
    Lesson("00_tour", "The tour", "What does the lab do, from a drawing to a measured error?", 5),
    Lesson(
        "01_why_decentralise",
        "Why decentralise?",
        "When do many slow cities train as fast, or as cheaply, as one data centre?",
        30,
    ),
    Lesson("02_network", "The network", "Is it latency or bandwidth that a message pays for?", 30),
    Lesson("03_data_and_pipeline", "Data, pipeline and both", "What crosses which wire?", 40, ("02_network",)),
    Lesson(
        "04_cost_model",
        "The cost model",
        "What does a placement cost, by hand and by code?",
        35,
        ("03_data_and_pipeline",),
    ),
    Lesson("05_five_steps", "The five steps", "How does a network become a plan?", 30, ("04_cost_model",)),
    Lesson(
        "06_searching",
        "Searching",
        "How is a good placement found, and how does one know that it is good?",
        35,
        ("05_five_steps",),
    ),
    Lesson(
        "07_communication_or_seconds",
        "Communication or seconds",
        "What does the closed form not see?",
        40,
        ("06_searching",),
    ),
    Lesson("08_schedules", "Schedules", "In which order should stages work?", 45, ("03_data_and_pipeline",)),
    Lesson("09_memory", "Memory", "What fills a device, and when?", 30, ("08_schedules",)),
    Lesson("10_real_run", "The real run", "Was the prediction right?", 45, ("08_schedules",)),
    Lesson("11_faults", "Faults and churn", "What happens when a device dies?", 30, ("10_real_run",)),
    Lesson(
        "12_unequal_devices", "Unequal devices", "What is a Raspberry Pi worth?", 30, ("07_communication_or_seconds",)
    ),
    Lesson(
        "13_compression_and_local_updates",
        "Compression and local updates",
        "What does it cost the loss to send less?",
        40,
        ("10_real_run",),
    ),
    Lesson(
        "14_systems",
        "Systems compared",
        "What would each system do with my machines?",
        40,
        ("07_communication_or_seconds", "08_schedules"),
    ),
    Lesson("15_codesign", "Co-design", "What would make this network compute-bound?", 30, ("14_systems",)),
    Lesson(
        "16_published",
        "What others measured",
        "Do the predictions agree with what others measured?",
        25,
        ("10_real_run",),
    ),
    Lesson(
        "17_things_change",
        "Things change",
        "What becomes of training when devices come and go for hours?",
        40,
        ("11_faults",),
    ),
    Lesson(
        "18_capstone",
        "Capstone",
        "What would you do with a network of your own?",
        120,
        ("07_communication_or_seconds", "10_real_run"),
    ),
)
LESSONS: dict[str, Lesson] = {lesson.name: lesson for lesson in _IN_ORDER}
