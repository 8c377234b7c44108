"""A JupyterHub for a class of thirty on one machine of 8 cores and 24 GB; docs/teach.md explains it.

``pip install jupyterhub jupyterhub-idle-culler dockerspawner 'dtfm_lab[all]'`` where the hub runs, and an image with
``dtfm_lab[all]`` and jupyterhub for the students' servers.
"""

import sys

c = get_config()  # noqa: F821  # JupyterHub provides it

c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.DockerSpawner.image = "dtfm-lab:latest"
c.DockerSpawner.remove = True
c.DockerSpawner.volumes = {
    "student-{username}": "/home/jovyan",
    "dtfm-lab-runs": "/srv/dtfm-lab-runs",  # one queue for all
}

# A notebook's kernel takes some 250 MB, torch in its own process 250 MB more, and each worker of a run 300 MB.
c.Spawner.mem_limit = "3G"
c.Spawner.cpu_limit = 2
c.JupyterHub.concurrent_spawn_limit = 10
c.JupyterHub.active_server_limit = 40

c.Spawner.environment = {
    "DTFM_LAB_RUNS_AT_ONCE": "2",  # further real runs wait their turn
    "DTFM_LAB_RUN_QUEUE": "/srv/dtfm-lab-runs",
    "DTFM_LAB_WARM_S": "0",  # torch is loaded by a run, not before it
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

# In each student's server: a kernel whose page is gone for three minutes ends, whatever it was doing.
c.Spawner.args = [
    "--MappingKernelManager.cull_idle_timeout=180",
    "--MappingKernelManager.cull_interval=30",
    "--MappingKernelManager.cull_busy=True",
    "--MappingKernelManager.cull_connected=False",
]

# And a server that nobody has used for a quarter of an hour.
c.JupyterHub.load_roles = [
    {
        "name": "idle-culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["idle-culler"],
    }
]
c.JupyterHub.services = [
    {
        "name": "idle-culler",
        "command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=900", "--cull-every=60"],
    }
]
