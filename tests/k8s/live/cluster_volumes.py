"""Makes the volumes of the tests' cluster: a folder and a local PersistentVolume for each claim of class `standard`.

    cluster_volumes.py STATE HOST

The volumes are local, not hostPath, because a kubelet then gives them to the pod's fsGroup as with a real driver.
Every access mode is accepted, since there is one node. The loop runs once a second and removes released volumes too.
"""
import http.client
import shutil
import sys
import time
from pathlib import Path

from cluster_api import Api, ApiError

CLASS = "standard"
DRIVER = "coxswain.test/folder"


def volume(claim, folder):
    meta, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{meta['uid']}", "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "storageClassName": CLASS, "accessModes": spec["accessModes"], "volumeMode": "Filesystem",
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "persistentVolumeReclaimPolicy": "Retain",  # this loop, not the controller, deletes the volume
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"],
                         "name": meta["name"], "uid": meta["uid"]},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}]}},
        },
    }


def look(api, folders):
    for claim in api.get("/api/v1/persistentvolumeclaims")["items"]:
        if claim["spec"].get("storageClassName") == CLASS and not claim["spec"].get("volumeName"):
            folder = folders / f"pvc-{claim['metadata']['uid']}"
            folder.mkdir(exist_ok=True)
            folder.chmod(0o770)  # root owns the folder, and the kubelet gives it to a pod's fsGroup
            api.create("/api/v1/persistentvolumes", volume(claim, folder))
            print(f"made the volume {folder.name} for the claim {claim['metadata']['namespace']}/{claim['metadata']['name']}", flush=True)
    for one in api.get("/api/v1/persistentvolumes")["items"]:
        name, notes = one["metadata"]["name"], one["metadata"].get("annotations", {})
        if notes.get("pv.kubernetes.io/provisioned-by") == DRIVER and one.get("status", {}).get("phase") == "Released":
            shutil.rmtree(folders / name, ignore_errors=True)
            api.delete(f"/api/v1/persistentvolumes/{name}")
            print(f"removed the volume {name}", flush=True)


def main():
    state, host = Path(sys.argv[1]), sys.argv[2]
    folders = state / "volumes"
    folders.mkdir(exist_ok=True)
    api = Api(host, state / "pki")
    while True:
        try:
            look(api, folders)
        except (OSError, http.client.HTTPException, ApiError) as error:
            print(f"the API server did not answer, trying again in 1 s: {error}", flush=True)
        time.sleep(1)


main()
