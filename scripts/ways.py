"""Checks that each list of docs/develop/ways.md is a way through the code, from top to bottom (for check_names.py).

An entry is `path/file.c:function` and a sentence. The function of each entry names that of the next one (it calls, assigns
or passes it), or the next entry ends with a hop, which is one of these in brackets:
  from `f`, from `f` under `g`    f names the function, and g names f. The last one must be reached: it is an earlier entry, or an
                                  earlier entry or its sentence names it. Words may come first: (then, from `f`).
  through `x->m`                  the entry before uses a member m, and some file assigns the function to a member m;
  through `x->m`, in `path`       or a table of that file has it among its values;
  through `x->m`, in `path:f`     or f has a statement with both.
  over the link                   the entry before sends, and another program has the function as an `on_frame`.
A file appears once in a list, or in entries that follow each other. A sentence names only functions that its entry names.
"""
import re

import source_tree

PAGE = "docs/develop/ways.md"
ENTRY = re.compile(r"^[ \t]*(\d+)\.[ \t]+(.*(?:\n[ \t]+(?!\d+\.)\S.*)*)", re.M)  # matches an entry of a list, with its continued lines
BULLET = re.compile(r"^[ \t]*[-*+][ \t]+(.*)", re.M)
WAY = re.compile(r"`([^`:\s]+):(\w+)`\s+(\S.*)", re.S)  # matches `path/file.c:function` and a sentence
MENTION = re.compile(r"`([^`:\s]+/[^`:\s]+):(\w+)`")
HOP = re.compile(r"\(([^()]*)\)\.?$")
FROM = re.compile(r"(?:[a-z][a-z ]*, )?from (`[^`]+`(?: under `[^`]+`)*)")
THROUGH = re.compile(r"through `[^`]*(?:->|\.)(\w+)`(?:, in `([^`:]+)(?::(\w+))?`)?")
LINK = "over the link"
PROGRAMS = ("head", "worker", "gateway", "cli")
SOURCES = {".c", ".h", ".cu", ".cuh"}


class Code:
    """Holds the sources below a root, without comments."""

    def __init__(self, root):
        self.root, self.texts, self.found = root, {}, {}

    def text(self, file):
        if file not in self.texts:
            text = (self.root / file).read_text(errors="replace") if (self.root / file).is_file() else ""
            self.texts[file] = source_tree.without_comments_rust(text) if file.endswith(".rs") else source_tree.without_comments_c(text)
        return self.texts[file]

    def definitions(self, file):
        """Returns function -> [(where its body begins, whether the function is private to this file)]."""
        if file not in self.found:
            text, found = self.text(file), {}
            for m in (re.finditer(r"\bfn\s+(\w+)", text) if file.endswith(".rs") else source_tree.DEFINITION.finditer(text)):
                name, begin = (m[1], text.find("{", m.end())) if file.endswith(".rs") else (m[2], m.end() - 1)
                if begin >= 0:
                    found.setdefault(name, []).append((begin, file.endswith((".c", ".cu")) and "static" in m[1].split()))
            self.found[file] = found
        return self.found[file]

    def body(self, file, function):
        """Returns the text between the braces of a function. With several definitions, it returns the text of all of them."""
        text = self.text(file)
        return "\n".join(text[i:source_tree.closing(text, i)] for i, _ in self.definitions(file).get(function, ()))

    def outside(self, file):
        """Returns the text outside of all function bodies."""
        text = self.text(file)
        for i in (i for rows in self.definitions(file).values() for i, _ in rows):
            end = source_tree.closing(text, i)
            text = text[:i] + " " * (end - i) + text[end:]
        return text

    def sees(self, file, what):
        """Returns whether a name in the file can mean the function. The function must not be private to another file, and this file
        must not define the name itself."""
        where, function = what
        return file == where or (function not in self.definitions(file) and
                                 not any(own for _, own in self.definitions(where).get(function, ())))

    def names(self, by, what):
        """Returns whether the function `by` names the function `what`; each is (file, function). A member of the same name does not
        count."""
        return self.sees(by[0], what) and re.search(rf"(?<![\w.])(?<!->){what[1]}\b", self.body(*by)) is not None

    def uses(self, by, member):
        return re.search(rf"(?:->|\.){member}\b", self.body(*by)) is not None

    def puts(self, what, member):
        """Returns whether a file assigns the function to a member of that name."""
        put = re.compile(rf"(?:->|\.){member}\s*=\s*&?{what[1]}\b")
        files = [p.as_posix() for p in source_tree.files(self.root, SOURCES) if p.parts[0] not in ("tests", "bench")]
        return any(put.search(self.text(f)) and self.sees(f, what) for f in files)


def mentions(entry):
    """Returns the functions that the sentence of an entry names with their files, outside of its hop."""
    return [m.groups() for m in MENTION.finditer(HOP.sub("", entry[2]))]


def mentioned(entries, i, code):
    """Returns [(function, whether the sentence is true for it)] of the sentence of entry i. The entry must call a named function;
    for the first entry, a caller is also allowed."""
    asked, out = [entries[i][:2]], []
    for what in mentions(entries[i]):
        fine = what in asked or any(code.names(by, what) for by in asked) or (i == 0 and code.names(what, entries[0][:2]))
        asked += [what] if fine else []
        out.append((what, fine))
    return out


def from_holds(chain, entries, i, code):
    """Returns whether each function of the chain names the previous function (the first one names that of entry i), and the last
    function is reached."""
    what = entries[i][:2]
    for word in re.findall(r"`([^`]+)`", chain):
        file, colon, function = word.rpartition(":")
        earlier = [e[:2] for e in entries[:i] if e[1] == function]
        by = (file, function) if colon else earlier[-1] if earlier else (what[0], function)
        if not code.names(by, what):
            return False
        what = by
    reached = [e[:2] for e in entries[:i]]
    said = [what for j in range(i) for what, fine in mentioned(entries, j, code) if fine]
    return what in reached + said or any(code.names(by, what) for by in reached)


def through_holds(hop, entries, i, code):
    (member, file, function), what = hop, entries[i][:2]
    if i == 0 or not code.uses(entries[i - 1][:2], member):
        return False
    if function:
        return code.sees(file, what) and any(re.search(rf"\b{member}\b", s) and re.search(rf"\b{what[1]}\b", s)
                                             for s in code.body(file, function).split(";"))
    if file:
        return code.sees(file, what) and re.search(rf"[{{,]\s*{what[1]}\s*[,}}]", code.outside(file)) is not None
    return code.puts(what, member)


def program(entries):
    """Returns the program of the last of the entries. Files of no program belong to the program of the previous entry."""
    return next((top for top in (e[0].split("/")[0] for e in reversed(entries)) if top in PROGRAMS), None)


def link_holds(entries, i, code):
    before, there = entries[i - 1][:2] if i else None, program(entries[i:i + 1])
    return before and there not in (None, program(entries[:i])) and code.puts(entries[i][:2], "on_frame") and \
        ("bus_send" in (before[1], *re.findall(r"\bbus_send\b", code.body(*before))) or code.uses(before, "send"))


def hop_fault(hop, entries, i, code):
    """Returns the fault of a hop to entry i, or None when the hop is right."""
    function, here = entries[i][1], program(entries[i:i + 1])
    if hop == LINK:
        return None if link_holds(entries, i, code) else f"{function} is not reached over the link"
    if i and here and program(entries[:i]) not in (None, here):
        return f"{function} is in another program, and the hop is not '{LINK}'"
    chain, through = FROM.fullmatch(hop), THROUGH.fullmatch(hop)
    if not chain and not through:
        return f"the hop to {function} is none of those that can be checked: ({hop})"
    if chain and from_holds(chain[1], entries, i, code) or through and through_holds(through.groups(), entries, i, code):
        return None
    return f"the hop to {function} is not by {' '.join(re.findall(r'`([^`]+)`', hop))}"


def check_way(title, entries, code):
    bad, seen = [], []
    for i, (file, function, sentence) in enumerate(entries):
        if seen and file != seen[-1] and file in seen:
            bad.append(f"'{title}' comes back to {file} at {function}")
        seen.append(file)
        bad += [f"'{title}': {function} has nothing to do with {a}:{b}" for (a, b), fine in mentioned(entries, i, code) if not fine]
        hop = HOP.search(sentence)
        fault = hop_fault(" ".join(hop[1].split()), entries, i, code) if hop else None
        bad += [f"'{title}': {fault}"] if fault else []
        if i > 0 and not hop and not code.names(entries[i - 1][:2], (file, function)):
            bad.append(f"'{title}': {entries[i - 1][1]} does not name {function}, and no hop says how it is reached")
    return bad


def check_ways(root):
    page, bad, code = root / PAGE, [], Code(root)
    if not page.exists():
        return [f"there is no {PAGE}"]
    begin, *parts = re.split(r"^## ", page.read_text(), flags=re.M)
    bad += [f"a list stands before the first section: {m[0].strip()[:40]}" for m in (*ENTRY.finditer(begin), *BULLET.finditer(begin))
            if MENTION.search(m[0])]
    for part in parts:
        title, entries = part.split("\n", 1)[0], []
        for m in ENTRY.finditer(part):
            way = WAY.fullmatch(m[2])
            if not way or int(m[1]) != len(entries) + 1:
                bad.append(f"'{title}': {m[1]}. is not the next number with `path/file.c:function` and a sentence")
            else:
                entries.append((way[1], way[2], way[3].strip()))
        bad += check_way(title, entries, code)
        bad += [] if entries else [f"'{title}' has no entry"]
        bad += [f"'{title}': an entry has a number, and no bullet: {m[1][:40]}" for m in BULLET.finditer(part)]
    return [f"{PAGE}: {line}" for line in bad + ([] if parts else ["it has no section"])]
