"""Tests keys as Helm makes them, an Ed25519 key and a self-signed certificate for each role. They are in a folder as Kubernetes
mounts a Secret: links through ..data, which is replaced atomically, and files of mode 0440 in a read-only folder. The tests use
real handshakes, change keys while the cluster serves, and run `cox` on such a folder."""
import os
import re
import subprocess

import httpx
import null_oracle as oracle
from cluster import get, run_cox, wait_for
from test_bad_frames import Processes

AUTHORIZED = "gateway @gateway.pub\nworker @worker.pub\n"
P = 2**255 - 19


def openssl(*args, cwd):
    done = subprocess.run(["openssl", *args], cwd=cwd, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_key(folder, name, kind="ED25519"):
    """Returns (PEM of the private key, PEM of its certificate). X25519 cannot sign, so it gives the PEM of the public key instead."""
    openssl("genpkey", "-algorithm", kind, "-out", f"{name}.pem", cwd=folder)
    if kind == "ED25519":
        openssl("req", "-x509", "-new", "-key", f"{name}.pem", "-days", "3650", "-subj", f"/CN=demo-{name}", "-out",
                f"{name}.crt", cwd=folder)
    else:
        openssl("pkey", "-in", f"{name}.pem", "-pubout", "-out", f"{name}.crt", cwd=folder)
    return (folder / f"{name}.pem").read_text(), (folder / f"{name}.crt").read_text()


class Secret:
    """`Secret` is a volume, written as kubelet's atomic writer writes it."""

    def __init__(self, folder):
        self.folder, self.n = folder, 0
        folder.mkdir()

    def put(self, files):
        self.n += 1
        data = self.folder / f"..2026_11_23_{self.n}"
        data.mkdir()
        for name, text in files.items():
            (data / name).write_text(text)
            (data / name).chmod(0o440)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        (self.folder / "..data_tmp").symlink_to(data.name)
        (self.folder / "..data_tmp").rename(self.folder / "..data")


def ask(c, prompt):
    r = httpx.post(c.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 8, "temperature": 0}, timeout=60)
    assert r.status_code == 200 and r.json()["choices"][0]["text"] == oracle.text(prompt, 8, temperature=0), r.text


def start(c, keys):
    c.keys = keys
    c.start_head(tp=1)
    c.start_worker("worker-0", c.head_port, tp=1)
    c.start_gateway(c.head_port)
    wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)


def test_a_secret_of_helm_keys_and_its_changes(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    files = {"authorized": AUTHORIZED}
    for role in ("head", "gateway", "worker"):
        files[f"{role}.key"], files[f"{role}.pub"] = make_key(made, role)
    secret = Secret(tmp_path / "secret")
    secret.put(files)
    with Processes(tmp_path) as c:
        start(c, secret.folder)
        ask(c, "with keys of PEM")

        # The worker key is changed: the Secret has both certificates for a while, then the new key, then the new certificate alone.
        key, certificate = make_key(made, "next")
        for step in ({"worker.pub": certificate + files["worker.pub"]}, {"worker.key": key},
                     {"worker.pub": certificate}):
            n_read = c.log("head").count("authorized_read")
            files.update(step)
            secret.put(files)
            wait_for("the head has read it", lambda n=n_read: c.log("head").count("authorized_read") > n)
        assert "authorized_read" in c.log("head") and "authorized_not_read" not in c.log("head")
        wait_for("sessions of the old key end", lambda: "peer_revoked role=worker" in c.log("head"))
        wait_for("the worker is back with the new one",
                 lambda: "keys_read role=worker" in c.log("worker-0") and len(c.status()["workers"]) == 1)
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        ask(c, "with the worker's new key")

        # The head's key is changed: the peers get both certificates first, then `cox keys --reload` makes the head use its new key.
        key, certificate = make_key(made, "head2")
        files["head.pub"] = certificate + files["head.pub"]
        secret.put(files)
        files["head.key"] = key
        secret.put(files)
        done = run_cox("keys", "--reload", "--address", f"127.0.0.1:{c.admin_port}")
        assert done.returncode == 0 and "uses its new key now" in done.stdout, done
        wait_for("peers are back", lambda: c.log("worker-0").count("head_joined") >= 3 and
                 get(c.url + "/health")[0] == 200)
        ask(c, "with the head's new key")
        assert all(p.poll() is None for p in c.started.values())
        assert "key_readable_by_all" not in c.log("head")


def test_a_file_that_authorized_names_is_watched_and_mended(tmp_path):
    """Keys change without a Secret, so the file `authorized` itself does not change."""
    with Processes(tmp_path) as c:
        old = (c.keys / "worker.pub").read_text()
        (c.keys / "authorized").write_text(AUTHORIZED)
        (c.keys / "authorized").chmod(0o600)
        start(c, c.keys)
        (c.keys / "worker.pub").unlink()
        wait_for("the head says so", lambda: "authorized_not_read" in c.log("head") and
                 "worker.pub does not exist" in c.log("head"))
        ask(c, "the keys that it had stay in force")
        (c.keys / "worker.pub").write_text(old)
        wait_for("it is read again", lambda: "authorized_read" in c.log("head"))
        assert c.log("head").count("authorized_not_read") == 1
        assert "peer_revoked" not in c.log("head")
        ask(c, "as before")


def x25519_of(seed_pem, folder):
    """Returns the u coordinate of the Ed25519 key, by RFC 7748's map over integers."""
    der = openssl("pkey", "-in", seed_pem, "-pubout", "-outform", "DER", cwd=folder)
    y = int.from_bytes(der[-32:], "little") & ((1 << 255) - 1)
    return ((1 + y) * pow(1 - y, P - 2, P) % P).to_bytes(32, "little")


def z85(raw):
    chars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    out = ""
    for i in range(0, len(raw), 4):
        v = int.from_bytes(raw[i:i + 4], "big")
        out += "".join(chars[v // 85**k % 85] for k in (4, 3, 2, 1, 0))
    return out


def test_pem_and_curve_of_one_key_are_the_same(tmp_path):
    """The head gets the worker's public key in Z85, computed here, and the worker has the PEM. Then the forms are swapped, with an
    X25519 key."""
    with Processes(tmp_path) as c:
        key, certificate = make_key(tmp_path, "w")
        (c.keys / "worker.key").write_text(key)
        (c.keys / "worker.pub").write_text(certificate)
        gateway = (c.keys / "gateway.pub").read_text()
        (c.keys / "authorized").write_text(f"worker {z85(x25519_of('w.pem', tmp_path))}\ngateway {gateway}")
        head_key, head_public = make_key(tmp_path, "h", "X25519")
        (c.keys / "head.key").write_text(head_key)
        raw = openssl("pkey", "-in", "h.pem", "-pubout", "-outform", "DER", cwd=tmp_path)[-32:]
        (c.keys / "head.pub").write_text(z85(raw) + "\n")
        start(c, c.keys)
        ask(c, "one key in two forms")
        (c.keys / "head.pub").write_text(head_public)
        c.start_worker("worker-1", c.head_port, tp=1)
        wait_for("a worker that has the head's PEM is in", lambda: len(c.status()["workers"]) == 2)


def test_cox_on_a_folder_that_is_only_read(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    files = {"authorized": AUTHORIZED}
    for role in ("head", "gateway", "worker"):
        files[f"{role}.key"], files[f"{role}.pub"] = make_key(made, role)
    secret = Secret(tmp_path / "secret")
    secret.put(files)
    before = sorted(os.listdir(secret.folder))
    token = run_cox("join-token", "--keys-dir", secret.folder, "--head", "127.0.0.1:7000")
    assert token.returncode == 0 and token.stdout.startswith("cox1.") and token.stderr == ""
    for change in ("--rotate", "--retire"):
        done = run_cox("keys", "--keys-dir", secret.folder, change, "worker")
        assert done.returncode == 1 and re.search("cannot rotate the PEM key .*worker.key: the authority that issued it must do that", done.stderr), done
    assert sorted(os.listdir(secret.folder)) == before
    # `cox keys` makes a missing key and keeps the others. In a read-only folder it reports an error.
    done = run_cox("keys", "--keys-dir", secret.folder)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(secret.folder)) == sorted([*before, "operator.key", "operator.pub"])
    assert (secret.folder / "worker.pub").is_symlink()
    (secret.folder / "..data" / "worker.key").unlink()
    (secret.folder / "..data" / "worker.key").write_text(files["head.key"])
    done = run_cox("keys", "--keys-dir", secret.folder)
    assert done.returncode == 2 and "worker.key does not match the .pub file beside it" in done.stderr, done
