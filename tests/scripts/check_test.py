"""Tests that the checks of scripts/ find faults: each rule is tested with a small tree that breaks it."""
import contextlib
import importlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_size  # noqa: E402

TABLE = ("# comment\ncommon/base:\ncommon/loop: common/base\nproto: common/base\nproto/codec: proto\nhead: common/base proto\n"
         "head/a: head/b\nhead/b: common/base\ncli: common/* cli/*\ncli/x:\ntests: *\n")


class Tree:
    """A temporary source tree. run() runs a check on it and returns (exit status, output)."""

    def __init__(self, files):
        self.files = {"scripts/layers.txt": TABLE, **files}

    def run(self, script):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in self.files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            out = io.StringIO()
            # The check runs in this process, because a start of Python takes longer than the check of a small tree.
            with mock.patch.object(sys, "argv", [script, "--root", folder]), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                status = importlib.import_module(script.removesuffix(".py")).main()
        return status, out.getvalue()


class LayersCase(unittest.TestCase):
    def check(self, files, *wanted):
        status, out = Tree(files).run("check_layers.py")
        self.assertEqual(status, 1 if wanted else 0, out)
        for text in wanted:
            self.assertIn(text, out)


class Layers(LayersCase):
    def test_allowed(self):
        self.check({"head/a.c": '#include "head/a.h"\n#include "proto/m.h"\n#include <stdio.h>\n',
                    "common/loop/b.c": "#include <uv.h>\n", "proto/codec/c.c": '#include "proto/x.pb-c.h"\n',
                    "tests/unit/head/a_test.c": '#include "head/a.c"\n#include <zmq.h>\n',
                    "head/b.c": '/* #include "gateway/x.h" */\n// #include <uv.h>\n'})

    def test_sibling(self):
        self.check({"head/a.c": "\n" '#include "common/loop/b.h"\n'}, "head/a.c:2: head may not include common/loop/b.h")

    def test_unknown_folder(self):
        self.check({"head/a.c": '#include "a.h"\n'}, "head/a.c:1:")

    def test_wrapped_libraries(self):
        for header in ("uv.h", "zmq.h", "hiredis/hiredis.h", "llhttp.h", "curl/curl.h", "cuda_runtime.h", "nccl.h",
                       "yaml.h", "protobuf-c/protobuf-c.h"):
            self.check({"head/a.c": f"# include <{header}>\n"}, f"head/a.c:1: {header} is wrapped by")

    def test_generated_code(self):
        self.check({"head/a.c": '#include "proto/step.pb-c.h"\n'}, "is wrapped by proto")

    def test_cycle(self):
        self.check({"scripts/layers.txt": "a: b\nb: a\n"}, "a cycle")

    def test_typo_in_table(self):
        self.check({"scripts/layers.txt": "a: bb\nb:\n"}, "unknown folder bb")

    def test_cmake(self):
        common = {"common/CMakeLists.txt": "cox_folder(base FOLDERS base DEPS m)\ncox_folder(net FOLDERS loop DEPS base)\n"}
        self.check({**common, "cli/CMakeLists.txt": "cox_folder(cli DEPS net base)\n"})
        self.check({**common, "head/CMakeLists.txt": "cox_folder(head DEPS net base)\n"}, "head may not link net")

    def test_folders_below(self):
        # A folder's own row counts, not its parent's. A row that names no other top folder also gets the folders of its top folder's row. A star
        # names all folders below.
        self.check({"head/a/x.c": '#include "head/b/y.h"\n#include "proto/m.h"\n', "cli/main.c": '#include "cli/x/z.h"\n',
                    "cli/x/z.c": '#include "common/loop/l.h"\n'})
        self.check({"head/b/x.c": '#include "proto/m.h"\n'}, "head/b may not include proto/m.h")
        self.check({"head/b/x.c": '#include "head/a/y.h"\n'}, "head/b may not include head/a/y.h")
        self.check({"cli/x/z.c": '#include "cli/up.h"\n'}, "cli/x may not include cli/up.h")

    def test_circle_by_includes(self):
        pair = {"head/a.h": '#include "head/b.h"\n', "head/b.h": "int b(void);\n", "head/b.c": "int b(void)\n{\n    return 1;\n}\n"}
        self.check(pair)
        self.check({**pair, "head/b.c": '#include "head/a.h"\n'}, "a circle of 2 files: head/a head/b", "head/b -> head/a: includes head/a.h")

    def test_circle_by_calls(self):
        low = {"head/kit.h": "int first(int n);\nint second(int n);\n",
               "head/first.c": '#include "head/kit.h"\nint first(int n)\n{\n    return n ? second(n - 1) : 0;\n}\n'}
        self.check({**low, "head/second.c": "int second(int n)\n{\n    return n;\n}\n"})
        self.check({**low, "head/second.c": "int second(int n)\n{\n    return first(n);\n}\n"},
                   "head/first -> head/second: names second", "head/second -> head/first: names first")
        # A static function of the same name, a member, a comment and a string are not calls of the other file's function.
        self.check({**low, "head/second.c": "static int first(int n)\n{\n    return n;\n}\nint second(int n)\n{\n    return first(n);\n}\n"})
        self.check({**low, "head/second.c": 'int second(int n)\n{\n    return g->first(n) + h("first()"); /* first() */\n}\n'})

    def test_circle_that_is_allowed(self):
        circle = {"head/a.h": '#include "head/b.h"\n', "head/b.h": '#include "head/a.h"\n'}
        self.check({**circle, "scripts/circles.txt": "head/a head/b: a tree and its nodes\n"})
        self.check({**circle, "scripts/circles.txt": "head/a head/b: \n"}, "no reason")
        self.check({"scripts/circles.txt": "head/a head/b: a tree and its nodes\n"}, "not there any more")

    def test_call_against_an_arrow(self):
        # common/base has the declaration and head has the function, so no include shows the arrow.
        self.check({"common/base/x.h": "int up(void);\n", "head/x.c": "int up(void)\n{\n    return 1;\n}\n",
                    "common/base/y.c": "int y(void)\n{\n    return up();\n}\n"}, "common/base may not call head/x (names up)")

    def test_circle_of_rust_and_python(self):
        self.check({"text/src/lib.rs": "mod a;\nmod b;\n", "text/src/a.rs": "use crate::b::B;\n", "text/src/b.rs": "pub struct B;\n"})
        self.check({"text/src/lib.rs": "mod a;\nmod b;\n", "text/src/a.rs": "use crate::b::{B, C};\n", "text/src/b.rs": "use super::a;\n"},
                   "text/src/a.rs -> text/src/b.rs")
        self.check({"bench/a.py": "import b\n", "bench/b.py": "from a import x\n"}, "bench/a.py -> bench/b.py: import b")

# Folder head/b must not name anything of head/a, but its kit.h declares functions and data of head/a.
UP = {"head/a/x.c": "int up_data;\nconst struct row up_rows[] = {{1}, {2}};\nint up(void)\n{\n    return 1;\n}\n",
      "head/b/kit.h": "#define CALL(f) f()\nint up(void);\nextern int up_data;\nextern const struct row up_rows[];\n"}
KIT = '#include "head/b/kit.h"\n'


def returns(text, name="y"):
    return f"int {name}(void)\n{{\n    return {text};\n}}\n"


class Arrows(LayersCase):
    """Tests that every kind of arrow between C files is found. Each tree has one fault."""

    def refused(self, name, text, **more):
        self.check({**UP, "head/b/y.c": KIT + text, **more}, f"head/b/y: head/b may not call head/a/x (names {name})")

    def test_allowed(self):
        self.check({**UP, "head/b/y.c": KIT + returns("1")})

    def test_a_function_that_is_not_called(self):
        for text in ("const struct t t = {.gather = up};\n", "const struct t t[] = {{1, up}};\n",
                     "int (*y)(void) = up;\n", "int (*y)(void) = &up;\n", returns("run(1, up)"), returns("(up)()"), returns("g.h = up"),
                     "REGISTER(up);\n", "void (*const y[])(void) = {up};\n", "int y(void)\n{\n    extern int up(void);\n    return run(up);\n}\n",
                     "#define GO up\n", "#define GO(n) run(n, up)\n", "#define up(n) up(n, 1)\n" + returns("up(1)"),
                     "void y(struct t *t)\n{\n    t->gather = up;\n}\n"):
            self.refused("up", text)

    def test_data(self):
        for text in (returns("up_data"), returns("&up_data"), returns("2 * up_data"), "int *const y = &up_data;\n", "#define GO up_data\n",
                     "int y(void)\n{\n    extern int up_data;\n    return up_data;\n}\n", "_Static_assert(sizeof(up_data) == 4);\n"):
            self.refused("up_data", text)
        self.refused("up_rows", returns("up_rows[1].n"))
        self.refused("up_rows", "const struct t t = {.rows = up_rows, .n = 2};\n")
        self.check({"head/a/x.c": "int (*up)(void);\n", "head/b/y.c": "extern int (*up)(void);\n" + returns("up()")}, "(names up)")

    def test_a_name_that_is_none_of_the_other_file(self):
        for text in ("static int up_data;\n" + returns("up_data"), returns("g->up + h.up + j->up_data"),
                     returns('h("up", up_x, \'u\') /* up */'),
                     "int y(int up)\n{\n    return up;\n}\n", "int y(void)\n{\n    int up = 1;\n    return up;\n}\n",
                     "int y(const struct t *up, int n)\n{\n    return f(up, n);\n}\n", "int y(int (*up)(void))\n{\n    return up();\n}\n",
                     "int y(void)\n{\n    for (char *up = s; *up; up++)\n        f(up);\n    return 0;\n}\n",
                     "struct t {\n    int up;\n    int (*up_data)(void);\n};\n", "struct up;\nint y(struct up *u);\n",
                     "#define M(up) (up)\n",
                     "static const struct t t = {.up = 1, .up_data = 2};\n"):
            self.check({**UP, "head/b/y.c": KIT + text})
        # No header that the file includes declares the name, so it is the file's own.
        self.check({**UP, "head/b/y.c": "enum e {\n    up = 1\n};\n" + returns("up")})

    def test_the_text_of_a_header(self):
        for text in ("static inline " + returns("up()"), "#define GO() up()\n", "#define GO \\\n    up_data\n",
                     "static const struct t t = {up};\n"):
            self.check({**UP, "head/b/y.h": KIT + text}, "head/b/y: head/b may not call head/a/x (names up")
        # The file that includes the header has the declaration.
        self.check({**UP, "head/b/y.h": "#define GO() run(up)\n", "head/b/z.c": KIT + '#include "head/b/y.h"\n'},
                   "head/b/y: head/b may not call")
        self.check({**UP, "head/b/y.h": KIT + "struct t {\n    int up;\n};\nint y(int up);\ntypedef int up_fn(void);\n"})

    def test_names_that_macros_make(self):
        self.refused("up", "#define GO(a) f(a##p)\n" + returns("GO(u)"))
        self.refused("up", "#define ALL(do_) do_(up)\n#define EACH(f) {f},\nstruct t t[] = {ALL(EACH)};\n")
        self.check({"head/a/x.c": "#define TABLE(n) const struct t table_##n = {1}\nTABLE(one);\n",
                    "head/b/y.c": "extern const struct t table_one;\n" + returns("table_one.n")}, "(names table_one)")
        self.check({"head/a/x.c": "#define FN(n) int n(void)\nFN(up)\n{\n    return 1;\n}\n", "head/b/y.c": KIT + returns("up()"),
                    "head/b/kit.h": UP["head/b/kit.h"]}, "(names up)")
        # Both definitions count when #if chooses between them.
        self.refused("up", "#ifdef A\n#define ALL(do_) do_(up)\n#else\n#define ALL(do_) do_(z)\n#endif\n"
                     "#define E(f) {f},\nstruct t t[] = {ALL(E)};\n")

    def test_definitions(self):
        rest = {"head/b/y.c": KIT + returns("up()"), "head/b/kit.h": UP["head/b/kit.h"]}
        for text in ('extern "C" {\n    int up(void)\n    {\n        return 1;\n    }\n}\n', 'extern "C" int up(void)\n{\n}\n',
                     '#ifdef __cplusplus\nextern "C" {\n#endif\n' + returns("1", "up") + "#ifdef __cplusplus\n}\n#endif\n",
                     "int up(void) __attribute__((cold))\n{\n}\n", "int up(int (*f)(int))\n{\n}\n", "int up(void) { return 1; }\n",
                     "#if A\nint f(int a)\n{\n    if (a) {\n#else\nint f(void)\n{\n    if (b) {\n#endif\n    }\n}\n" + returns("1", "up"),
                     "namespace n {\nint up(void)\n{\n}\n}\n"):
            self.check({**rest, "head/a/x.cu": text}, "head/b may not call head/a/x (names up)")
        for text in ("static int up(void)\n{\n}\n", "namespace {\nint up(void)\n{\n}\n}\n",
                     "#define INLINE static inline\nINLINE int up(void)\n{\n}\n"):
            self.check({**rest, "head/a/x.cu": text})

    def test_a_name_with_several_definitions(self):
        one = {"head/b/kit.h": UP["head/b/kit.h"], "head/b/z.c": KIT + returns("up()", "z")}
        twins = {"head/b/p.c": KIT + returns("z()", "up"), "head/b/p2.c": KIT + returns("1", "up")}
        self.check({**one, **twins}, "a circle of 2 files: head/b/p head/b/z")
        # A definition in the .c of the header's name counts alone. Otherwise one definition that the table allows is enough.
        self.check({**one, "head/b/kit.c": returns("1", "up"), "head/a/x.c": returns("1", "up")})
        self.check({**one, "head/a/x.c": returns("1", "up"), "common/base/x.c": returns("1", "up")})
        # A static inline function in a header hides a name only from files that include this header.
        inline = {"head/b/t.h": "static inline " + returns("0", "up")}
        self.refused("up", returns("up()"), **inline)
        self.check({**UP, **inline, "head/b/y.c": '#include "head/b/t.h"\n' + returns("up()")})

    def test_a_circle_of_names(self):
        kit = {"head/b/kit.h": "int p(void);\nint q(void);\nextern int d, e;\n"}
        self.check({**kit, "head/b/p.c": KIT + returns("run(q)", "p"), "head/b/q.c": KIT + returns("run(p)", "q")},
                   "head/b/p -> head/b/q: names q", "head/b/q -> head/b/p: names p")
        self.check({**kit, "head/b/p.c": KIT + "int d;\n" + returns("e", "p"), "head/b/q.c": KIT + "int e;\n" + returns("d", "q")},
                   "head/b/p -> head/b/q: names e", "head/b/q -> head/b/p: names d")
        self.check({**kit, "head/b/p.c": KIT + returns("run(q)", "p"), "head/b/q.c": KIT + returns("1", "q")})

    def test_includes(self):
        self.check({**UP, "head/b/y.c": "#include <head/a/x.h>\n"}, "head/b/y.c:1: head/b may not include head/a/x.h")
        self.check({"head/b/a.h": "#include <head/b/b.h>\n", "head/b/b.h": "#include <head/b/a.h>\n"}, "a circle of 2 files")
        for text in ("#include H", '#include_next "head/b/kit.h"', '# import "head/b/kit.h"', '#include \\\n"head/b/kit.h"'):
            self.check({**UP, "head/b/y.c": f"{text}\n"}, "head/b/y.c:1: this include names no file")
        self.check({**UP, "head/b/y.c": 'const char *s = "/*";\n#include "head/a/x.h"\n'}, "head/b/y.c:2: head/b may not include")

    def test_folders_and_suffixes(self):
        for folder in ("head/new", "newtop", "common/loop/below"):
            self.check({f"{folder}/z.c": "int z;\n"}, f"folder {folder} has no row in scripts/layers.txt")
        self.check({"tests/new/z.c": "int z;\n", "tests/new/z.cpp": "int z;\n"})
        for suffix in ("hpp", "hh", "cc", "cxx", "inc", "inl", "def", "cpp"):
            self.check({f"head/b/z.{suffix}": ""}, f"head/b/z.{suffix}: C has the suffixes .c .cu .cuh .h")
        self.check({"tests/z.hpp": ""}, "tests/z.hpp: C has the suffixes")
        self.check({"head/b/z.txt": "int z;\n", "head/b/y.c": '#include "head/b/z.txt"\n'},
                   "head/b/y.c:1: head/b/z.txt is not read by this check")


class Imports(LayersCase):
    def test_allowed(self):
        self.check({"bench/p/a.py": '"""import b"""\nfrom . import b\nx = "from p import c"\n',
                    "bench/p/b.py": "import os, sys\nfrom json import c\n"})

    def test_circles(self):
        for a, b in (("import os, b", "import a"), ("from . import b", "from . import a"), ("from p.b import f", "from p.a import g"),
                     ("from p import b", "import p.a"), ("def f():\n    import b", "import a as c"),
                     ("from .b import f", "from ..p.a import (g,\n    h)"), ("importlib.import_module('b')", "import a")):
            self.check({"bench/p/a.py": a + "\n", "bench/p/b.py": b + "\n"}, "a circle of 2 files: bench/p/a.py bench/p/b.py")
        self.check({"scripts/a.py": "import b\n", "scripts/b.py": "import a\n"}, "a circle of 2 files")
        # The import means the module in the importer's folder.
        self.check({"bench/p/a.py": "import b\n", "bench/p/b.py": "", "bench/q/b.py": "import a\n", "bench/q/a.py": ""})

    def test_rust_alias(self):
        self.check({"text/src/lib.rs": "mod a;\nmod b;\n", "text/src/a.rs": "use crate as c;\nfn f() {\n    c::b::g()\n}\n",
                    "text/src/b.rs": "use crate::a::A;\n"}, "a circle of 2 files")


def function(lines, parameters="void"):
    return f"int f({parameters})\n{{\n" + "    g();\n" * (lines - 3) + "}\n"


class Size(unittest.TestCase):
    def check(self, files, *wanted):
        status, out = Tree(files).run("check_size.py")
        self.assertEqual(status, 1 if wanted else 0, out)
        for text in wanted:
            self.assertIn(text, out)

    def test_caps_are_inclusive(self):
        self.check({"head/a.c": function(80, "int a, int b, int c, int d, int e, int f, void (*g)(int, int)"),
                    "kernels/k.c": function(150), "head/a.h": "\n" * 200, "head/b.c": "\n" * 900,
                    "kernels/cpu/a_impl.h": "\n" * 900})

    def test_functions(self):
        self.check({"head/a.c": "struct s {\n    int a;\n};\n\n" + function(81)}, "head/a.c:5: f has 81 lines")
        self.check({"kernels/k.c": function(151)}, "f has 151 lines")
        self.check({"text/src/a.rs": "fn f<'a>(x: &'a str) -> char {\n" + "    g('{');\n" * 80 + "}\n"}, "f has 82 lines")
        self.check({"tests/a.py": "def f():\n" + "    g()\n" * 80}, "f has 81 lines")

    def test_parameters(self):
        self.check({"head/a.c": function(5, "int a, int b, int c, int d, int e, int f, int g, int h")},
                   "f has 8 parameters")

    def test_files(self):
        self.check({"head/a.h": "\n" * 201}, "head/a.h: 201 lines")
        self.check({"head/a.c": "\n" * 901}, "head/a.c: 901 lines")

    def test_folders(self):
        self.check({f"head/a{i}.c": "" for i in range(25)})
        self.check({f"head/a{i}.c": "" for i in range(26)}, "head: 26 source files")
        self.check({f"tests/a{i}.{s}": "" for i in range(26) for s in ("c", "py")})

    def test_folders_of_python(self):
        for folder in ("bench/python", "scripts"):
            self.check({f"{folder}/a{i}.py": "" for i in range(25)})
            self.check({f"{folder}/a{i}.py": "" for i in range(26)}, f"{folder}: 26 source files")

    def test_exception_needs_its_record(self):
        self.check({"proto/messages.h": "\n" * 300}, "which does not exist")

    def test_reading_c(self):
        text = ('static const char *s = "{(";\n#define M(x) \\\n    { x }\nextern "C" {\n'
                "static __attribute__((noinline)) enum status f(int a, int b)\n{\n    if (a) {\n    }\n}\n}\n"
                "static const struct t table[] = {{1}, {2}};\nvoid g(void)\n{\n}\n")
        found = [(name, line, lines, n) for name, line, lines, n in check_size.functions_c(text)]
        self.assertEqual(found, [("f", 5, 5, 2), ("g", 12, 3, 0)])


WAYS = {"docs/develop/ways.md": "## W\n\n1. `common/w.c:w` is all.\n", "common/w.c": "int w(void)\n{\n}\n"}  # this page of ways is correct


class Names(unittest.TestCase):
    def check(self, files, *wanted):
        status, out = Tree({**WAYS, **files}).run("check_names.py")
        self.assertEqual(status, 1 if wanted else 0, out)
        for text in wanted:
            self.assertIn(text, out)

    def test_paths_and_names(self):
        there = {"head/a.c": "static int one(void)\n{\n    return 1;\n}\n"}
        self.check({**there, "docs/p.md": "`head/a.c`, `head/a.c:one`, `a.c`, `tests/NAME_test.c`, `head/*.c`\n", "head/b.c": "/* a.c */\n"})
        self.check({**there, "docs/p.md": "`head/b.c`\n"}, "docs/p.md: there is no head/b.c")
        self.check({**there, "docs/p.md": "`head/a`, `head/`\n"})
        self.check({**there, "docs/p.md": "`head/b`\n"}, "docs/p.md: there is no head/b")
        self.check({**there, "docs/p.md": "`head/kv/`\n"}, "docs/p.md: there is no head/kv")
        self.check({**there, "docs/p.md": "`head/a.c:two`\n"}, "docs/p.md: head/a.c defines no two")
        self.check({**there, "docs/p.md": "(`head/a.c`, `one`), `head/a.*`, `a.*`\n"})
        self.check({**there, "docs/p.md": "(`head/a.c`, `two`)\n"}, "docs/p.md: head/a.c has no two")
        self.check({**there, "docs/p.md": "`head/b.*`, `b.*`\n"}, "docs/p.md: there is no head/b.*", "docs/p.md: there is no b.*")
        self.check({**there, "head/c.h": "/* See gone.c. */\n"}, "head/c.h: no file is called gone.c")

    def way(self, page, *wanted, **sources):
        files = {f"head/{n}.c": "".join(f"int {f}(void)\n{{\n    {text}\n}}\n" for f, text in functions)
                 for n, functions in sources.items()}
        self.check({**files, "docs/develop/ways.md": page}, *wanted)

    def test_a_way_goes_down(self):
        files = dict(a=[("a", "a2();"), ("a2", "b();")], b=[("b", "a();")])
        way = "## A request\n\n1. `head/a.c:a` begins.\n2. `head/a.c:a2` goes on.\n3. `head/b.c:b` ends.\n"
        self.way(way, **files)
        self.way(way + "4. `head/a.c:a` again.\n", "'A request' comes back to head/a.c at a", **files)
        self.way(way + "\n## Another one\n\n1. `head/a.c:a` again.\n", **files)

    def test_an_entry_has_its_form(self):
        files = dict(a=[("a", "b();")], b=[("b", "")])
        for second in ("2. head/b.c:b ends.", "2. `head/b.c` ends.", "2. `head/b.c:b`", "3. `head/b.c:b` ends."):
            self.way(f"## W\n\n1. `head/a.c:a` begins.\n{second}\n", f"'W': {second[0]}. is not the next number", **files)
        self.way("## W\n\n1. `head/a.c:a` begins.\n2. `head/b.c:other` ends.\n", "head/b.c defines no other", **files)

    def test_an_entry_names_the_next_one(self):
        way = "## W\n\n1. `head/a.c:a` begins.\n2. `head/b.c:b` ends{}.\n"
        for text in ("return b();", "x.run = b;", "run(x, b);", "x = (struct job){.run = b};"):
            self.way(way.format(""), a=[("a", text)], b=[("b", "")])
        for text in ("return c();", "return x->b();", "x.b = c;", 'say("b()"); /* b() */', "return bb();"):
            self.way(way.format(""), "'W': a does not name b", a=[("a", text)], b=[("b", "")])
            self.way(way.format(" (then, from `head/c.c:c`)"), a=[("a", text)], b=[("b", "")], c=[("c", "b();")],
                     *([] if " c" in text else ["the hop to b is not by head/c.c:c"]))
        self.way(way.format(" (over the link) at last"), "'W': a does not name b", a=[("a", "")], b=[("b", "")])
        # A call from another function of the same file does not count.
        self.way(way.format(""), "'W': a does not name b", a=[("a", ""), ("c", "b();")], b=[("b", "")])

    def test_a_hop_is_true(self):
        way = "## W\n\n1. `head/a.c:a` begins.\n2. `head/b.c:b` goes on{}.\n3. `head/c.c:c` ends{}.\n"
        files = dict(a=[("a", "ops->go(); c(); d();")], b=[("b", "x = (struct s){.go = b};")], c=[("c", "")], d=[("d", "b();")])
        through, back = " (through `ops->go`)", " (then, from `a`)"
        self.way(way.format(through, back), **files)
        self.way(way.format(" (through `ops->stop`)", back), "the hop to b is not by ops->stop", **files)
        self.way(way.format(through, " (then, from `b`)"), "the hop to c is not by b", **files)
        self.way(way.format(" (later, from `head/d.c:d`)", back), **files)
        self.way(way.format(through, " (later, from `head/d.c:d`)"), "the hop to c is not by head/d.c:d", **files)
        self.way("## W\n\n1. `head/a.c:a` begins (from `a`).\n", "the hop to a is not by a", **files)


def c(name, text="", before=""):
    return f"{before}int {name}(void)\n{{\n    {text}\n}}\n"


class Ways(unittest.TestCase):
    """Checks the hops and the form of docs/develop/ways.md. The class Names checks the names in an entry."""

    def way(self, files, entries, *wanted):
        page = "# Ways\n\n## W\n\n" + "".join(f"{i + 1}. {entry}.\n" for i, entry in enumerate(entries))
        self.page(files, page, *wanted)

    def page(self, files, page, *wanted):
        status, out = Tree({**files, **({"docs/develop/ways.md": page} if page else {})}).run("check_names.py")
        self.assertEqual(status, 1 if wanted else 0, out)
        for text in wanted:
            self.assertIn(text, out)

    def test_a_member_has_the_function(self):
        way = ["`head/a.c:a` begins", "`head/b.c:b` ends (through `x->go`)"]
        a = {"head/a.c": c("a", "x->go(x);")}
        for put in ("y->go = b;", "y.go = &b;", "struct s y = {.stop = w, .go = b};"):
            self.way({**a, "head/b.c": c("b"), "head/c.c": c("f", put)}, way)
        for put in ("y->going = b;", "y->go = bb;", "go = b;", "y->stop = b;", "/* y->go = b; */"):
            self.way({**a, "head/b.c": c("b"), "head/c.c": c("f", put)}, way, "'W': the hop to b is not by x->go")
        self.way({"head/a.c": c("a", "x->stop(x);"), "head/b.c": c("b", "y->go = b;")}, way, "the hop to b is not by x->go")
        # An assignment in a test does not count. An assignment in another file does not count for a static function, or if that file has its own
        # `b`.
        self.way({**a, "head/b.c": c("b"), "tests/c.c": c("f", "y->go = b;")}, way, "the hop to b is not by x->go")
        self.way({**a, "head/b.c": "static " + c("b"), "head/c.c": c("f", "y->go = b;")}, way, "the hop to b is not by x->go")
        self.way({**a, "head/b.c": c("b"), "head/c.c": "static " + c("b") + c("f", "y->go = b;")}, way, "the hop to b is not by x->go")

    def test_a_place_without_the_members_name(self):
        a = {"head/a.c": c("a", "x->go(x);")}
        way = ["`head/a.c:a` begins", "`head/b.c:b` ends (through `x->go`, in `head/c.c`)"]
        for text in ('static const struct s rows[] = {\n    {"/", b, 1},\n};\n', "struct s one = {b};\n"):
            self.way({**a, "head/b.c": c("b"), "head/c.c": text}, way)
        for text in ("int b(void);\n", c("f", "g((struct s){1, b});"), "struct s one = {bb};\n"):
            self.way({**a, "head/b.c": c("b"), "head/c.c": text}, way, "the hop to b is not by x->go head/c.c")
        way = ["`head/a.c:a` begins", "`head/b.c:b` ends (through `x->go`, in `head/c.c:f`)"]
        self.way({**a, "head/b.c": c("b"), "head/c.c": c("f", "x->go = made(b);")}, way)
        for text in ("x->go = made(w); run(b);", "x->stop = made(b);"):
            self.way({**a, "head/b.c": c("b"), "head/c.c": c("f", text)}, way, "the hop to b is not by x->go head/c.c:f")

    def test_where_a_hop_comes_from_is_reached(self):
        def way(hop):
            return ["`head/a.c:a` begins", "`head/b.c:b` goes on", f"`head/c.c:c` ends ({hop})"]
        for a, f, hop in (("b(); c();", "", "then, from `a`"), ("b(); f();", "c();", "from `head/f.c:f`"),
                          ("b(); g();", "c();", "later, from `head/f.c:f` under `g`"),
                          ("b(); g();", "c();", "from `head/f.c:f` under `head/f.c:g`")):
            self.way({"head/a.c": c("a", a), "head/b.c": c("b"), "head/c.c": c("c"), "head/f.c": c("f", f) + c("g", "f();")},
                     way(hop.replace("`g`", "`head/f.c:g`")))
        for a, f, hop in (("b();", "c();", "from `head/f.c:f`"), ("b(); f();", "", "from `head/f.c:f`"),
                          ("b(); f();", "c();", "from `head/f.c:f` under `head/f.c:h`"), ("b(); x->f();", "c();", "from `head/f.c:f`"),
                          ("b();", "c();", "from `head/f.c:f` under `head/f.c:g`")):
            self.way({"head/a.c": c("a", a), "head/b.c": c("b"), "head/c.c": c("c"), "head/f.c": c("f", f) + c("g", "f();") + c("h")},
                     way(hop), "the hop to c is not by head/f.c:f")
        # The caller of the first entry is the origin of the list. A function that an entry calls is reached, and a caller of an entry is not.
        files = {"head/a.c": c("a", "b();"), "head/b.c": c("b"), "head/c.c": c("c"), "head/f.c": c("f", "a(); b(); c();")}
        self.way(files, ["`head/a.c:a` begins; `head/f.c:f` calls it", *way("then, from `head/f.c:f`")[1:]])
        self.way(files, ["`head/a.c:a` begins", "`head/b.c:b` goes on; `head/f.c:f` calls it", *way("then, from `head/f.c:f`")[2:]],
                 "b has nothing to do with head/f.c:f", "the hop to c is not by head/f.c:f")

    def test_brackets_of_words_are_no_hop(self):
        files = {"head/a.c": c("a", "b();"), "head/b.c": c("b")}
        for words in ("later", "somehow", "over the wire", "then", "from a", "through `go`", "through the table", "x", "from `a`, at last"):
            self.way(files, ["`head/a.c:a` begins", f"`head/b.c:b` ends ({words})"], f"none of those that can be checked: ({words})")

    def test_the_link_goes_from_program_to_program(self):
        way = ["`head/a.c:a` begins", "`worker/b.c:b` ends (over the link)"]
        gets = {"worker/b.c": "static " + c("b") + c("f", "struct s x = {.on_frame = b};")}
        self.way({"head/a.c": c("a", "io.send(x);"), **gets}, way)
        self.way({"head/a.c": c("a", "bus_send(x);"), **gets}, way)
        for files in ({"head/a.c": c("a", "wait(x);"), **gets}, {"head/a.c": c("a", "io.send(x);"), "worker/b.c": c("b")},
                      {"head/a.c": c("a", "io.send(x);"), "worker/b.c": c("b", "x.on_turn = b;")}):
            self.way(files, way, "b is not reached over the link")
        self.way({"head/a.c": c("a", "io.send(x);"), "head/b.c": c("b", "x.on_frame = b;")},
                 ["`head/a.c:a` begins", "`head/b.c:b` ends (over the link)"], "b is not reached over the link")
        self.way({"head/a.c": c("a", "io.send(x);"), "gateway/b.c": c("b", "x.send = b;")},
                 ["`head/a.c:a` begins", "`gateway/b.c:b` ends (through `io.send`)"], "b is in another program")

    def test_a_list_is_numbered_and_there(self):
        files = {"head/a.c": c("a")}
        self.page(files, "# Ways\n\n- What brackets mean.\n\n## W\n\n1. `head/a.c:a` is all.\n")
        self.page(files, "## W\n\n1. `head/a.c:a` is all.\n* `head/a.c:a` again.\n", "an entry has a number, and no bullet")
        for bullet in "*-+":
            self.page(files, f"## W\n\n{bullet} `head/a.c:a` is all.\n", "'W' has no entry", "an entry has a number, and no bullet")
        self.page(files, "## V\n\nNothing.\n\n## W\n\n1. `head/a.c:a` is all.\n", "'V' has no entry")
        self.page(files, "# Ways\n\n1. `head/a.c:a` is all.\n", "a list stands before the first section", "it has no section")
        self.page(files, "# Ways\n", "it has no section")
        self.page(files, "", "there is no docs/develop/ways.md")


class Prose(unittest.TestCase):
    def check(self, files, *wanted):
        status, out = Tree(files).run("check_prose.py")
        self.assertEqual(status, 1 if wanted else 0, out)
        for text in wanted:
            self.assertIn(text, out)

    def test_comments_that_are_fine(self):
        self.check({"head/a.c": '/* The block pool counts references. */\nint a; /* bytes */\nconst char *s = "/* of a literal */";\n',
                    "head/b.py": '"""Counts lines.\n\nPrints them."""\nTEXT = "# What is no comment"\n\n\ndef f():\n    """Why is it so? What happens then?"""\n',
                    "text/a.rs": "/// Returns `Of` as it is.\nfn f() -> char { '\"' } // bytes\n",
                    "scripts/x": "#!/usr/bin/env bash\n# Builds it.\necho \"$# arguments\"\n"})

    def test_backticks_of_a_shell(self):
        head = "#!/usr/bin/env bash\n# Says `pip`.\n"
        self.check({"scripts/x": head + "echo 'use `pip`' \"use \\`pip\\`\"  # with `pip`\ncat <<'END'\nuse `pip`\nEND\n"})
        self.check({"scripts/x": head + 'echo "use `pip`"\n'}, "scripts/x:3: a backtick runs a command")
        self.check({"scripts/x": head + "cat <<END\n  $(python)   # it needs `pip`\nEND\n"}, "scripts/x:4: a backtick runs a command")

    def test_openers(self):
        for opener in ("Of a block", "of the head", "What it holds", "Who waits", "whose it is", "Which is it", "where it lies"):
            self.check({"head/a.c": f"int a; /* {opener} */\n"}, f'head/a.c:1: a comment opens with "{opener.split()[0]}"')
        self.check({"head/a.py": 'def f():\n    """Of a file."""\n'}, 'head/a.py:2: a comment opens with "Of"')
        self.check({"head/a.py": "x = 1  # of a file\n"}, 'head/a.py:1: a comment opens with "of"')
        self.check({"text/a.rs": "//! What a matcher has.\n"}, 'text/a.rs:1: a comment opens with "What"')
        self.check({"scripts/x": "#!/bin/sh\n\n# What it does\n"}, 'scripts/x:3: a comment opens with "What"')
        self.check({"cmake/a.cmake": "set(x 1) # of all\n"}, 'cmake/a.cmake:1: a comment opens with "of"')

    def test_schemas_and_package_lists(self):
        self.check({"proto/schema/a.proto": "// Defines a block.\nmessage A { uint32 n = 1; } // number of blocks\n",
                    "tests/a-requirements.txt": "# This list has the packages of the tests.\npytest==9.2.0\n",
                    "docs/layers.md.txt": "# Of another kind\n"})
        self.check({"proto/schema/a.proto": "message A {\n  uint32 n = 1; // of a block\n}\n"},
                   'proto/schema/a.proto:2: a comment opens with "of"')
        for name in ("requirements.txt", "a-requirements.txt"):
            self.check({f"tests/{name}": "pytest==9.2.0\n# What a test needs\n"}, f'tests/{name}:2: a comment opens with "What"')

    def test_later_sentences_and_phrases(self):
        self.check({"head/a.c": "/* A block is free. What\n * is left goes. */\n"}, 'a sentence that opens with "What"')
        self.check({"head/a.c": "/* It goes to whoever asks. */\n"}, 'has "whoever"')
        self.check({"head/a.c": "/* It is the one that\n * waits. */\n"}, 'has "the one that"')

    def test_opening_of_a_long_source(self):
        body = '#include "head/a.h"\n' + "int a;\n" * 201
        long = "/* The pool owns every block. A request borrows blocks and gives them back when it ends.\n" \
               " * Invariant: the sum of free and used blocks is the size of the pool. One thread only. */\n"
        self.check({"head/a.c": long + body})
        self.check({"head/a.c": "/* Blocks. */\n" + body}, "head/a.c: 203 lines, and no opening comment")
        self.check({"head/a.c": body}, "and no opening comment")
        self.check({"head/a.c": "int a;\n" * 200})

    def test_pages(self):
        self.check({"docs/a.md": "# What it is\n\nThe head plans. What does it plan? Steps.\n\n```\nOf code\n```\n| Of | a table |\n"})
        self.check({"docs/a.md": "What it holds is bounded.\n"}, 'docs/a.md:1: a sentence opens with "What"')
        self.check({"docs/a.md": "- It goes. Of these two remain.\n"}, 'docs/a.md:1: a sentence opens with "Of"')
        self.check({"docs/a.md": "word " * 33 + "\n"}, "docs/a.md:1: 165 columns")
        self.check({"docs/a.md": "[" + "x" * 170 + "](a.md)\n", "CHANGELOG.md": "Of old\n"})

    def test_subjects(self):
        with tempfile.TemporaryDirectory() as folder:
            def git(*words):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], cwd=folder, check=True, capture_output=True)
            git("init", "-q")
            for subject in ("head: keep a block", "A change without an area", "head: " + "x" * 70):
                git("commit", "-q", "--allow-empty", "-m", subject)
            done = subprocess.run([sys.executable, str(ROOT / "scripts/check_prose.py"), "--root", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn('is not "area: change": A change', done.stderr)
            self.assertIn("76 characters", done.stderr)
            self.assertNotIn("keep a block", done.stderr)


if __name__ == "__main__":
    unittest.main()
