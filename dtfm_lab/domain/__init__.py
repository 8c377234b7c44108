"""The lab's five nouns (topology, job, schedule, plan, trace) as frozen values that are checked when they are made.

Every other package may import this one. This one imports none of them. Each noun is a folder whose ``__init__`` lists
its public names.
"""
