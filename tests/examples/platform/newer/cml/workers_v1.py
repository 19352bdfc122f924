"""The calls of `cdsw`, which say by which name they were made."""
import cdsw


def launch_workers(n, cpu, memory, **more):
    return cdsw.launch_workers(n, cpu, memory, library=__name__, **more)


def await_workers(workers, **more):
    return cdsw.await_workers(workers, **more)
