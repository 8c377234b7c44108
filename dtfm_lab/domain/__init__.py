"""The nouns, as frozen values that check themselves when made: topology, job, schedule, plan and trace.

Every other package imports this one, which imports none of them. Each noun is a folder that shows its own names.
"""
