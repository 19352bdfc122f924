"""Reads the arrows of C and CUDA between rooms (rooms.py defines a room).

A room has an arrow to a room whose header it includes. It also has an arrow to a room whose source defines a function or data for
others, when it names that function or data: in a call, as an argument, in a table, or in a macro or an inline function of its
header. A name counts when the compiler resolves it to the other room's definition:
- the file declares it, or a header does that the file reads (a header may rely on those that its readers read, too); a call always counts;
- the file and the headers that it reads do not define the name themselves;
- it is not behind '.' or '->', and no tag; and unless it is called, the statement of the top level has no variable of that name.
Several sources may define one name (a build for each machine, or a replacement). Then the source with the stem of the declaring
header is meant; else each source in the header's folder; else each source that reads the header; else all of them.
"""
import re
from collections import defaultdict

import c_statements
import source_tree
from rooms import Arrows, stem

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)
# NAME includes the word before a tag, so that tags do not match the names that are looked for.
NAME = re.compile(r"(?<![\w.])(?<!->)(?:(?:struct|union|enum)\s+)?[A-Za-z_]\w*")
CALLED = re.compile(r"(?<![\w.])(?<!->)([A-Za-z_]\w*)\s*(?:<<<[^;]*?>>>\s*)?\(")
QUALIFIER = r"(?:const|restrict|__restrict__|__restrict)"
VARIABLE = re.compile(r"\b(?!(?:return|else|case|goto|sizeof|do|throw|new|delete|and|or|not)\b)\w+"
                      rf"\s+(?:[*&]+(?:{QUALIFIER}\s+)?)?(?<![\w.])([A-Za-z_]\w*)(?=\s*[=;,)\[])")
POINTER = re.compile(r"\w[\s*]+\(\*(?:const\s+)?([A-Za-z_]\w*)(?:\[\w*\])?\)\s*\(")
EXTERN = re.compile(r"\bextern\b[^;{}]*;?")
SOURCES = (".c", ".cu")


class Place:
    """Holds one statement of the top level, or the body of a macro, and the names in it."""

    def __init__(self, text, shadowed=frozenset()):
        self.text, self.seen = text, None
        self.names = set(NAME.findall(text)) - shadowed

    def means(self, name, is_declared):
        """Returns whether a name in the statement means the function or data of this name, and not a variable of the statement."""
        if self.seen is None:
            local = EXTERN.sub(" ", self.text)
            self.seen = set(CALLED.findall(self.text)), set(VARIABLE.findall(local)), set(POINTER.findall(local))
        called, variables, pointers = self.seen
        return name not in pointers and (name in called or is_declared and name not in variables)


class File:
    """Holds the includes, declarations, definitions and names of one file."""

    def __init__(self, path, text):
        self.is_source = path.endswith(SOURCES)
        self.includes = [m[1] or m[2] for m in INCLUDE.finditer(source_tree.without_comments_c(text, strings=True))]
        self.macros, self.text = c_statements.macros(source_tree.without_comments_c(text))
        self.declared, self.shared = set(), set()
        self.own = {m.name for m in self.macros if m.name not in NAME.findall(m.body)}
        self.places = [Place(m.body, set(m.parameters)) for m in self.macros]

    def read(self, macros):
        """Reads the statements. macros: name -> Macros that expand to statements."""
        expander = c_statements.Expander(macros)
        text = expander.top(self.text)
        self.declared |= c_statements.local_declarations(text)
        for s in c_statements.statements(text):
            kind = s.kind
            if kind == "shared" and not self.is_source and not re.search("[{=]", s.text):
                kind = "declared"  # the statement is such as "function_type a, b;"
            {"declared": self.declared, "shared": self.shared, "own": self.own}[kind].update(s.names)
            if kind != "declared" or self.is_source:
                self.places.append(Place(expander.inside(s.text)))
        self.shared.discard("main")


def closures(files):
    """Returns path -> the files that the file reads, including itself."""
    out = {}
    for path in files:
        seen, todo = {path}, [path]
        while todo:
            fresh = {i for i in files[todo.pop()].includes if i in files} - seen
            seen |= fresh
            todo += fresh
        out[path] = seen
    return out


def read_files(texts):
    """Returns (path -> File, path -> the files that it reads)."""
    files = {path: File(path, text) for path, text in texts.items()}
    reads = closures(files)
    for path, f in files.items():
        macros = defaultdict(list)
        for m in (m for r in sorted(reads[path]) for m in files[r].macros):
            macros[m.name].append(m)
        f.read(macros)
    return files, reads


def homes(sources, headers, reads):
    """Chooses, among several sources that define a name, those that the declaring headers mean."""
    stems, folders = {stem(h) for h in headers}, {h.rpartition("/")[0] for h in headers}
    for choice in ([s for s in sources if stem(s) in stems], [s for s in sources if s.rpartition("/")[0] in folders],
                   [s for s in sources if reads[s] & headers]):
        if choice:
            return choice
    return sources


def tables(files, reads):
    """Returns (declaring files by name, defining sources by name, and by path the files whose declarations that file sees)."""
    declared, defined, sees = defaultdict(set), defaultdict(set), {path: set(seen) for path, seen in reads.items()}
    for path, f in files.items():
        for name in f.declared:
            declared[name].add(path)
        for name in f.shared if f.is_source else ():
            defined[name].add(path)
        for header in reads[path]:
            if files[header].places:
                sees[header] |= reads[path]
    return declared, defined, sees


def c_arrows(texts):
    """Returns the arrows of C and CUDA. texts: path -> the file's text."""
    out, (files, reads) = Arrows(), read_files(texts)
    declared, defined, sees = tables(files, reads)
    known = set(defined)
    of_headers = {path: (f.own | f.shared) & known for path, f in files.items() if not f.is_source}
    for path, f in files.items():
        for header in f.includes:
            if header in texts:
                out.add(stem(path), stem(header), f"includes {header}")
        mine = (f.own | f.shared).union(*(of_headers[r] for r in reads[path] if r in of_headers))
        for place in f.places:
            for name in (place.names & known) - mine:
                seen = declared[name] & sees[path]
                if place.means(name, is_declared=bool(seen)):
                    rooms = {stem(home) for home in homes(sorted(defined[name]), seen & of_headers.keys(), reads)}
                    for room in rooms:
                        out.add(stem(path), room, f"names {name}", instead=rooms - {room})
    return out


def read_c(root):
    """Returns path -> text of the C and CUDA sources and headers of every folder except tests/."""
    paths = (p for p in source_tree.files(root, source_tree.C_SUFFIXES) if p.parts[0] != "tests")
    return {p.as_posix(): (root / p).read_text(errors="replace") for p in paths}
