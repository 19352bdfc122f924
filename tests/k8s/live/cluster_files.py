"""Makes keys, certificates and configuration files of the tests' cluster, and the command lines that read them."""
import json
import os
import subprocess

NODE = "node-1"
DOMAIN = "cluster.local"


class Net:
    """Holds the addresses of cluster number N (0 … 255). They differ between clusters on one machine, and from the host's routes."""

    def __init__(self, number):
        self.number = number
        self.outer, self.node = f"10.250.{number}.1", f"10.250.{number}.2"  # addresses of the host's and the node's end of the veth pair
        self.pods, self.services = f"10.251.{number}.0/24", f"10.252.{number}.0/24"
        self.api = f"10.252.{number}.1"  # address of the Service `kubernetes`, which is always the first address
        self.cable = f"coxk8s{number}"
        self.cgroup = f"cox-k8s-{number}"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_pki(pki, net):
    """Makes a CA and the certificates that it signs: (name, subject, alternative names). In a subject, O is the group and CN the user."""
    pki.mkdir(mode=0o700)
    openssl("ecparam", "-genkey", "-noout", "-name", "prime256v1", "-out", pki / "sa.key")
    openssl("ec", "-in", pki / "sa.key", "-pubout", "-out", pki / "sa.pub")
    openssl("ecparam", "-genkey", "-noout", "-name", "prime256v1", "-out", pki / "ca.key")
    openssl("req", "-x509", "-new", "-key", pki / "ca.key", "-days", 30, "-subj", "/CN=cox-k8s", "-out", pki / "ca.crt")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}", "localhost"]
    server = ",".join([f"DNS:{name}" for name in names] + [f"IP:{ip}" for ip in (net.api, net.node, "127.0.0.1")])
    for name, subject, others in (
            ("apiserver", "/CN=kube-apiserver", server),
            ("kubelet-server", f"/CN={NODE}", f"DNS:{NODE},IP:{net.node}"),
            ("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client", None),
            ("admin", "/O=system:masters/CN=admin", None),
            ("controller-manager", "/CN=system:kube-controller-manager", None),
            ("scheduler", "/CN=system:kube-scheduler", None),
            ("proxy", "/CN=system:kube-proxy", None),
            ("kubelet", f"/O=system:nodes/CN=system:node:{NODE}", None)):
        extension = pki / f"{name}.ext"
        extension.write_text("keyUsage=digitalSignature\nextendedKeyUsage=" + ("serverAuth" if others else "clientAuth")
                             + (f"\nsubjectAltName={others}\n" if others else "\n"))
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", pki / f"{name}.key", "-subj", subject, "-out", pki / f"{name}.csr")
        openssl("x509", "-req", "-in", pki / f"{name}.csr", "-CA", pki / "ca.crt", "-CAkey", pki / "ca.key", "-days", 30,
                "-set_serial", int.from_bytes(os.urandom(8), "big"), "-extfile", extension, "-out", pki / f"{name}.crt")


def kubeconfig(state, net, who):
    pki = state / "pki"
    text = json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": f"https://{net.node}:6443",
                                                "certificate-authority": str(pki / "ca.crt")}}],
        "users": [{"name": who, "user": {"client-certificate": str(pki / f"{who}.crt"),
                                         "client-key": str(pki / f"{who}.key")}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": who}}],
    }, indent=1)
    file = state / f"{who}.kubeconfig"
    file.touch(mode=0o600)
    file.write_text(text)


def containerd_config(state, net, pause):
    """Returns the configuration of containerd 1.6. It sets no negative OOM scores, which root without CAP_SYS_RESOURCE may not do."""
    return f"""version = 2
root = "{state}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
address = "{state}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{state}/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
disable_hugetlb_controller = true
tolerate_missing_hugetlb_controller = true
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{state}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def cni_config(net):
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
         "ipam": {"type": "host-local", "ranges": [[{"subnet": net.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": True}}]}


def kubelet_config(state, net, most_files):
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": net.node, "healthzBindAddress": "127.0.0.1",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                           "x509": {"clientCAFile": str(state / "pki/ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(state / "pki/kubelet-server.crt"), "tlsPrivateKeyFile": str(state / "pki/kubelet-server.key"),
        "containerRuntimeEndpoint": f"unix://{state}/containerd.sock",
        "clusterDNS": [net.node], "clusterDomain": DOMAIN, "resolvConf": str(state / "resolv.conf"),
        "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{net.cgroup}", "cgroupsPerQOS": True, "enforceNodeAllocatable": [],
        "failSwapOn": False, "failCgroupV1": False, "protectKernelDefaults": True,
        "oomScoreAdj": 0, "maxOpenFiles": most_files, "maxPods": 200,
        # Other programs use this disk too, so the node must not clean it up: no eviction, no removal of images.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%",
                         "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
        "volumePluginDir": str(state / "volume-plugins"), "nodeStatusUpdateFrequency": "5s",
    }


def proxy_config(state, net):
    """Returns the configuration of kube-proxy. Connection tracking limits belong to the whole machine; zero leaves them unchanged."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
        "bindAddress": net.node, "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(state / "proxy.kubeconfig")}, "hostnameOverride": NODE,
        "clusterCIDR": net.pods, "oomScoreAdj": 0, "iptables": {"minSyncPeriod": "200ms"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def write_all(state, net, most_files, pause):
    """Writes every file that the programs of `commands` read."""
    make_pki(state / "pki", net)
    for who in ("admin", "controller-manager", "scheduler", "proxy", "kubelet"):
        kubeconfig(state, net, who)
    for folder in ("cni", "log", "etcd"):
        (state / folder).mkdir()
    (state / "resolv.conf").write_text(f"nameserver {net.node}\n")
    (state / "containerd.toml").write_text(containerd_config(state, net, pause))
    (state / "cni/10-pods.conflist").write_text(json.dumps(cni_config(net), indent=1))
    (state / "kubelet.json").write_text(json.dumps(kubelet_config(state, net, most_files), indent=1))
    (state / "proxy.json").write_text(json.dumps(proxy_config(state, net), indent=1))
    (state / "Corefile").write_text(
        f".:53 {{\n    bind {net.node}\n    errors\n    health 127.0.0.1:8080\n    cache 5\n"
        f"    kubernetes {DOMAIN} in-addr.arpa {{\n        kubeconfig {state}/admin.kubeconfig\n"
        "        pods verified\n        ttl 5\n    }\n}\n")


def commands(state, net, bin):
    """Returns {name: command line} of the programs, in the order in which they start."""
    pki = state / "pki"
    return {
        "etcd": [bin / "etcd", f"--data-dir={state}/etcd/data", "--listen-client-urls=http://127.0.0.1:2379",
                 "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380",
                 "--unsafe-no-fsync", "--log-level=warn"],
        "apiserver": [
            bin / "kube-apiserver", f"--advertise-address={net.node}", "--bind-address=0.0.0.0", "--secure-port=6443",
            "--etcd-servers=http://127.0.0.1:2379", f"--service-cluster-ip-range={net.services}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            # A test simulates OpenShift with a policy of this kind, which changes pods as an SCC does.
            "--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
            f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key", f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key", "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
            f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}"],
        "controller-manager": [
            bin / "kube-controller-manager", f"--kubeconfig={state}/controller-manager.kubeconfig",
            "--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki}/sa.key", f"--root-ca-file={pki}/ca.crt"],
        "scheduler": [bin / "kube-scheduler", f"--kubeconfig={state}/scheduler.kubeconfig", "--bind-address=127.0.0.1",
                      "--leader-elect=false"],
        "containerd": ["containerd", "--config", state / "containerd.toml"],
        "kubelet": [bin / "kubelet", f"--config={state}/kubelet.json", f"--kubeconfig={state}/kubelet.kubeconfig",
                    f"--hostname-override={NODE}", f"--node-ip={net.node}", f"--cert-dir={state}/kubelet-certs",
                    "--node-labels=topology.kubernetes.io/zone=zone-1"],
        "proxy": [bin / "kube-proxy", f"--config={state}/proxy.json"],
        "dns": [bin / "coredns", "-conf", state / "Corefile"],
    }
