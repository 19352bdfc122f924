"""buildah with a store of its own: nothing of this machine's engines is used or changed."""
import os
import shutil
import subprocess


def why_no_buildah(*more):
    """What is missing of buildah and `more` programs; None: nothing."""
    lacking = [t for t in ("buildah", *more) if not shutil.which(t)]
    return f"no {', '.join(lacking)}: scripts/setup --image" if lacking else None


class Buildah:
    def __init__(self, folder):
        self.options = ["--storage-driver", "vfs", "--root", str(folder / "store"), "--runroot", str(folder / "run")]

    def __call__(self, *args, **kwargs):
        """What it said, on stdout and stderr; the test fails where it does."""
        done = subprocess.run(["buildah", *self.options, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "BUILDAH_ISOLATION": "chroot"}, **kwargs)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout.strip()
