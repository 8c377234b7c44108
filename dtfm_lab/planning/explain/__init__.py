"""What a plan's cost comes from: ``explain`` one plan, ``diff`` two plans, ``worth`` of each device to a plan."""

from dtfm_lab.planning.explain.device_worth import DeviceWorth, stream_worth, worth_table
from dtfm_lab.planning.explain.difference import Difference, diff
from dtfm_lab.planning.explain.explanation import Explanation, explain

__all__ = ["DeviceWorth", "Difference", "Explanation", "diff", "explain", "stream_worth", "worth_table"]
