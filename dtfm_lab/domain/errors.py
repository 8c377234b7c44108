"""Every error a user of the lab may want to catch.

* LabError           the input is wrong: one line, the thing, the value found, the value wanted
  - TopologyError    a device graph that cannot be planned on
  - JobError         a model, batch and parallelism that do not fit together
  - PlanError        a placement that does not fit its topology and job
  - ScheduleError    a pipeline schedule that is incomplete or can never finish
  - TraceError       traces that cannot be laid side by side
  - FileError        a file that is not what it should be
  - MissingExtra     a part of the lab that is not installed
  - UnknownName      a name that no registry, topology or file holds
  - RunError         a real run that failed
"""


class LabError(Exception):
    """Base of all errors raised on purpose by dtfm_lab."""


class TopologyError(LabError): ...


class JobError(LabError): ...


class PlanError(LabError): ...


class ScheduleError(LabError): ...


class TraceError(LabError): ...


class FileError(LabError): ...


class MissingExtra(LabError): ...


class UnknownName(LabError): ...


class RunError(LabError):
    """The input was fine, the run was not (exit status 1 on the command line, not 2)."""
