"""Splits C and CUDA into the statements of their top level: the names that each statement declares or defines, and the text that may
use other names.

The script is not a compiler. It follows braces and #if, enters extern "C" and namespaces, and expands macro calls that contain
declarations or definitions or make a name. It does not see a function whose name is made by a macro in a header that several
sources compile (ISA_FN).
"""
import re
from collections import namedtuple

# A Statement has a kind, names and a text. kind: "declared" (a prototype, extern data), "shared" (defined for other files) or "own" (for this file
# only). names: the names that the statement declares or defines. text: the whole statement, without the body of a type.
Statement = namedtuple("Statement", "kind names text")
Macro = namedtuple("Macro", "name parameters body")

IF, ELSE, ENDIF = MARKS = "\x01\x02\x03"
TOKEN = re.compile(f"[{{}};{MARKS}]")
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)((?:[^\n\\]|\\.|\\\n)*)", re.M)
DEFINE = re.compile(r"\s*(\w+)(?:\(([^)]*)\))?(.*)", re.S)
IN_BRACKETS = r"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"  # brackets nested up to three deep
CALL = re.compile(r"\b([A-Za-z_]\w*)" + IN_BRACKETS)
CALL_IN_COLUMN = re.compile("^" + CALL.pattern, re.M)
SEE_THROUGH = re.compile(r"\b(?:extern|(namespace)(?:\s+(\w+))?)\s*$")  # matches the text before the brace of extern "C" or of a namespace
ATTRIBUTE = re.compile(r"\b(?:__attribute__|__launch_bounds__|__declspec|__align__|alignas|_Alignas)\s*" + IN_BRACKETS)
TYPE = re.compile(r"\s*(?:(?:static|const|extern)\s+)*(?:struct|union|enum|class)\b[^(=]*$")
NO_OBJECT = re.compile(r"\s*(?:typedef|using)\b|\s*(?:struct|union|enum|class)\s+\w+\s*$")
OWN = re.compile(r"\b(?:static|inline|template|constexpr|__device__|__forceinline__)\b")
NO_TYPE = {"if", "for", "while", "switch", "return", "sizeof", "do", "else", "case", "goto", "typeof", "__typeof__", "defined", "void"}
LOCAL = re.compile(r"\b([A-Za-z_]\w*)\s+\**([A-Za-z_]\w*)\s*\(|\bextern\b[^;{}()]*?\b([A-Za-z_]\w*)\s*[;\[]|\bextern\b[^;{}()]*\(\*(\w+)\)")


def local_declarations(text):
    """Returns the names of functions and extern data that a text declares anywhere. A few wrong names are harmless."""
    return {m[2] or m[3] or m[4] for m in LOCAL.finditer(text) if m[1] not in NO_TYPE}


def macros(text):
    """Returns ([Macro], text). The text has a mark for each #if, #else and #endif, and no other directive."""
    found = []

    def mark(m):
        if m[1] == "define" and (d := DEFINE.match(m[2])):
            found.append(Macro(d[1], tuple(re.findall(r"\w+", d[2] or "")), d[3].replace("\\\n", " \n")))
        sign = IF if m[1].startswith("if") else ELSE if m[1] in ("else", "elif") else ENDIF if m[1] == "endif" else " "
        return sign + re.sub(r"[^\n]", " ", m[0])[1:]
    marked = DIRECTIVE.sub(mark, text)
    return found, marked


class Expander:
    """Expands macro calls. macros: name -> the Macros of this name. When #if chooses between several Macros, all count."""

    def __init__(self, macros):
        def named(wanted):
            names = [name for name, found in macros.items() if any(wanted(m) for m in found)]
            return re.compile(rf"\b({'|'.join(names)})\b") if names else None
        self.macros = macros
        self.static = named(lambda m: not m.parameters and re.search(r"\bstatic\b", m.body))
        # A name that appears in no text is made with ##, or is passed to a macro that is a parameter.
        makers = named(lambda m: "##" in m.body or any(p + "(" in m.body for p in m.parameters))
        self.makers = re.compile(makers.pattern + IN_BRACKETS) if makers else None

    def expand(self, call, left=5):
        """Returns the expansion of a match of CALL."""
        if call[1] not in self.macros or left == 0:
            return call[0]
        values, texts = [a.strip() for a in re.split(r",(?![^()]*\))", call[2])], []
        for macro in self.macros[call[1]]:
            value = dict(zip(macro.parameters, values))
            text = re.sub(r"\w+", lambda m: value.get(m[0], m[0]), macro.body)
            texts.append(CALL.sub(lambda m: self.expand(m, left - 1), re.sub(r"\s*##\s*", "", text)))
        return " ".join(texts)

    def top(self, text):
        """Returns the text with the calls in its first column expanded, since they may be declarations or definitions, and with
        words for "static" replaced."""
        text = self.static.sub("static", text) if self.static else text
        return CALL_IN_COLUMN.sub(self.expand, text)

    def inside(self, text):
        """Returns the text in which the calls that make names are expanded."""
        return self.makers.sub(self.expand, text) if self.makers else text


def function_name(head):
    """Returns the name of the function that a statement's head declares, or None. A macro call in front of the declaration is
    skipped."""
    at = 0
    while m := re.compile(r"\b([A-Za-z_]\w*)\s*\(\s*([^\s])?").search(head, at):
        if m[2] == "*":  # the head declares a pointer to a function, or a function that returns one
            inner = re.compile(r"\*+\s*([A-Za-z_]\w*)\s*\(").match(head, m.end() - 1)
            return inner[1] if inner else None
        if m[1] not in NO_TYPE and head[:m.start()].strip(" \t\n*&") and "=" not in head[:m.start()]:
            return m[1]
        depth, at = 1, m.end(1) + head[m.end(1):].index("(") + 1
        while depth and at < len(head):
            depth += (head[at] == "(") - (head[at] == ")")
            at += 1
    return None


def data_names(text):
    """Returns the variables of a declaration such as "int a, *b[3] = x" or "int (*c)(void)"."""
    pointers = re.findall(r"\(\s*\*+\s*(?:const\s+)?([A-Za-z_]\w*)", text.split("=", 1)[0])
    if pointers:
        return pointers
    while text != (less := re.sub(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}", " ", text)):
        text = less
    words = [re.findall(r"[A-Za-z_]\w*", part.split("=", 1)[0]) for part in text.split(",")]
    return [w[-1] for w in words if w]


def statement(head, body, tail, hidden):
    """Returns the Statement made of head, body and tail, or None. hidden: the statement is in a namespace without a name."""
    head = ATTRIBUTE.sub(" ", head)
    kind = "own" if hidden or OWN.search(head.split("(", 1)[0].split("=", 1)[0]) else "shared"
    if NO_OBJECT.match(head) and not (body and TYPE.match(head)):
        return None
    if body and TYPE.match(head):
        names = data_names(ATTRIBUTE.sub(" ", tail))
        return Statement(kind, names, tail) if names else None
    if name := function_name(head):
        return Statement(kind if body or kind == "own" else "declared", [name], head + body + tail)
    if not re.match(r"\s*\w+[\s*&]+\(?[\s*]*\w", head):  # the head is a macro call, or an assertion
        return Statement("own", [], head + body + tail)
    if re.match(r"\s*extern\b", head) and not body and "=" not in head:
        kind = "declared"
    return Statement(kind, data_names(head), head + body + tail)


class Reader:
    """Cuts a text into the statements of its top level."""

    def __init__(self, text):
        self.text, self.found, self.around = text, [], []  # around: for each open extern "C" or namespace, whether it hides names
        self.begin(0)

    def begin(self, at):
        self.start, self.open, self.closed = at, None, None

    def head(self, end):
        return re.sub(f"[{MARKS}]", " ", self.text[self.start:end])

    def end(self, at):
        """Ends the statement before `at` and begins the next statement there."""
        body, after = self.open or at, self.closed or at
        head = self.head(body)
        s = head.strip() and statement(head, self.text[body:after], self.text[after:at], any(self.around))
        self.found += [s] if s else []
        self.begin(at + 1)

    def opens(self, at):
        """Handles an opening brace at the top level. Returns False when it belongs to extern "C" or a namespace."""
        see = SEE_THROUGH.search(self.head(at)) if self.open is None else None
        if see:
            self.around.append(see[1] is not None and see[2] is None)
            self.begin(at + 1)
            return False
        self.open = self.open or at
        return True

    def closes(self, at):
        """Handles the closing brace of the top level. A function ends here; a type and data end at a semicolon."""
        self.closed = self.closed or at + 1
        head = ATTRIBUTE.sub(" ", self.head(self.open))
        if function_name(head) and not TYPE.match(head):
            self.end(at)

    def read(self):
        depth, conditions = 0, []
        for m in TOKEN.finditer(self.text):
            token, at = m[0], m.start()
            if token == IF:
                conditions.append(depth)
            elif token == ELSE:
                depth = conditions[-1] if conditions else depth
            elif token == ENDIF:
                conditions[-1:] = []
            elif token == "{":
                depth += 1 if depth or self.opens(at) else 0
            elif token == "}" and depth:
                depth -= 1
                if depth == 0:
                    self.closes(at)
            elif token == "}":
                self.around[-1:] = []
                self.begin(at + 1)
            elif depth == 0:
                self.end(at)
        return self.found


def statements(text):
    """Returns the Statements of a text from macros()."""
    return Reader(text).read()
