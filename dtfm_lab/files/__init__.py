"""Reading and writing of topologies, availabilities, jobs, models, schedules, plans, traces, workspaces and rows of
sweeps: versioned, validated."""

from dtfm_lab.files.availability import availability_names, load_availability, save_availability
from dtfm_lab.files.jobs import job_names, load_job, override, save_job
from dtfm_lab.files.models import load_model, model_names
from dtfm_lab.files.plans import load_plan, plan_from_mapping, plan_to_mapping, save_plan
from dtfm_lab.files.reading import read_mapping
from dtfm_lab.files.saving import save
from dtfm_lab.files.schedules import load_schedule, save_schedule
from dtfm_lab.files.sweep_rows import SweepRows
from dtfm_lab.files.topologies import load_topology, save_topology, topology_names, topology_suffixes
from dtfm_lab.files.topology_reading import topology_from_mapping
from dtfm_lab.files.topology_yaml import topology_to_mapping
from dtfm_lab.files.traces import load_trace, save_trace, trace_from_mapping
