"""Holds the walks through the pages of docs/, the substitutions for this machine, and the commands that no walk types, with the
reasons.

Type a new command of a page in the walk of that page: by `run`, or by `rest` if no other step is needed in between. If no walk
can type it, list it in a table below.
"""
# SUBSTITUTIONS has changes to commands for things that the tests' cluster lacks: (pattern, replacement, reason). {…} are values of the Typist.
SUBSTITUTIONS = [
    (r"^(packaging/push .*)$", r"{python} \1 --plain-http", "the registry on loopback has no certificate; the script needs a Python with PyYAML"),
    (r"^(helm install demo oci://.*)$", r"\1 --plain-http", "the same"),
    (r"^(helm install (?!gpu ).*)$", r"\1 -f {values}", "two cores: small requests; no network: the null model, or the demo model from a claim"),
    (r"^(helm template .*?)( > .*)$", r"\1 -f {values}\2", "the same"),
    (r"^(helm install gpu .*)$", r"\1 --dry-run=server", "no GPU: the API server takes the objects, and makes none"),
    (r"^(kubectl apply -k deploy/k8s/overlays/gpu)$", r"\1 --dry-run=server", "the same"),
    (r"deploy/k8s/base$", r"{kustomize}", "the base, with small requests and the model from a claim"),
    (r"^kind (create|delete) cluster$", r"kubectl version", "no kind: the tests' cluster is there"),
    (r"^kind load image-archive (\S+)$", r"tests/k8s/cluster load \1", "the same"),
    (r"\b8000:80\b", r"{port}:80", "8000 may be somebody's here"),
    (r"\b8265:8265\b", r":8265", "the same"),
    (r"127\.0\.0\.1:8000\b", r"127.0.0.1:{port}", "the same"),
    (r"http://llm\.example\.org", r"http://{service}", "no ingress controller: the Service that the Ingress leads to"),
    (r"\bCHART\b", r"deploy/helm/coxswain", "the notes do not know where you have it"),
    (r"^oc new-project (\S+)$", r"kubectl create namespace \1 && kubectl config set-context --current --namespace=\1", "no oc"),
    (r"^oc |(?<=\()oc ", r"kubectl ", "the same"),
]

# Commands that another test types, with a word of that test's source: {page: [(beginning, file, word)]}.
TRY = "packaging/try"
NEWCOMER, TWO_SERVERS = "tests/examples/test_newcomer.py", ("tests/e2e/test_namespaces.py", 'commands_of("A second server")')
ELSEWHERE = {
    "deploy/helm/coxswain/README.md": [
        ("helm install demo oci://REGISTRY/PATH/charts/coxswain", "tests/k8s/live/test_versions.py", "charts/coxswain"),
        ("helm install demo deploy/helm/coxswain", "tests/k8s/live/test_cache.py", "test_the_defaults_serve"),
    ],
    "docs/start/install.md": [
        ("apt install ./coxswain", TRY, 'install_deb() { apt install -y "$1"; }'),
        ("pip install ./coxswain_llm", TRY, "run_in / /opt/cox/bin/pip install "),
        ("tar -I zstd -xf coxswain", TRY, "run_in /opt tar -I zstd -xf "),
        ("cox up demo -d", "tests/docs/readme_claims.py", "cox up demo -d"),
        ("minisign -V", "tests/scripts/sign_test.py", '"-V"'),
        ("cox version --verify --public-key", "tests/e2e/test_version.py", '"--public-key"'),
    ],
    "docs/start/laptop.md": [
        ("scripts/quickstart", NEWCOMER, 'typed("quickstart")'),
        ('echo "What is 2+2?" | build/release/bin/cox chat', NEWCOMER, '"chat"'),
        ("build/release/bin/cox status", NEWCOMER, '"status"'),
        ("build/release/bin/cox bench serve", NEWCOMER, '"bench"'),
        ("ask() {", NEWCOMER, 'type("kill")'),
        ("text() {", NEWCOMER, 'type("kill")'),
        ("ask | text", NEWCOMER, 'type("kill")'),
        ("(sleep 0.5; kill -9", NEWCOMER, 'type("kill")'),
        ("cmp before after", NEWCOMER, 'type("kill")'),
        ("build/release/bin/cox events", NEWCOMER, 'type("kill")'),
    ],
    "docs/start/server.md": [
        ("apt install ./coxswain", "packaging/boot.sh", "apt-get install -y /root/cox.deb"),
        ("systemctl enable --now coxswain", "packaging/boot.sh", "systemctl enable --now --quiet coxswain"),
        ("cox up demo --tp 2 --workers 1 --head-host", *TWO_SERVERS),
        ("cox join-token", *TWO_SERVERS),
        ("cox worker --join cox1....", *TWO_SERVERS),
        ("curl -s http://127.0.0.1:8000/v1/completions", *TWO_SERVERS),
        ("cox status", *TWO_SERVERS),
    ],
    "docs/reference/chart.md": [
        ("kubectl exec sts/RELEASE-coxswain-head -- cox keys --reload", "tests/k8s/test_rendered_processes.py", '"keys", "--reload"'),
    ],
    "docs/how-to/build-image.md": [
        ("scripts/build release && deploy/image/build", "tests/image/test_image.py", "build(out)"),
        ("scripts/build cuda && deploy/image/build", "tests/image/test_cuda_variant.py", '"cuda"'),
        ("podman pull oci-archive:FILE", "tests/image/test_image.py", "oci-archive:"),
        ("skopeo copy", "tests/image/test_image.py", "test_a_registry_takes_it"),
        ("deploy/image/build --format docker-archive", "tests/image/test_image.py", '"docker-archive"'),
        ("docker build -f deploy/image/Dockerfile", "tests/image/test_dockerfile.py", "Dockerfile"),
        ("docker run --rm --read-only", "tests/image/test_image.py", "test_the_demo_model_from_the_image_alone"),
    ],
    "docs/how-to/custom-image.md": [
        ("docker build -t my-model:1 .", "tests/image/test_custom_image.py", "read_page("),
        ("docker run --rm --network none", "tests/image/test_custom_image.py", "Pod("),
    ],
    "docs/develop/deploy-testing.md": [
        ("tests/k8s/cluster down", "tests/k8s/live/test_cluster.py", '"down"'),
    ],
    "docs/start/kubernetes.md": [
        ("ctr -n k8s.io images import coxswain.tar", "tests/k8s/cluster", '"k8s.io", "images", "import"'),
    ],
}

# Commands that no test types, with the reason: {page: [(beginning, reason)]}.
NOBODY = {
    "docs/start/install.md": [
        ("dnf install ./coxswain", "no system with dnf; packaging/try installs the .rpm with rpm"),
        ("cox chat", "a conversation on a terminal; tests/e2e/test_chat.py has some"),
        ("sha256sum -c", "a release; packaging/try checks the list of the installed files so"),
    ],
    "deploy/systemd/README.md": [
        ("install -D", "writes to /etc; that systemd takes the units: tests/e2e/test_systemd.py"),
        ("systemd-run", "systemd is not the first process here"),
        ("systemctl enable", "the same; what the units start: tests/e2e/test_systemd.py"),
    ],
    "docs/start/laptop.md": [
        ("git clone REPOSITORY", "the reader's own copy"),
        ("cd coxswain", "the same"),
        ("export PATH=", "a place of the reader's shell"),
        ("cox up Qwen/Qwen3-0.6B", "the hub; tests/e2e/test_pull.py has one of its own"),
        ("cox up demo", "flags that the clusters of tests/e2e have, at the default ports"),
        ("cox up null --workers 2 --tp 2", "the same"),
        ("cox up --config FILE", "the name of the option"),
        ("cox chat --url http://127.0.0.1:9000", "the second cluster, as in the next line"),
        ("cox status --address 127.0.0.1:9265", "the default ports of a second cluster; tests/e2e says --address everywhere"),
    ],
    "docs/start/server.md": [
        ("scripts/build --programs", "the build that is tested, and writes to /usr/local; deploy/image/rootfs does the same into a folder"),
        ("runuser -u coxswain -- cox pull demo", "the index; tests/e2e/test_pull_demo.py has one of its own, packaging/try the user"),
        ("journalctl", "systemd is not the first process here"),
        ("install -m 640", "a key and a certificate of the reader's; tests/e2e/test_systemd.py checks the options"),
        ("(umask 077; openssl rand -hex 32", "a key of the reader's"),
        ("cox up demo --host 0.0.0.0", "listens on all addresses; HTTPS with keys: tests/e2e/test_tls.py"),
        ("curl -s --cacert ca.pem https://SERVER", "the same"),
        ("ssh -L", "another machine"),
        ("cox pull demo", "the index; tests/e2e/test_pull_demo.py has one of its own"),
        ("cox up --comm-host", "the name of the option; tests/e2e/test_namespaces.py, test_joined_by_a_veth_pair"),
        ("cox worker --comm-host", "the same"),
        ("cox up --redis URL --standby", "a name of two options; tests/e2e/test_standby.py"),
    ],
    "docs/start/openshift.md": [
        ("oc registry ", "OpenShift's registry"),
        ("skopeo copy", "the same"),
        ("curl -s https://$(oc get route", "OpenShift's router"),
    ],
    "docs/start/sagemaker.md": [
        ("cd deploy/examples/sagemaker", "a step of the reader's shell"),
        ("docker ", "no docker daemon; tests/image/test_sagemaker.py builds and starts it"),
        ("curl -s http://127.0.0.1:8080/", "the same container; the same requests to a local one: tests/examples/test_sagemaker.py"),
        ("python3 deploy.py", "an account of Amazon; against moto: tests/examples/test_sagemaker.py"),
    ],
    "docs/start/gpu.md": [
        ("scripts/setup --cuda", "downloads a gigabyte; .ci/run has done so"),
        ("scripts/build cuda", "the build of tests/cuda and .ci/run"),
        ("build/cuda/bin/cox up", "a GPU"),
        ("cox plan MODEL --gpu h100", "a model of the reader's; tests/e2e/test_plan_gpus.py"),
    ],
    "docs/how-to/build-image.md": [
        ("docker load", "no docker daemon; the archive's form is compared (tests/image/test_image.py)"),
        ("gdb", "a place to begin, not a command"),
        ("addr2line", "the same"),
    ],
    "docs/how-to/custom-image.md": [
        ("docker build --secret", "a hub that asks for a token"),
        ("COX_CACHE=build/baked cox pull hf:", "the hub; the demo model is in docs/how-to/deploy.md, Without a network"),
        ("deploy/image/build --with-model", "the same"),
        ("chmod -R a+rX", "files of the reader's"),
    ],
    "docs/reference/chart.md": [
        ("helm upgrade --force-conflicts", "Helm 4, when another number is there: tests/k8s/live/test_release.py"),
        ("kubectl rollout restart", "a Secret that was changed by hand, in front of Argo CD"),
        ("kubectl logs POD -c pull", "a pod whose download failed; tests/k8s/test_cache.py"),
        ("kubectl logs job/", "a Job whose name has a hash, after it failed; tests/k8s/test_cache.py"),
        ("helm upgrade demo deploy/helm/coxswain --reuse-values --set autoscaling.enabled=true", "no KEDA; tests/k8s/live/test_dry_run.py has its kinds"),
        ("kubectl delete pod POD --force", "a node that is gone; pods that are killed: tests/k8s/live/test_release.py"),
        ("helm install demo deploy/helm/coxswain -f deploy/helm/coxswain/values-gpu.yaml", "a GPU; docs/start/kubernetes.md asks the API server"),
    ],
    "docs/start/kubernetes.md": [
        ("minikube image load", "no minikube"),
        ("k3s ctr images import", "no k3s; it is ctr of containerd"),
        ("skopeo copy", "half an hour, and no GPU; that of build-image.md is typed (tests/image/test_image.py)"),
        ("kubectl delete secret demo-coxswain-api-keys", "the namespace of the walk goes with it; tests/k8s/live/test_cache.py types it"),
        ("scripts/build cuda && deploy/image/build --variant cuda", "half an hour, and no GPU; tests/image/test_cuda_variant.py"),
        ("kubectl get runtimeclass", "a question, whose answer is in the next words"),
    ],
    "docs/develop/deploy-testing.md": [
        ("scripts/setup --k8s", "half an hour; without it there is no cluster to walk on"),
        ("ctest --test-dir build/release -R k8s_live_trouble", "a test of its own"),
        ("kubectl apply --server-side", "what tests/k8s/live/test_dry_run.py does, in words"),
        ("scripts/test", "the same"),
    ],
    "docs/develop/deploy-design.md": [("", "it says what is there, not what to type")],
    "deploy/k8s/README.md": [("scripts/setup --k8s-quick", "a set-up; without it k8s_kustomize is skipped")],
}


def tests_cluster(w):
    w.open("docs/develop/deploy-testing.md")
    w.run("tests/k8s/cluster up")
    w.run('eval "$(tests/k8s/cluster env)"')
    w.until("types_in", "default")
    w.run("tests/k8s/cluster load", IMAGE="image")
    w.run("helm install demo")
    w.until("serves", "demo", 2)


def laptop(w):
    w.open("docs/start/kubernetes.md", "Load the image")
    w.until("has_demo_model")
    w.run("deploy/image/build")
    w.run("kind create cluster")
    w.run("kind load")
    w.open("docs/start/kubernetes.md", "Install")
    w.run("helm install demo")
    w.run("helm test demo")
    w.until("serves", "demo", 2)
    w.run("kubectl exec")
    w.run("KEY=")
    w.run("kubectl port-forward")
    w.until("listens")
    w.run("curl")
    w.run("kill %1")
    w.open("docs/start/kubernetes.md", "See it")
    w.rest()
    w.open("docs/start/kubernetes.md", "Scale")
    w.run("helm upgrade demo")
    w.until("serves", "demo", 3)
    w.open("docs/start/kubernetes.md", "Upgrade")
    w.until("is_named", "docker.io/library/coxswain:0.1.1")
    w.run("helm upgrade demo")
    w.run("kubectl rollout status")
    w.until("replaced", "demo", "gateway")
    w.until("serves", "demo", 3)
    w.run("helm rollback demo")
    w.until("serves", "demo", 3)
    w.open("docs/start/kubernetes.md", "Remove")
    w.run("helm uninstall demo")
    w.run("kind delete cluster")


def after_installation(w, text=None):
    """Types the commands of Helm's notes after an installation."""
    if w.typist:
        w.until("has_demo_model")
        text = w.typist.install("demo")
    w.read_notes(text)
    w.until("serves", "demo", 2)
    for _ in ("get pods", "cox status", "port-forward of the dashboard", "the admin key"):
        w.run("kubectl -n")
    w.run("helm test")
    w.run("kubectl -n")
    w.until("listens")
    if w.has("KEY="):
        w.run("KEY=")
        w.run("echo")
    w.run("curl")
    w.run("helm upgrade")
    w.until("serves", "demo", 3)


def helm(w):
    w.open("docs/reference/chart.md")
    w.run("helm install demo")
    w.run("helm test demo")
    w.run("helm upgrade demo deploy/helm/coxswain --reuse-values --set head.config.max_waiting=100")
    w.until("replaced", "demo", "head")
    w.until("serves", "demo", 2)
    w.run("helm upgrade demo deploy/helm/coxswain --reuse-values --set worker.replicas=8")
    w.until("serves", "demo", 8)
    w.run("cox keys")
    w.run("kubectl create secret generic cox-keys")
    w.run("kubectl create secret generic cox-admin")
    w.run("kubectl create secret generic cox-api-keys")
    w.run("helm install two")
    w.until("serves", "two", 2)
    w.until("has_secrets", ["cox-keys", "cox-admin", "cox-api-keys"], "two")
    w.run("helm upgrade demo deploy/helm/coxswain --reuse-values --set head.standby=true")
    w.until("has_pods", "demo", "head", 2)
    w.until("serves", "demo", 8)
    w.run("helm upgrade demo deploy/helm/coxswain --reuse-values --set ingress.enabled=true")
    w.run("kubectl get ingress")
    w.run("KEY=")
    w.until("answers", "demo")
    w.run("curl")
    w.run("helm rollback demo")
    w.until("serves", "demo", 8)
    w.run("helm uninstall demo")
    w.until("has_pods", "demo", None, 0)


def registry(w):
    w.open("docs/start/kubernetes.md", "With a registry")
    w.until("needs_namespace", "llm")
    place = f"{w.until('has_registry')}/team"
    w.run("deploy/image/build")
    w.run("packaging/push", REGISTRY=place)
    w.until("is_pushed", "team")
    w.run("kubectl create namespace")
    w.run("kubectl config")
    w.until("is_pulled", "team")
    w.run("kubectl create secret docker-registry", REGISTRY=place)
    w.run("helm install demo", REGISTRY=place)
    w.run("helm test demo")


def several_nodes(w):
    w.open("docs/start/kubernetes.md", "Several nodes")
    w.until("is_named", "registry.example/coxswain:0.1.0")
    w.run("kubectl get storageclass")
    w.run("helm install demo", REGISTRY="registry.example", CLASS="standard")
    w.run("helm test demo")
    w.until("serves", "demo", 2, 1)
    w.run("kubectl exec")


def gpus(w):
    w.open("docs/start/kubernetes.md", "GPUs")
    w.run("kubectl get nodes")
    w.run("kubectl create secret generic hf")
    w.run("helm install gpu", REGISTRY="registry.example")


def openshift(w):
    w.open("docs/start/openshift.md")
    w.until("needs_namespace", "llm")
    w.until("knows_openshift")
    w.until("is_named", "image-registry.openshift-image-registry.svc:5000/llm/coxswain:0.1.0")
    w.run("oc new-project")
    w.run("deploy/image/build")
    w.run("helm install demo", CLASS="standard")
    w.run("helm test demo")
    w.run("oc exec")
    w.run("KEY=")


def without_a_network(w):
    w.open("docs/how-to/deploy.md", "Without a network")
    w.until("has_pulled", "build/baked")
    w.run("COX_CACHE=build/baked cox pull demo")
    w.run("deploy/image/build --with-model")
    w.run("helm package")
    w.until("load", "coxswain-demo.tar")
    w.run("helm install demo coxswain-0.1.0.tgz")
    w.run("helm test demo")
    w.until("serves", "demo", 2)


def rendered(w):
    w.open("docs/how-to/deploy.md", "Argo CD, Flux, `helm template`")
    for command in ("cox keys", "kubectl create", "kubectl create", "kubectl create", "rm", "helm template", "kubectl apply", "kubectl rollout", "PASSWORD=", "kubectl create"):
        w.run(command)
    w.until("serves", "demo", 2)
    w.run("kubectl delete -f demo.yaml")


def away(w):
    """Types the section "Remove" for a release in a separate namespace."""
    w.open("docs/start/kubernetes.md", "With a registry")
    w.until("needs_namespace", "llm")
    w.run("kubectl create namespace")
    w.run("kubectl config")
    w.until("install", "demo")
    w.open("docs/start/kubernetes.md", "Remove")
    w.run("helm uninstall demo")
    w.until("has_pods", "demo", None, 0)
    w.run("kubectl delete namespace")


def without_helm(w):
    w.open("deploy/k8s/README.md")
    w.until("has_demo_model")
    w.until("has_base")
    w.run("cox keys")
    w.run("kubectl create secret generic coxswain-keys")
    w.run("kubectl create secret generic coxswain-admin")
    w.run("kubectl create secret generic coxswain-api-keys")
    w.run("kubectl create secret generic coxswain-redis")
    w.run("kubectl create secret generic hf")
    w.run("kubectl apply -k deploy/k8s/base")
    w.run("kubectl apply -k deploy/k8s/overlays/gpu")
    w.run("kubectl rollout status")
    w.run("kubectl exec")
    w.run("kubectl rollout restart")


# WALKS lists the walks of the pages. tests/k8s/live/test_walks.py types each of these walks, and the walk of Helm's notes, in a separate namespace.
WALKS = [tests_cluster, laptop, helm, registry, several_nodes, gpus, openshift, without_a_network, rendered, away, without_helm]
DEMO = {laptop, after_installation, without_helm}  # these walks have the demo model on a claim; the others have the null model under the name demo
