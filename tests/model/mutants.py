#!/usr/bin/env python3
"""Plants bugs, one at a time, and reports which of them the exploration of two heads finds.

    tests/model/mutants.py [--build build/release] [NAME...]

Each mutant is one file with one changed place. It is compiled beside the build and linked before its libraries. No source and no
object of the build changes. Exit status 1 means that a bug that should be found was not, or that a place no longer exists. NOT
FOUND in capitals is an unexpected result; MASKED lists the mutants for which it is expected. A run takes minutes, because a bug
that is not found costs a whole exploration.
"""
import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = "tests/model_pair_explore_test"

# Each entry is name: (file, original text, planted text). The changes of a list are planted together.
WELCOME_ALL = ("head/core/core.c", "if (io->on_foreign_term && cluster_term_is_foreign(", "if (false && cluster_term_is_foreign(")
KEEP_TERM = ("head/cluster/cluster.c", "        take_term(c, term_seen + 1);", "        (void)c;")
MUTANTS = {
    "rank: a Form of an older term is taken": (
        "worker/link/rank_state.c", "m->term_epoch <= s->term_epoch || m->term_epoch >> 32 < s->term_seen", "m->term_epoch == s->term_epoch"),
    "rank: a Form of an older term is taken, from a head that welcomes everybody": [
        ("worker/link/rank_state.c", "m->term_epoch <= s->term_epoch || m->term_epoch >> 32 < s->term_seen", "m->term_epoch == s->term_epoch"),
        WELCOME_ALL, KEEP_TERM],
    "head: a peer with a newer term is welcome, and its term is not risen above": [WELCOME_ALL, KEEP_TERM],
    "rank: a plan of another epoch is executed": (
        "worker/link/rank_state.c", "if (m->term_epoch != s->term_epoch || s->phase != RANK_READY)", "if (s->phase != RANK_READY)"),
    "rank: Aborted before the communicator's end": (
        "worker/link/rank_state.c", "        start_abort(s);\n        add_answer(s, m->term_epoch);\n        return RANK_ABORT_COMM;",
        "        start_abort(s);\n        return RANK_SEND_ABORTED;"),
    "rank: an Abort of an older epoch is not answered": (
        "worker/link/rank_state.c", "        if (older)\n            return RANK_SEND_ABORTED;", "        if (older)\n            return RANK_IGNORE;"),
    "rank: a Reset while steps are under way": (
        "worker/link/rank_state.c", "s->phase != RANK_READY || s->step_received != s->step_executed)", "s->phase != RANK_READY)"),
    "rank: a Reset while steps are under way, from a head that adopts such groups": [
        ("worker/link/rank_state.c", "s->phase != RANK_READY || s->step_received != s->step_executed)", "s->phase != RANK_READY)"),
        ("head/cluster/adoption.c", "w->step_received == w->step_executed &&", "true &&")],
    "rank: a gap in the steps goes unnoticed": (
        "worker/link/rank_state.c", "if (m->step == s->step_received + 1) {", "if (m->step > s->step_received) {"),
    "lease: taken without a whole TTL of watching": (
        "head/lease/lease.c", "return l->is_watching && now_ns - l->watched_ns >= l->ttl_ns;", "return true;"),
    "lease: a head that lost it goes on": (
        "head/lease/lease.c", "    if (a->holder != LEASE_OURS) {\n        l->state = LEASE_ENDED;\n        return LEASE_STEP_DOWN;\n    }\n",
        "    if (a->holder != LEASE_OURS)\n        return LEASE_STAY;\n"),
    "lease: an old answer is a lease": ("head/lease/lease.c", "bool is_fresh = now_ns - l->asked_ns < l->ttl_ns;", "bool is_fresh = true;"),
    "lease: no question when a foreign term is seen": (
        "head/lease/lease.c", "    if (l->state == LEASE_SERVING && l->ask_ns > now_ns)\n        l->ask_ns = now_ns;", "    (void)now_ns;"),
    "lease: the term does not rise above the one seen": ("head/lease/lease.c", "return l->term > above ? l->term : above + 1;", "return l->term;"),
    "head: a peer with a newer term is welcome": WELCOME_ALL,
    "head: the lease's term is not taken": ("head/cluster/cluster.c", "    if (term > c->term)\n        take_term(c, term);", "    (void)c, (void)term;"),
    "head: ranks are placed before Aborted": (
        "head/cluster/formation.c", "        if (g->members[i] && !g->members[i]->aborted)\n            return;", "        if (false)\n            return;"),
    "head: ranks are placed before Aborted, and end nothing before they form": [
        ("head/cluster/formation.c", "        if (g->members[i] && !g->members[i]->aborted)\n            return;", "        if (false)\n            return;"),
        ("worker/link/rank_state.c", "        action = start_abort(s);\n        break;\n    default:", "        s->phase = RANK_IDLE;\n        return start_forming(s);\n    default:")],
    "head: ready when one rank is": ("head/cluster/formation.c", "        if (!g->members[i]->formed)\n            return;", "        if (false)\n            return;"),
    "head: groups with steps under way are adopted": ("head/cluster/adoption.c", "w->step_received == w->step_executed &&", "true &&"),
    "head: ranks at different steps are adopted": ("head/cluster/adoption.c", "w->step_received == first->step_received && ", ""),
    "head: half a group is adopted": ("head/cluster/adoption.c", "    if (complete)\n        return ADOPT;", "    if (complete || members[0] == first)\n        return ADOPT;"),
    "head: its own epochs are adopted": ("head/cluster/cluster.c", "&& !owns_term(c, i->term_epoch);", ";"),
    "head: what a rank's lost session had is forgotten": (
        "head/core/dispatch.c", "return said->step_received == sent && (!gives_results(h, g, w) || l->last_result == sent);",
        "return said || gives_results(h, g, w) || sent;"),
    "head: a result of an old epoch counts": (
        "head/core/dispatch.c", "m->term_epoch != g->epoch || !gives_results(h, g, w))", "!gives_results(h, g, w))"),
    "head: a Formed of an old epoch counts": ("head/cluster/formation.c", "if (!under_way || m->term_epoch != g->epoch)", "if (!under_way)"),
    "head: an Aborted of another epoch counts": (
        "head/cluster/cluster.c", "if (m->aborted.term_epoch != w->abort_epoch || w->abort_epoch == 0)", "if (w->abort_epoch == 0)"),
    "head: what a gateway submits again is left as it was": (
        "head/core/gateways.c", "if (m->attempt < r->attempt || (m->attempt == r->attempt && same_session))", "if (m->attempt > 0)"),
    "gateway: tokens of an older attempt are taken": (
        "gateway/generation/stream_state.c", "if (s->phase != STREAM_OPEN || t->attempt != s->attempt)", "if (s->phase != STREAM_OPEN)"),
    "gateway: what it has already is taken twice": ("gateway/generation/stream_state.c", "    *skip = s->n_received - t->start;", "    *skip = 0;"),
    "gateway: a gap in the tokens goes unnoticed": ("gateway/generation/stream_state.c", "if (t->start > s->n_received) {", "if (t->start > s->n_received + 64) {"),
    "gateway: a head of an older term is welcome": (
        "gateway/head_link/engine_client.c", "if (w->term > 0 && w->term < c->term_seen) {", "if (false) {"),
    "gateway: a head of an older term is welcome, and welcomes everybody": [
        ("gateway/head_link/engine_client.c", "if (w->term > 0 && w->term < c->term_seen) {", "if (false) {"), WELCOME_ALL, KEEP_TERM],
    "gateway: frames of another session are taken": (
        "gateway/head_link/engine_client.c", "if (c->state != ENGINE_OPEN || h.session != c->link.session) {", "if (c->state != ENGINE_OPEN) {"),
    "gateway: it stays at the head that is gone": (
        "gateway/head_link/engine_client.c", "    if (!c->o.several || c->connected || c->now_ns < c->retry_ns)\n        return;", "    if (true)\n        return;"),
    "gateway: a new session submits nothing again": (
        "gateway/generation/stream_state.c", "    if (s->phase == STREAM_OPEN)\n        stream_again(s);\n", ""),
}


# MASKED names the mutants that are not found, with the reason: another check has the same effect, or such a moment does not occur in the world.
MASKED = {
    "rank: a Form of an older term is taken": "a head of an older term refuses who has seen a newer one",
    "rank: a plan of another epoch is executed": "plans come in the session of their Form, after it",
    "rank: an Abort of an older epoch is not answered": "an epoch's Abort comes before the next one's Form",
    "rank: a Reset while steps are under way": "the head adopts no group with steps under way",
    "lease: no question when a foreign term is seen": "the next renewal asks",
    "rank: a gap in the steps goes unnoticed": "a frame that is missing is missed by the link's numbers",
    "head: ranks are placed before Aborted": "a rank ends its communicator before it forms another",
    "head: groups with steps under way are adopted": "the rank refuses the Reset, and the group is formed",
    "head: ranks at different steps are adopted": "ranks compute a step together, and say Hello after it",
    "head: its own epochs are adopted": "a Reset of whole and idle ranks is as good as an Abort",
    "head: what a rank's lost session had is forgotten": "the rank's Gap, or no result for 5 s, tells: it takes longer",
    "head: a result of an old epoch counts": "it comes before Aborted, so before the next epoch",
    "head: a Formed of an old epoch counts": "it comes before Aborted, so before the next epoch",
    "head: an Aborted of another epoch counts": "an epoch's Aborted comes before the next one's Abort",
    "gateway: what it has already is taken twice": "the head begins behind what a Submit brings",
    "gateway: a gap in the tokens goes unnoticed": "a frame that is missing is missed by the link's numbers",
    "gateway: a head of an older term is welcome": "that head refuses who has seen a newer term",
    "gateway: frames of another session are taken": "a connection that was dropped takes its frames along",
    "gateway: tokens of an older attempt are taken": "they say where they belong, and are the same",
}


def command_of(build, target):
    out = subprocess.run(["ninja", "-C", str(build), "-t", "commands", target], capture_output=True, text=True, check=True).stdout
    return out.strip().splitlines()[-1]


def build_mutant(build, folder, texts):
    objects = []
    for source, text in texts.items():
        mutant = folder / source.replace("/", "_")
        mutant.write_text(text)
        part, rest = source.split("/", 1)
        words = shlex.split(command_of(build, f"{part}/CMakeFiles/{part}.dir/{rest}.o"))
        words = [w for w in words if w not in ("ccache", "-Werror")]
        objects.append(f"{mutant}.o")
        for flag, value in (("-c", mutant), ("-o", f"{mutant}.o"), ("-MF", f"{mutant}.d")):
            words[words.index(flag) + 1] = str(value)
        subprocess.run(words, cwd=build, check=True, stderr=subprocess.DEVNULL)
    link = command_of(build, TEST).removeprefix(": && ").removesuffix(" && :")
    link = link.replace(f" -o {TEST}", f" {' '.join(objects)} -o {folder}/test", 1)
    subprocess.run(link, shell=True, cwd=build, check=True)
    return folder / "test"


def try_mutant(build, name, limit_s):
    changes = MUTANTS[name] if isinstance(MUTANTS[name], list) else [MUTANTS[name]]
    texts = {}
    for source, there, planted in changes:
        text = texts.setdefault(source, (ROOT / source).read_text())
        if text.count(there) != 1:
            return f"its place in {source} is there {text.count(there)} times", False
        texts[source] = text.replace(there, planted)
    with tempfile.TemporaryDirectory() as folder:
        program = build_mutant(build, pathlib.Path(folder), texts)
        start = time.monotonic()
        try:
            done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "runs for ever", True
        took = time.monotonic() - start
    if done.returncode == 0:
        return (f"not found: {MASKED[name]}", True) if name in MASKED else (f"NOT FOUND ({took:.0f} s)", False)
    lines = (done.stdout + done.stderr).splitlines()
    why = [x.removeprefix("VIOLATION: ") for x in lines if "no end" in x or "Assertion" in x or ("VIOLATION: " in x and x.strip() != "VIOLATION:")]
    return f"found: {(why or ['it ended with %d' % done.returncode])[0][:110]} ({took:.0f} s)", True


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help="words that a name has; all mutants without any")
    p.add_argument("--build", default=str(ROOT / "build/release"))
    p.add_argument("--limit-s", type=float, default=900)
    a = p.parse_args()
    subprocess.run(["cmake", "--build", a.build, "--target", TEST.split("/")[1]], check=True, stdout=subprocess.DEVNULL)
    missed = 0
    for name in MUTANTS:
        if a.names and not any(n in name for n in a.names):
            continue
        says, found = try_mutant(pathlib.Path(a.build).resolve(), name, a.limit_s)
        missed += not found
        print(f"{name}: {says}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    os.environ.pop("COX_PAIR", None)
    sys.exit(main())
