# The application "head": the head in this pod, and workers in pods that the platform ends with it.
import os
import subprocess

import cdsw

subprocess.run(["./keys"], check=True)
head = subprocess.Popen(["./head"])
workers = cdsw.launch_workers(n=int(os.environ.get("WORKERS", "4")), cpu=4, memory=16, nvidia_gpu=1, code="!./worker")
cdsw.await_workers(workers, wait_for_completion=False)
head.wait()
