"""Turns the NetworkPolicies of a release into packet filters of its pods, as the network of a cluster does. It knows the fields that the
chart uses, and refuses others."""

LOOPBACK = {"input": "iif", "output": "oif"}


def matches(selector, labels):
    """Returns whether a label selector chooses a pod with these labels."""
    assert set(selector) <= {"matchLabels", "matchExpressions"}, selector
    for e in selector.get("matchExpressions", []):
        assert e["operator"] == "In", e
        if labels.get(e["key"]) not in e["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def addresses(peer, pods):
    """Returns the nft expressions for a peer, without the words `ip saddr` or `ip daddr` ({ip} stands for them). `pods` has (labels,
    address) of each pod."""
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        if ":" in block["cidr"]:
            return []  # the pods have no IPv6
        excepted = f" {{ip}} != {{{{ {', '.join(block['except'])} }}}}" if block.get("except") else ""
        return [f"{{ip}} {block['cidr']}{excepted}"]
    assert set(peer) <= {"podSelector", "namespaceSelector"}, peer
    assert peer.get("namespaceSelector", {}) == {}, "the pods are in one namespace"
    found = sorted(address for labels, address in pods if matches(peer.get("podSelector", {}), labels))
    return [f"{{ip}} {{{{ {', '.join(found)} }}}}"] if found else []


def allowed(rule, side, pods):
    """Returns the lines of nft for a rule of a policy. `side` is ("from", "ip saddr") or ("to", "ip daddr")."""
    key, ip = side
    assert set(rule) <= {key, "ports"}, rule
    ports = []
    for p in rule.get("ports", []):
        last = f"-{p['endPort']}" if "endPort" in p else ""
        ports.append(f"{p['protocol'].lower()} dport {int(p['port'])}{last}")
    peers = [""] if key not in rule else [a.format(ip=ip) for peer in rule[key] for a in addresses(peer, pods)]
    return [f"  {who} {port} accept\n" for who in peers for port in ports or [""]]


def chain(hook, policies, side, kind, pods, before=""):
    """Returns a chain that allows what one of the policies allows. Without a policy of this kind everything is allowed."""
    chosen = [p for p in policies if kind in p["policyTypes"]]
    if not chosen:
        return ""
    lines = "".join(line for p in chosen for rule in p.get(kind.lower()) or [] for line in allowed(rule, side, pods))
    return (f" chain {hook} {{\n  type filter hook {hook} priority 0; policy accept;\n"
            f"  {LOOPBACK[hook]} lo accept\n  ct state established,related accept\n{before}{lines}"
            "  meta l4proto tcp reject with tcp reset\n  reject\n }\n")


def table(labels, policies, pods, node):
    """Returns the nft commands for the network namespace of one pod. The node's own traffic to a pod is always allowed: kubelets
    probe pods whatever the policies say."""
    mine = [p["spec"] for p in policies if matches(p["spec"]["podSelector"], labels)]
    return ("table ip policies\ndelete table ip policies\ntable ip policies {\n"
            + chain("input", mine, ("from", "ip saddr"), "Ingress", pods, f"  ip saddr {node} accept\n")
            + chain("output", mine, ("to", "ip daddr"), "Egress", pods) + "}\n")
