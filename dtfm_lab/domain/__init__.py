"""The five nouns as frozen values that check themselves when made: topology, job, schedule, plan and trace.

Every other package may import this one. This one imports none of them. Each noun is a folder whose ``__init__`` lists
its public names.
"""
