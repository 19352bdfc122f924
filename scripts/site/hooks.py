"""Adds to the docs site the pages that are not files of docs/ (mkdocs.yml).

docs/index.md is the first page of the site. Each command gets a page with its --help. A file outside of docs/ that a page links
to becomes a page (Markdown) or a file of the site, and so do the files to which it links: every link to a file of the repository
stays in the site. The pages are written for a Git host. on_page_markdown changes the few places that Python-Markdown reads in
another way.
"""
import logging
import os
import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("COX_BIN") or ROOT / "build/release/bin")
FILES = "files"  # folder in the site for files outside of docs/
FENCE = re.compile(r"^( *)(```+)(\S*).*$")
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\]|`[^`]*`)*\]\()([^)\s]+)(\))")
ITEM = re.compile(r"^( *)(?:[-*]|\d+\.) ")
GROUPS = {"bench": ("serve", "throughput", "latency", "startup"),  # these commands have subcommands
          "run": ("create", "list", "show", "logs", "terminate", "delete", "render")}
log = logging.getLogger("mkdocs.hooks")
_repository_path = {}  # path in the site → path in the repository


# ---- links

def in_site(path):
    """Returns the place of a repository's file in the site."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{FILES}/{path}" if path.endswith((".md", ".svg", ".png")) else f"{FILES}/{path}.txt"


def target(path, url):
    """Returns (file of the repository, anchor) of a link in the file at `path`; None for a link to another place."""
    if re.match(r"[a-z]+:|#", url):
        return None
    to, _, anchor = url.partition("#")
    to = posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
    if (ROOT / to).is_dir():
        to = "docs/develop/decisions/index.md" if to == "docs/develop/decisions" else posixpath.join(to, "README.md")
    return to, anchor


def outside_fences(text):
    """Yields (line, whether the line is code) of each line."""
    closing = None
    for line in text.splitlines():
        m = FENCE.match(line)
        if closing is None and m:
            closing = m[2]
            yield line, True
        elif closing is not None:
            yield line, True
            if line.strip() == closing:
                closing = None
        else:
            yield line, False


def links(text):
    for line, code in outside_fences(text):
        if not code:
            yield from (m[2] for m in LINK.finditer(line))


# ---- Markdown of Git hosts

def bare_pipes(row):
    """Removes the escape of a | in code in a table's row. Git hosts need that escape, and Python-Markdown does not."""
    return re.sub(r"`[^`]*`", lambda m: m[0].replace(r"\|", "|"), row)


def for_python_markdown(text):
    out, before, in_list = [], "", False
    for line, code in outside_fences(text):
        fence = FENCE.match(line)
        if code and fence:
            line = fence[1] + fence[2] + fence[3]  # removes the block's name, which only tests use
        item = None if code else ITEM.match(line)
        begins = (item and not in_list) or (line.startswith("|") and not code and not before.startswith("|"))
        if begins and before.strip():
            out.append("")
        if item:
            in_list = True
        elif line.strip() and not line.startswith(" "):
            in_list = False
        if in_list and line.startswith(" "):
            line = "  " + line  # inside of an item, Python-Markdown requires four spaces, not two
        out.append(bare_pipes(line) if line.startswith("|") and not code else line)
        before = line
    return "\n".join(out) + "\n"


# ---- search

WEIGHTS = (("start/", 4), ("how-to/", 3), ("reference/commands/", 1), ("reference/", 2), ("explain/", 2))  # the first prefix that matches counts


# SUBJECTS maps words that users type to the page that answers them. A match here counts more than a match in a title. Each word of a query
# counts by itself, also as the beginning of a longer word, so a query of two words needs both here if one of them is a subject of another page.
SUBJECTS = {
    "start/install.md": ["install", "quick install", "installation", "installation guide", "deb", "rpm", "dnf", "apt", "pip", "wheel", "tarball",
                         "packages", "checksum"],
    "start/laptop.md": ["quickstart", "started", "docker", "podman", "macos", "apple", "windows", "wsl", "change port"],
    "start/server.md": ["systemd", "bare metal", "multi-node", "https", "ssl", "tls certificate", "reverse proxy", "nginx", "second", "firewall"],
    "start/kubernetes.md": ["helm", "helm install", "helm chart", "kubernetes installation", "k8s", "uninstall", "remove", "minikube"],
    "start/openshift.md": ["scc", "oc", "openshift installation"],
    "start/sagemaker.md": ["aws", "sagemaker endpoint"],
    "start/gpu.md": ["cuda", "nvidia", "nccl", "multi gpu", "multiple gpus", "amd", "rocm"],
    "how-to/serve-a-model.md": ["download", "pull", "huggingface", "s3", "local model", "serve", "serving"],
    "how-to/several-models.md": ["lora", "adapter", "multi-model", "multiple"],
    "how-to/clients.md": ["claude code", "codex", "langchain", "litellm", "openai sdk", "python client", "open webui", "cursor",
                          "cline", "aider", "coding agent"],
    "how-to/chat-page.md": ["web ui", "browser", "chat ui", "chat page"],
    "how-to/keys-and-quotas.md": ["rate limit", "quota", "throttle", "429", "tenant", "authentication", "api key", "keys"],
    "how-to/rotate-keys.md": ["rotate keys", "rotate certificates", "pem", "renew", "expire"],
    "how-to/autoscale.md": ["hpa", "keda", "scale to zero"],
    "how-to/upgrade.md": ["rollout", "rolling", "zero downtime", "new version", "rollback", "roll back", "downgrade"],
    "how-to/back-up.md": ["backup", "restore", "disaster"],
    "how-to/monitor.md": ["grafana", "prometheus", "alerts", "tracing", "opentelemetry", "logs", "logging", "health check", "liveness"],
    "how-to/debug.md": ["oom", "out of memory", "died", "crash", "hang", "slow", "troubleshooting", "connection refused"],
    "how-to/plan.md": ["vram", "hardware requirements", "memory requirements", "how much memory", "which gpu", "sizing"],
    "how-to/bench.md": ["benchmark", "throughput", "latency", "tokens per second"],
    "how-to/deploy.md": ["offline", "air gapped", "airgapped", "gitops", "argocd"],
    "how-to/build-image.md": ["docker image", "container image", "dockerfile", "sbom", "license", "licence"],
    "how-to/migrate-from-vllm.md": ["vllm serve", "vllm"],
    "how-to/migrate-from-vllm-on-ray.md": ["ray", "kuberay"],
    "how-to/migrate-from-djl.md": ["djl", "lmi"],
    "how-to/migrate-from-ollama.md": ["ollama"],
    "explain/recovery.md": ["worker crashes", "crashes happens", "high availability", "failover", "fault tolerance", "node failure", "resume"],
    "explain/exactness.md": ["deterministic", "determinism", "reproducible output", "seed"],
    "explain/concepts.md": ["speculative decoding", "tensor parallel", "pipeline parallel", "prefix caching", "kv cache", "replica", "replicas", "rank", "paged attention", "pagedattention"],
    "explain/faq.md": ["faq", "no replica serves"],
    "reference/api.md": ["streaming", "sse", "embeddings", "batches", "files", "responses", "api", "endpoints", "reasoning", "thinking", "timeout", "chat template"],
    "reference/structured-outputs.md": ["json schema", "json mode", "grammar", "guided decoding", "regex"],
    "reference/openai.md": ["tool calling", "function calling", "temperature", "priority", "stop sequences", "max tokens"],
    "reference/models.md": ["gguf", "quantization", "awq", "gptq", "fp8", "supported models", "vision", "multimodal", "audio",
                            "llama", "mistral", "qwen", "gemma", "deepseek"],
    "reference/environment.md": ["environment variables", "huggingface token", "hugging face token", "hf_token", "gated", "cache location"],
    "reference/flags.md": ["context length", "context window", "max-model-len"],
    "how-to/runbook.md": ["crashloopbackoff"],
    "reference/errors.md": ["401", "404", "500", "503", "port in use", "error", "model not found"],
    "reference/chart.md": ["values yaml", "ingress", "load balancer", "node selector", "tolerations", "pod pending", "pods", "pvc"],
    "reference/runs.md": ["run files"],
    "reference/admin-api.md": ["admin api"],
    "how-to/step-log.md": ["step log", "replay"],
    "reference/metrics.md": ["metrics"],
}


def weigh(page):
    """Weighs a page for the search: users' pages are first, and pages for developers are excluded."""
    path = page.file.src_uri
    if path.startswith(("develop/", FILES + "/")):
        page.meta["search"] = {"exclude": True}
    else:
        boost = next((weight for folder, weight in WEIGHTS if path.startswith(folder)), 1)
        page.meta.setdefault("search", {"boost": boost})
    subjects = ["cox"] if path.startswith("reference/commands/") else SUBJECTS.get(path)
    if subjects:
        page.meta.setdefault("tags", subjects)  # only the search reads tags, because no plugin shows them on the page


def on_page_markdown(markdown, page, config, files):
    weigh(page)
    path = _repository_path.get(page.file.src_uri)
    if path is None:
        return markdown

    def moved(m):
        to = target(path, m[2])
        if to is None:
            return m[0]
        there = posixpath.relpath(in_site(to[0]), posixpath.dirname(page.file.src_uri) or ".")
        return m[1] + there + ("#" + to[1] if to[1] else "") + m[3]

    lines = (line if code else LINK.sub(moved, line) for line, code in outside_fences(markdown))
    return for_python_markdown("\n".join(lines))


# ---- generated pages

def cox(*words):
    try:
        done = subprocess.run([BIN / "cox", *words], capture_output=True, text=True, timeout=60,
                              env={k: v for k, v in os.environ.items() if not k.startswith("COX_")})
    except FileNotFoundError:
        raise PluginError(f"no {BIN / 'cox'}: the commands' pages are what it says; scripts/build first, or COX_BIN") from None
    if done.returncode != 0:
        raise PluginError(f"cox {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def commands():
    """Yields (words, description) of every command and subcommand."""
    listed = re.findall(r"^  ([a-z-]+)  +(.+)$", cox("help"), re.M)
    for name, what in listed:
        yield (name,), what
        if name in GROUPS:
            of_it = commands_of(name)
            if tuple(n for n, _ in of_it) != GROUPS[name]:
                raise PluginError(f"cox {name} --help lists other commands than scripts/site/hooks.py: GROUPS")
            yield from (((name, sub), text) for sub, text in of_it)


def commands_of(name):
    """Yields the subcommands of a command from its help: from rows, or from its usage "cox run create|list". With a usage line, the
    descriptions come from the subcommands' own help."""
    text = cox(name, "--help")
    rows = re.findall(r"^  ([a-z][a-z-]*)  +(.+)$", text, re.M)
    in_usage = re.search(rf"^Usage:.* cox {name} ([a-z-]+(?:\|[a-z-]+)+)$", text, re.M)
    return rows or [(sub, f"A command of [cox {name}]({name}.md).") for sub in (in_usage[1].split("|") if in_usage else ())]


def slug(title):
    """Returns the anchor of a heading, as Git hosts and mkdocs.yml make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def sections(page):
    """Returns (title, text) of each section of a page of docs/."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs" / page).read_text(), flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2]))


def command_page(words, what):
    name = "cox " + " ".join(words)
    text = f"---\nhide: [toc]\n---\n# {name}\n\n{what}\n\n"
    if words == ("serve",):
        return text + "The same command as [cox up](up.md).\n"
    if words[-1] in ("version", "help"):  # these commands take no options, so their output is shown
        text += f"```\n$ {name}\n{cox(*words)}```\n"
    else:
        text += f"```\n$ {name} --help=all\n{cox(*words, '--help=all')}```\n"
    more = [f"[in the overview](../cli.md#{slug(t)})" for t, body in sections("reference/cli.md")
            if re.search(rf"\bcox {words[0]}\b", t + body)][:1]
    if slug(name) in [slug(t) for t, _ in sections("reference/flags.md")]:
        more.append(f"[each option with its variable](../flags.md#{slug(name)})")
    if words[0] == "bench":
        more.append("[what is measured, and how](../../how-to/bench.md)")
    if words[0] == "run":
        more.append("[run files, and what each command does](../runs.md)")
    return text + (f"\nMore: {'; '.join(more)}.\n" if more else "")


def add(files, config, path_in_site, **how):
    files.append(File.generated(config, path_in_site, **how))


def add_commands(files, config):
    nav = [{"Overview": "reference/cli.md"}]
    for words, what in commands():
        uri = f"reference/commands/{'-'.join(words)}.md"
        add(files, config, uri, content=command_page(words, what))
        nav.append({"cox " + " ".join(words): uri})
    return nav


def add_decisions(files, config):
    pages = sorted((ROOT / "docs/develop/decisions").glob("[0-9]*.md"))
    titles = {p: p.read_text().split("\n", 1)[0].removeprefix("# ") for p in pages}
    text = "# Decisions\n\nWhy things are as they are, one page each.\n\n" + "".join(f"- [{t}]({p.name})\n" for p, t in titles.items())
    add(files, config, "develop/decisions/index.md", content=text)
    return [{"Decisions": "develop/decisions/index.md"}, *({t: f"develop/decisions/{p.name}"} for p, t in titles.items())]


def add_linked(files, config):
    """Adds the files outside of docs/ that pages link to, and the files that these files link to."""
    seen = {"README.md": None, **{"docs/" + f.src_uri: None for f in files if f.is_documentation_page()}}
    todo = [p for p in seen if p != "README.md"]
    while todo:
        path = todo.pop()
        _repository_path[in_site(path)] = path
        for url in links((ROOT / path).read_text()):
            to = target(path, url)
            if to is None or to[0] in seen or to[0].startswith("docs/"):
                continue
            if not (ROOT / to[0]).is_file():
                log.warning("%s links to %s, which is not there", path, url)
                continue
            seen[to[0]] = None
            if to[0].endswith(".md"):
                todo.append(to[0])
    nav = []
    for path in sorted(seen):
        if not path.startswith("docs/") and path != "README.md":
            add(files, config, in_site(path), abs_src_path=str(ROOT / path))
            if path.endswith(".md"):
                nav.append({path.removesuffix("/README.md"): in_site(path)})
    return nav


def fill(nav, title, items):
    for entry in nav:
        if isinstance(entry, dict):
            for name, inside in entry.items():
                if name == title:
                    entry[name] = items
                elif isinstance(inside, list):
                    fill(inside, title, items)


def on_config(config):
    config.extra["polyfills"] = ["assets/file_worker.js"]
    config.extra_javascript.append("assets/site.js")


def on_post_build(config):
    """Writes the search index as a script: a site that is opened from a folder can load only scripts."""
    search = Path(config.site_dir) / "search"
    (search / "search_index.js").write_text("var __index = " + (search / "search_index.json").read_text())


def on_files(files, config):
    for asset in ("file_worker.js", "site.css", "site.js"):
        add(files, config, f"assets/{asset}", abs_src_path=str(ROOT / "scripts/site" / asset))
    fill(config.nav, "Files of the repository", add_linked(files, config))
    fill(config.nav, "Commands", add_commands(files, config))
    fill(config.nav, "Decisions", add_decisions(files, config))
    return files
