"""The processes that train. Only this side of ``runtime`` loads torch.

A ``worker`` follows the coordinator's orders. Its ``execute`` interprets a schedule with torch (``device_math``), a
clock (``clocks``) and messages (``transport``). ``local_run`` starts these processes.
"""
