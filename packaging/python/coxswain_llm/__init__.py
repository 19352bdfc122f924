"""Finds the programs of Coxswain that this package installed: cox, cox-head, cox-gateway, cox-worker."""
import os
import sysconfig

__all__ = ["find"]


def find(program="cox"):
    """Returns the path of an installed program. The places are those of pip's schemes: the environment, --user, --target and --prefix."""
    here = os.path.dirname(os.path.abspath(__file__))
    site = os.path.dirname(here)
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user"), os.path.join(site, "bin")]
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(site))), "bin"))
    for folder in folders:
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"the program {program} is in none of {', '.join(folders)}. Install coxswain-llm again.")
