# Runs the application "head": the head in this pod, and workers in other pods, which the platform ends together with it.
import os
import subprocess
import sys

try:
    from cml.workers_v1 import await_workers, launch_workers  # name in newer versions of the platform's library
except ImportError:
    from cdsw import await_workers, launch_workers

subprocess.run(["./keys"], check=True)
head = subprocess.Popen(["./head"])
workers = launch_workers(n=int(os.environ.get("WORKERS", "4")), cpu=4, memory=16, nvidia_gpu=1, code="!./worker")
failures = await_workers(workers, wait_for_completion=False)["failures"]
if failures:
    print(f"The platform did not start {len(failures)} of {len(workers)} workers: {failures}", file=sys.stderr)
head.wait()
