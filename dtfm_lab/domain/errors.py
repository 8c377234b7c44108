"""Every error that a user of the lab may want to catch.

* LabError           the input is wrong: one line with the thing, the value found and the value wanted
  - TopologyError    a device graph that cannot be planned on
  - JobError         a model, batch and parallelism that do not fit together
  - PlanError        a placement that does not fit its topology and job
  - ScheduleError    a pipeline schedule that is incomplete or can never finish
  - TraceError       traces that cannot be compared
  - FileError        a file with wrong content
  - MissingExtra     a part of the lab that is not installed
  - UnknownName      a name that no registry, topology or file contains
  - RunError         a real run that failed
"""


class LabError(Exception):
    """Base class of all errors that dtfm_lab raises on purpose."""


class TopologyError(LabError): ...


class JobError(LabError): ...


class PlanError(LabError): ...


class ScheduleError(LabError): ...


class TraceError(LabError): ...


class FileError(LabError): ...


class MissingExtra(LabError): ...


class UnknownName(LabError): ...


class RunError(LabError):
    """The input was fine, but the run failed (exit status 1 on the command line instead of 2)."""
