"""Gives the tests' cluster its volumes: for each claim of class `standard` a folder and a local PersistentVolume.

    cluster_volumes.py STATE HOST

Local volumes, not hostPath ones: a kubelet gives a local volume to the pod's fsGroup, as a real driver would.
Any access mode is taken, since there is one node. Looks once a second; a volume whose claim is gone goes too.
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
            "persistentVolumeReclaimPolicy": "Retain",  # this loop deletes, not the controller
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
            folder.chmod(0o770)  # root's; a pod's fsGroup is given it by the kubelet, nobody else writes there
            api.create("/api/v1/persistentvolumes", volume(claim, folder))
            print(f"made {folder.name} for {claim['metadata']['namespace']}/{claim['metadata']['name']}", flush=True)
    for one in api.get("/api/v1/persistentvolumes")["items"]:
        name, notes = one["metadata"]["name"], one["metadata"].get("annotations", {})
        if notes.get("pv.kubernetes.io/provisioned-by") == DRIVER and one.get("status", {}).get("phase") == "Released":
            shutil.rmtree(folders / name, ignore_errors=True)
            api.delete(f"/api/v1/persistentvolumes/{name}")
            print(f"removed {name}", flush=True)


def main():
    state, host = Path(sys.argv[1]), sys.argv[2]
    folders = state / "volumes"
    folders.mkdir(exist_ok=True)
    api = Api(host, state / "pki")
    while True:
        try:
            look(api, folders)
        except (OSError, http.client.HTTPException, ApiError) as error:
            print(f"will try again: {error}", flush=True)
        time.sleep(1)


main()
