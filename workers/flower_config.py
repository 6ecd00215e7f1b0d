"""Flower's options, read by `celery flower --conf=<this file>`. Address and port are given where it starts.

The file is executed, and each name that is a Flower option sets it; docs/flower.md explains them. The
password comes from the settings or from the home folder, so that it stands neither on a command line nor here.
"""

from shared.settings import get_settings
from shared.stack.secrets import flower_login

_settings = get_settings()
_folder = _settings.home / "flower"
_folder.mkdir(mode=0o700, parents=True, exist_ok=True)

basic_auth = [":".join(flower_login(_settings))]
# Whoever looks cannot stop a worker, revoke a task or start one: batches are stopped with `cragline batch`.
read_only = not _settings.flower_control

persistent = True  # what Flower has seen survives its restart
db = str(_folder / "flower.db")
state_save_interval = 300_000  # milliseconds; saving 100,000 tasks holds Flower up for seconds
max_tasks = 100_000  # kept in memory; older ones are in Postgres
purge_offline_workers = 600  # seconds
tasks_columns = "name,state,kwargs,received,started,runtime,worker,uuid"  # arguments are ids only
task_runtime_metric_buckets = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]  # seconds
