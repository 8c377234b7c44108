"""The processes that train, and the only side of ``runtime`` that loads torch.

A ``worker`` follows the coordinator's orders; its ``execute`` interprets a schedule with torch (``device_math``), a
clock (``clocks``) and messages (``transport``). ``local_run`` starts these processes.
"""
