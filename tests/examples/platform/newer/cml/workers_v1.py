"""Provides the calls of `cdsw` under the library's newer name. Each call forwards that name."""
import cdsw


def launch_workers(n, cpu, memory, **more):
    return cdsw.launch_workers(n, cpu, memory, library=__name__, **more)


def await_workers(workers, **more):
    return cdsw.await_workers(workers, **more)
