"""Runs buildah with a separate store, so that the container engines of this machine are neither used nor changed."""
import os
import shutil
import subprocess


def why_no_buildah(*more):
    """Returns a sentence that names the missing programs, out of buildah and `more`; None when all are installed."""
    lacking = [t for t in ("buildah", *more) if not shutil.which(t)]
    return f"no {', '.join(lacking)}: scripts/setup --image" if lacking else None


class Buildah:
    def __init__(self, folder):
        self.options = ["--storage-driver", "vfs", "--root", str(folder / "store"), "--runroot", str(folder / "run")]

    def __call__(self, *args, **kwargs):
        """Returns the output of buildah, stdout and stderr together. The test fails when buildah fails."""
        done = subprocess.run(["buildah", *self.options, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "BUILDAH_ISOLATION": "chroot"}, **kwargs)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout.strip()
