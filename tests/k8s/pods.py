"""Runs rendered pods as processes of this machine, as a kubelet would: with the manifest's command, arguments, environment, files
and rights, but with the programs of this build.

Each pod has separate namespaces (network, process IDs, host name), a read-only root and an address on a bridge. It ends with the
test. This module needs root, but no cluster and no container engine.
"""
import base64
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import policies

CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000
FS_GROUP = 65532
NODE = "10.99.0.1"
NFT = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
# POD is a shell script that sets up a pod. The root has the folders that programs of this machine need, read-only. The program becomes PID 1.
POD = r"""
set -e
R=$1; VOLUMES=$2; BIN=$3; NAME=$4; PAUSE=$5; shift 5
hostname "$NAME"
mount -t tmpfs -o mode=0755 root "$R"
mkdir -p "$R"/usr "$R"/etc/coxswain "$R"/proc "$R"/dev/shm "$R"/tmp "$R"/cache "$R"/state "$R"/cox "$R"/adapters
for d in bin lib lib32 lib64 sbin; do
    if [ -L /$d ]; then cp -P /$d "$R"/$d; elif [ -d /$d ]; then mkdir "$R"/$d; mount --bind /$d "$R"/$d; fi
done
mount --bind /usr "$R"/usr
mount --bind "$BIN" "$R"/cox
cp /etc/ld.so.cache "$R"/etc/
printf 'hosts: files\n' > "$R"/etc/nsswitch.conf
printf 'cox:x:65532:0::/tmp:/none\n' > "$R"/etc/passwd
touch "$R"/etc/hosts; mount --bind "$VOLUMES"/../../hosts "$R"/etc/hosts
for d in null zero urandom; do touch "$R"/dev/$d; mount --bind /dev/$d "$R"/dev/$d; done
while read -r source target options; do
    mkdir -p "$R$target"
    if [ "$source" = memory ]; then mount -t tmpfs -o "mode=2777,gid=$GROUP,$options" memory "$R$target"
    else mount --bind "$source" "$R$target"; [ "$options" = rw ] || mount -o "remount,bind,$options" "$R$target"; fi
done < "$VOLUMES"/mounts
mount -t proc proc "$R"/proc
mount -o remount,ro "$R"
ip link set lo up
read -r address < "$PAUSE" # the bridge's side gives the cable, then says the address
ip addr add "$address" dev eth0 && ip link set eth0 up
exec chroot "$R" /usr/bin/setpriv --reuid "$POD_UID" --regid 0 --groups "$GROUP" --no-new-privs --bounding-set=-all \
    --inh-caps=-all --pdeathsig KILL /usr/bin/env -i "$@"
"""


def why_not():
    """Returns the reason why this machine cannot run such pods, or None when it can."""
    if os.geteuid() != 0:
        return "pods need namespaces, and these need root: run the tests as root"
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux"), ("unshare", "util-linux"), ("setpriv", "util-linux")):
        if not shutil.which(program):
            return f"no {program}: apt-get install {package}"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c",
                            "ip link add v0 type veth peer name v1 && ip link add br0 type bridge && mount -t tmpfs x /mnt"],
                           capture_output=True, text=True)
    return None if tried.returncode == 0 else "root without the right to make namespaces: " + (tried.stderr.strip() or "unshare failed")


def ip(*args):
    subprocess.run(["ip", *args], check=True)


def expand(text, env):
    return re.sub(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)", lambda m: env.get(m[1], m[0]), text)


class Node:
    """`Node` is a bridge in a network namespace of the test, and the pods on that bridge. The release's NetworkPolicies hold for the
    pods, where nftables is installed."""

    def __init__(self, folder, bin_dir, objects, uid=65532, group=FS_GROUP):
        self.folder, self.bin, self.uid, self.group = Path(folder), Path(bin_dir), uid, group
        self.objects, self.pods, self.jobs, self.n_addresses = objects, {}, {}, 1
        self.begun, self.has_policies = [], True
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        ip("link", "set", "lo", "up")
        # The bridge gets a fixed MAC address. Otherwise, its address would be that of a port, and change when ports are added or removed.
        ip("link", "add", "pods", "address", "02:00:00:00:00:01", "type", "bridge")
        ip("addr", "add", f"{NODE}/16", "dev", "pods")
        ip("link", "set", "pods", "up")
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n")

    def secret(self, name):
        return {k: base64.b64decode(v) for k, v in self.objects.one("Secret", name)["data"].items()}

    def write_hosts(self):
        """Writes the hosts file that replaces DNS: pods by name and service, and the gateways' Service by its first pod. The file is
        written in place, because pods have it mounted."""
        lines = ["127.0.0.1 localhost"]
        for p in self.pods.values():
            lines.append(f"{p.address} {p.name}" + (f" {p.name}.{p.service}" if p.service else ""))
            if p.name.endswith("-gateway-x0"):
                service = p.name.removesuffix("-gateway-x0")
                lines.append(f"{p.address} {service} {service}.ns.svc")
            elif p.name.endswith("-x0"):
                lines.append(f"{p.address} {p.name.removesuffix('-x0')}")
        with open(self.folder / "hosts", "r+") as f:
            f.write("\n".join(lines) + "\n")
            f.truncate()

    def guard(self):
        """Gives every running pod the packet filter of the release's policies, with the pods' present addresses."""
        self.begun = [p for p in self.begun if p.lives()]
        if NFT is None:
            return
        there = [(p.labels, p.address) for p in self.begun]
        chosen = self.objects.kinds("NetworkPolicy") if self.has_policies else []
        for p in self.begun:
            text = policies.table(p.labels, chosen, there, NODE)
            done = subprocess.run(["nsenter", "-t", str(p.process.pid), "-n", NFT, "-f", "-"], input=text, capture_output=True, text=True)
            assert done.returncode == 0 or p.ends(), f"{done.stderr}\n{text}"

    @contextlib.contextmanager
    def without_policies(self):
        self.has_policies = False
        self.guard()
        yield
        self.has_policies = True
        self.guard()

    def run(self, name, template, service=None, index=None):
        """Starts the pod of a template (spec and metadata); an earlier pod of this name must have ended. Init containers run first,
        one after the other. Files that they make for the pod must be on a volume that is not an emptyDir."""
        for init in template["spec"].get("initContainers", []):
            first = Pod(self, f"{name}-{init['name']}", template, container=init)
            first.begin()
            assert first.process.wait(300) == 0, first.log.read_text()
        pod = Pod(self, name, template, service, index)
        self.pods[name] = pod
        self.write_hosts()
        pod.begin()
        return pod

    def claim(self, name):
        """Returns the folder of a claim, prepared as by a driver and a kubelet: owned by root, writable for the pods' group."""
        folder = self.folder / "claims" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, 0, self.group)
            os.chmod(folder, 0o2775)
        return folder

    def apply(self, objects):
        """Acts as the controllers of the objects, but at once: it starts missing pods and ends surplus pods, the highest number
        first. Each Job runs once, beside the pods."""
        self.objects = objects
        for o in objects.kinds("Job"):
            name = o["metadata"]["name"]
            if name not in self.jobs:
                self.jobs[name] = Pod(self, name, o["spec"]["template"])
                self.jobs[name].begin()
        wanted = {}
        for o in objects:
            if o["kind"] == "StatefulSet":
                for i in range(o["spec"].get("replicas", 1)):
                    wanted[f"{o['metadata']['name']}-{i}"] = (o["spec"]["template"], o["spec"]["serviceName"], i)
            elif o["kind"] == "Deployment":
                for i in range(o["spec"].get("replicas", 1)):
                    wanted[f"{o['metadata']['name']}-x{i}"] = (o["spec"]["template"], None, None)
        for name in sorted(set(self.pods) - set(wanted), reverse=True):
            self.pods.pop(name).stop()
        for name, (template, service, index) in wanted.items():
            if name in self.pods and self.pods[name].template == template and self.pods[name].lives():
                continue
            if name in self.pods:
                self.pods.pop(name).stop()
            self.run(name, template, service, index)
        return list(wanted)

    def roll(self, name, objects, each=None):
        """Does a StatefulSet's rolling update, from the highest number down. It replaces a pod when the previous pod is ready, and
        calls each() before it ends a pod."""
        self.objects = objects
        o = objects.one("StatefulSet", name)
        for i in reversed(range(o["spec"]["replicas"])):
            if each:
                each()
            self.pods.pop(f"{name}-{i}").stop()
            pod = self.run(f"{name}-{i}", o["spec"]["template"], o["spec"]["serviceName"], i)
            wait_for(pod.is_ready, f"{pod.name} is not ready", pod)

    def end(self):
        for p in [*self.jobs.values(), *self.pods.values()]:  # the bridge ends with the last process of its namespace
            p.kill()


class Pod:
    def __init__(self, node, name, template, service=None, index=None, container=None):
        self.node, self.name, self.template, self.service = node, name, template, service
        self.spec = template["spec"]
        self.labels = {**template["metadata"]["labels"]}
        if index is not None:
            self.labels["apps.kubernetes.io/pod-index"] = str(index)
        node.n_addresses += 1
        self.number = node.n_addresses
        self.address = f"10.99.{self.number // 250}.{self.number % 250 + 2}"
        self.folder = node.folder / f"{name}.{self.number}"
        self.container = container or self.spec["containers"][0]
        self.log = self.folder / "log"
        self.process = None

    # ---- the manifest ----

    def field(self, path):
        if m := re.fullmatch(r"metadata\.labels\['(.*)'\]", path):
            return self.labels.get(m[1], "")
        return {"status.podIP": self.address, "metadata.name": self.name}[path]

    def environment(self, container):
        env = {"PATH": "/cox:/usr/bin:/bin", "HOME": "/tmp", "HOSTNAME": self.name, "COX_CACHE": "/cache"}  # the image sets these variables too
        for e in container.get("env") or []:
            source = e.get("valueFrom", {})
            if "fieldRef" in source:
                env[e["name"]] = self.field(source["fieldRef"]["fieldPath"])
            elif "secretKeyRef" in source:
                env[e["name"]] = self.node.secret(source["secretKeyRef"]["name"])[source["secretKeyRef"]["key"]].decode()
            else:
                env[e["name"]] = expand(e["value"], env)
        return env

    def write_files(self, where, files, mode):
        """Writes files as a kubelet does: a folder named by a time, a link to it, and a link to each file."""
        data = where / "..2026_01_01_00_00_00.1"
        data.mkdir(parents=True)
        os.symlink(data.name, where / "..data")
        for name, content in files.items():
            (data / name).write_bytes(content)
            os.chmod(data / name, mode)
            os.chown(data / name, 0, self.node.group)
            os.symlink(f"..data/{name}", where / name)

    def make_volume(self, volume, where):
        """Makes a volume and returns the source of its mount: a folder, or the word memory."""
        if "secret" in volume:
            s = volume["secret"]
            data = self.node.secret(s["secretName"])
            items = s.get("items") or [{"key": k, "path": k} for k in data]
            self.write_files(where, {i["path"]: data[i["key"]] for i in items}, s.get("defaultMode", 0o644))
        elif "configMap" in volume:
            data = self.node.objects.one("ConfigMap", volume["configMap"]["name"])["data"]
            self.write_files(where, {k: v.encode() for k, v in data.items()}, 0o644)
        elif "emptyDir" in volume:
            return "memory"
        elif "hostPath" in volume:
            return volume["hostPath"]["path"]
        elif "persistentVolumeClaim" in volume:
            return str(self.node.claim(volume["persistentVolumeClaim"]["claimName"]))
        else:
            raise AssertionError(f"a volume that this test does not know: {volume}")
        return str(where)

    def refresh(self, name):
        """Renews the volume of a Secret or ConfigMap as a kubelet does: makes another folder, then moves the link to it in one step."""
        where = self.folder / "volumes" / name
        fresh = self.folder / f"fresh-{time.monotonic_ns()}"
        self.make_volume(next(v for v in self.spec["volumes"] if v["name"] == name), fresh)
        data = fresh / "..2026_01_01_00_00_00.1"
        data.rename(where / f"..2026_{fresh.name}")
        os.symlink(f"..2026_{fresh.name}", where / "..data_tmp")
        os.rename(where / "..data_tmp", where / "..data")

    def mounts(self):
        named = {m["name"] for m in self.container["volumeMounts"]}
        volumes = {v["name"]: self.make_volume(v, self.folder / "volumes" / v["name"]) for v in self.spec["volumes"] if v["name"] in named}
        read_only = {v["name"] for v in self.spec["volumes"] if v.get("persistentVolumeClaim", {}).get("readOnly")}
        for m in self.container["volumeMounts"]:
            options = "ro" if m.get("readOnly") or m["name"] in read_only else "rw"
            yield f"{volumes[m['name']]} {m['mountPath']} {options}"

    # ---- start and end ----

    def begin(self):
        (self.folder / "root").mkdir(parents=True)
        (self.folder / "volumes").mkdir()
        (self.folder / "volumes" / "mounts").write_text("\n".join(self.mounts()) + "\n")
        os.mkfifo(self.folder / "pause")
        self.env = self.environment(self.container)
        words = [*self.container.get("command", ["/cox/cox"]), *(expand(a, self.env) for a in self.container["args"])]
        environment = [f"{k}={v}" for k, v in self.env.items()]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork",
                 "--kill-child", "bash", "-c", POD, "pod", str(self.folder / "root"), str(self.folder / "volumes"),
                 str(self.node.bin), self.name, str(self.folder / "pause"), *environment, *words],
                env={**os.environ, "GROUP": str(self.node.group), "POD_UID": str(self.node.uid)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.plug_in()

    def plug_in(self):
        """Connects the pod's network namespace to the bridge, once the namespace exists."""
        cable = f"p{self.number}"
        own = os.readlink("/proc/self/ns/net")
        wait_for(lambda: os.path.exists(f"/proc/{self.process.pid}/ns/net") and
                 os.readlink(f"/proc/{self.process.pid}/ns/net") != own, f"{self.name}: no network", self)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(self.process.pid))
        ip("link", "set", cable, "master", "pods", "up")
        self.node.begun.append(self)
        self.node.guard()
        with open(self.folder / "pause", "w") as f:
            f.write(f"{self.address}/16\n")

    def init(self):
        """Returns the host's process ID of the pod's PID 1, or None."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def lives(self):
        return self.process.poll() is None

    def ends(self, seconds=5):
        """Waits for the end of a pod whose network is already gone, and returns whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return not self.lives()

    def kill(self):
        """Kills the pod at once; all of its processes end with its PID 1."""
        if self.lives() and (pid := self.init()):
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Sends SIGTERM, and SIGKILL after the grace period. Returns the exit status, 137 after SIGKILL as for a container."""
        if self.lives() and (pid := self.init()):
            os.kill(pid, signal.SIGTERM)
        try:
            return self.process.wait(self.spec.get("terminationGracePeriodSeconds", 30))
        except subprocess.TimeoutExpired:
            self.kill()
            return 137

    def execute(self, *words):
        """Runs a command in the pod, like kubectl exec."""
        env = [f"{k}={v}" for k, v in self.env.items()]
        user = ["setpriv", "--reuid", str(self.node.uid), "--regid", "0", "--groups", str(self.node.group), "--no-new-privs"]
        return subprocess.run(["nsenter", "-t", str(self.init()), "-n", "-m", "-p", "-u", "-r", "-w", *user, "env", "-i", *env, *words],
                              capture_output=True, text=True, timeout=120)

    # ---- probes ----

    def probe(self, kind):
        """Returns True when the probe would succeed now, or None when the pod has no such probe."""
        p = self.container.get(f"{kind}Probe")
        if not p:
            return None
        ports = {x["name"]: x["containerPort"] for x in self.container["ports"]}
        if "tcpSocket" in p:
            with socket.socket() as s:
                return s.connect_ex((self.address, ports[p["tcpSocket"]["port"]])) == 0
        scheme = p["httpGet"].get("scheme", "HTTP").lower()
        return get(f"{scheme}://{self.address}:{ports[p['httpGet']['port']]}{p['httpGet']['path']}")[0] == 200

    def is_ready(self):
        return self.probe("startup") is not False and self.probe("readiness")


NOT_LOOKED_AT = ssl.create_default_context()
NOT_LOOKED_AT.check_hostname, NOT_LOOKED_AT.verify_mode = False, ssl.CERT_NONE  # like a kubelet, this does not verify certificates


def get(url, headers=None, body=None, timeout=30):
    """Returns (status, text). Status 0 means that there was no answer."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=NOT_LOOKED_AT) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError as e:
        return 0, str(e)


def wait_for(condition, what, *pods, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        gone = [p for p in pods if not p.lives()]
        if gone or time.monotonic() > end:
            logs = "\n".join(f"--- {p.name} ({p.process.poll()})\n{p.log.read_text()[-3000:]}" for p in (gone or pods))
            raise AssertionError(f"{what}\n{logs}")
        time.sleep(0.05)
