"""Lists the rows for jinja_golden.py: templates and the values that they are rendered with. Every filter, test, method and operator
is applied to every kind of value, with its arguments by position, by name and left out."""

VALUES = {
    "s": "hello wOrld", "u": "Ünï ßtraße ﬁ", "e": "a😀b👩\u200d👧 c", "c": "e\u0301x ǆ", "w": " \t pad\u3000\n", "z": "",
    "n": "42", "nf": " -3.75e1 ", "nb": "123456789012345678901", "h": "<b a=\"1\">x & 'y'</b>", "x": "0x1F",
    "m": "one\n\ntwo\r\n  three\u2028four\n", "g": "ΑΣ ΣΑΣ don't they're", "q": "it's \"q\" \\ \x00\x7f\xad",
    "i": 7, "j": -7, "o": 0, "b": 2 ** 63, "b2": -2 ** 100, "big": 10 ** 45, "f": 2.5, "f2": -0.125, "f3": 1e16, "f4": 1e-7,
    "f5": 100.0, "no": None, "t": True, "fa": False, "l": [3, 1, 2], "ls": ["b", "A", "c", "É"], "le": [],
    "lm": [1, "a", None, 2.5, True, [1], {"k": "v"}], "d": {"b": 1, "A": 2, "c": 0, "items": "own", "get": 5}, "de": {},
    "nest": {"a": {"b": [1, {"c": "x"}]}, "1": "one", "é": None},
    "r": [{"n": "x", "v": 2, "t": ["p"], "s": {"k": 5}}, {"n": "Y", "v": 1, "s": {"k": 4}}, {"n": "x", "v": 3}],
    "big_keys": {f"k{i}": i for i in range(20)},
}
TEXTS = ["s", "u", "e", "c", "w", "z", "n", "m", "g", "q", "x", "h"]
EVERY = [*VALUES, "gone"]

FILTERS = {
    "abs": [""], "attr": ["('x')", "('upper')", "('items')", "(name='real')"], "capitalize": [""], "center": ["", "(15)", "(width=14)", "(4)"],
    "batch": ["(2)|list", "(2, 'x')|list", "(linecount=3, fill_with=0)|list"], "count": [""], "length": [""],
    "d": ["('x')"], "default": ["", "('y', true)", "(default_value='z', boolean=True)", "(boolean=true)"],
    "dictsort": ["", "(true)", "(by='value')", "(false, 'value', true)", "(reverse=true)", "(by='x')"],
    "e": [""], "escape": ["", " + '<'", "|string"], "forceescape": [""], "safe": ["", " + '<'"],
    "filesizeformat": ["", "(true)", "(binary=true)"], "first": [""], "last": [""], "float": ["", "(1.5)", "(default=9)", "('x')"],
    "format": ["", "(1, 2)"], "groupby": ["('n')", "('v')|list", "(attribute='n', case_sensitive=true)", "('s.k', default=1)"],
    "indent": ["", "(2)", "(2, true)", "(width='>>')", "(first=true, blank=true)", "(3, blank=true)"],
    "int": ["", "(5)", "(default=-1)", "(0, 16)", "(base=16)", "(0, 8)", "(base=2)", "(0,0)"],
    "join": ["", "('-')", "(d=', ')", "('|', 'n')", "(attribute='v')", "(', ', attribute='s.k')", "(1)"],
    "list": [""], "lower": [""], "upper": [""], "title": [""], "string": ["", "|length"], "trim": ["", "('hd ')", "(chars='-< ')", "(none)"],
    "items": ["|list", "|first"], "map": ["('upper')|list", "(attribute='n')|list", "(attribute='q', default='D')|list", "('int', 3)|join(',')", "()|list",
                                         "('default', 'x')|list", "('join', '+')|list", "(attribute=0)|list", "(attribute='s.k')|list"],
    "max": ["", "(true)", "(attribute='v')"], "min": ["", "(case_sensitive=true)", "(attribute='n')"], "pprint": [""],
    "reject": ["|list", "('none')|list", "('in', [1, 'a', 'A'])|list", "('string')|list"], "select": ["|list", "('defined')|list", "('odd')|list", "('equalto', 1)|list", "('gt', 1)|list"],
    "rejectattr": ["('t')|list", "('v', 'gt', 1)|list"], "selectattr": ["('t')|list", "('v', 'equalto', 2)|list", "('n', '==', 'x')|list", "('s.k', 'defined')|list", "('n', 'in', ['Y'])|map(attribute='v')|list", "()|list"],
    "replace": ["('o', '0')", "('', '.')", "('l', 'LL', 1)", "(old='e', new='E', count=1)", "(1, 2)", "('o')"], "reverse": ["|list", "|join('.')"],
    "round": ["", "(1)", "(2, 'floor')", "(method='ceil')", "(precision=1, method='common')", "(-1)", "(0, 'x')"],
    "slice": ["(2)|list", "(3, 'f')|list", "(slices=2, fill_with='-')|list", "(0)|list"], "sort": ["", "(true)", "(reverse=true, case_sensitive=true)", "(attribute='v')", "(attribute='n,v')", "(false, true)"],
    "striptags": [""], "sum": ["", "(attribute='v')", "('v', 10)", "(start=1.5)"], "tojson": ["", "(indent=2)", "(ensure_ascii=true)", "(separators=(',', ':'))", "(sort_keys=true)", "(false, 1)", "(indent='\\t')", "(indent=0)", "(true, none, ('; ', '='), true)"],
    "truncate": ["(5)", "(6, true)", "(length=7, end='…', leeway=0)", "(5, leeway=0)", "(4, true, '', 0)", "", "(1)", "(length=8, killwords=true, leeway=1)"],
    "unique": ["|list", "(true)|list", "(attribute='n')|list"], "urlencode": [""], "wordcount": [""], "wordwrap": ["(5)", "(width=4, break_long_words=false)", "(6, true, '|')", "", "(7, break_on_hyphens=false)", "(0)"],
    "xmlattr": ["", "(false)"], "nope": [""],
}

TESTS = ["odd", "even", "divisibleby 3", "divisibleby(num=2)", "defined", "undefined", "none", "boolean", "false", "true", "integer", "float", "lower", "upper",
         "string", "mapping", "number", "sequence", "iterable", "callable", "sameas none", "sameas(true)", "escaped", "in [7, 'hello wOrld', none]", "in 'x hello wOrld'", "in d", "eq 7",
         "equalto(7)", "== 7", "ne 7", "gt 1", "greaterthan 2", "ge 7", "lt 7", "lessthan 'z'", "le 2.5", "filter", "test", "not none", "not defined", "nope", "string and true", "sameas 7 or false"]

METHODS = {
    "capitalize": ["()", "(1)"], "casefold": ["()"], "center": ["(15)", "(16, '*')", "(15, 'é')", "(3)", "(9, 'ab')", "()"], "count": ["('o')", "('')", "('l', 3)", "('e', 0, 4)", "('o', -3)", "(1)"],
    "endswith": ["('d')", "(('x', 'd'))", "('l', 0, 4)", "('')", "('', 99)", "(['d'])"], "startswith": ["('h')", "(('x', 'a'))", "('o', 4)", "('', 20)", "(none)"],
    "expandtabs": ["()", "(4)", "(tabsize=2)", "(0)"], "find": ["('o')", "('o', 5)", "('😀')", "('b', 1, 3)", "('zz')", "('', 3)", "('c')"], "rfind": ["('o')", "('o', 0, 6)", "('')", "('zz')"],
    "index": ["('o')", "('zz')"], "rindex": ["('o')", "('l', 0, 3)"], "isalnum": ["()"], "isalpha": ["()"], "isascii": ["()"], "isdecimal": ["()"], "isdigit": ["()"], "isidentifier": ["()"], "islower": ["()"], "isnumeric": ["()"],
    "isprintable": ["()"], "isspace": ["()"], "istitle": ["()"], "isupper": ["()"], "join": ["(['a', 'b'])", "('xyz')", "([1])", "(ls)", "({'k': 1})"], "ljust": ["(14)", "(14, '-')"], "rjust": ["(14)", "(14, '😀')"], "lower": ["()"], "upper": ["()"],
    "lstrip": ["()", "('he')", "(none)"], "rstrip": ["()", "('d\\n')"], "strip": ["()", "(' h')", "('')", "(1)"], "partition": ["('o')", "('zz')", "('')"], "rpartition": ["('o')", "('zz')"], "removeprefix": ["('he')", "('')"], "removesuffix": ["('ld')", "('')"],
    "replace": ["('o', '0')", "('o', '0', 1)", "('', '-')", "('', '-', 2)", "('l', '')", "('o', 1)", "('e', 'E', -1)"], "rsplit": ["()", "(none, 1)", "('o', 1)", "(maxsplit=1)", "(sep='l')"],
    "split": ["()", "('o')", "(none, 1)", "('o', 1)", "(sep='l', maxsplit=1)", "('')", "(maxsplit=0)", "(' ', 0)", "('\\n')"], "splitlines": ["()", "(true)", "(keepends=true)"],
    "swapcase": ["()"], "title": ["()"], "zfill": ["(14)", "(2)"], "format": ["()", "(1)"], "nope": ["()"], "append": ["(1)"], "items": ["()"],
}

CALLS = """
d.get('b') d.get('q') d.get('q', 5) d.get() d.get([1]) d.items()|list d.keys()|list d.values()|list d.items() d.keys() d.values() d.copy() d.update({'x':1}) d.pop('b') d.clear() d.setdefault('q',1)
d.items d['items'] d.b d.gone d['gone'] d.gone.x d.get.x nest.a.b[1].c nest['a']['b'][0] nest.a['b'][-1].c nest.1 nest['1'] nest.é l.0 l.5 l[5] l[-1] l['x'] l.append(1) l.index(1) l.index(9) l.count(3) l.copy() l.sort() l.pop() l.extend([1])
s[0] s[-1] s[99] e[1] e[-1] e[3] u[3] s['x'] s.x s[1:3] e[1:4] e[::-1] e[::2] u[2:] c[:2] s[-3:] s[:-3] s[5:2] s[100:] s[::-2] s[8:2:-2] s[2:8:3] l[1:] l[::-1] l[:-1] l[5:] l[-99:99] l[1:2] e[1:99] s[none:2] s['a':] l[::0] (1,2,3)[1:] range(10)[2:5]|list range(10)[-1] range(5)|list range(2,5)|list range(5,0,-2)|list range(0) range(3) range(1,3) range(0,9,2) range(1,2,0) range(100001) range(1.5) range(3)|length range(3)[5]
i.real i.bit_length() f.is_integer() f5.is_integer() i.numerator f.real t.bit_length() gone gone.x gone['x'] gone() gone + 1 gone ~ 'x' gone == gone gone is defined gone|length gone|list not gone gone or 'x' gone and 'x' 'x' in gone gone < 1 -gone gone[1:]
dict(a=1, b='x') dict(d, z=1) dict([('a', 1)]) dict([1]) dict(1, 2) namespace(a=1).a namespace(a=1) namespace({'q': 2}).q namespace().x namespace(a=1)['a'] cycler('a','b').next() cycler('a','b').current cycler() joiner()() joiner('|')() lipsum() 
'%s' % s '%s %s' % (s, i) '%d' % f '%5d|%-5d|%05d' % (i, i, i) '%+d % d' % (i, i) '%x %X %o %#x' % (255, 255, 8, 255) '%.2f %f %e %g' % (f, f, f, f) '%g %g %g' % (f3, f4, f5) '%s' % none '%r' % s '%r' % q '%a' % u '%c%c' % (65, 'x') '%%' % () '%s' % l '%s' % (l,) '%s' % d '%(b)s-%(A)05d' % d '%(q)s' % d '%s' '%s %s' % s '%s' % (1, 2) '%d' % 's' '%y' % 1 '%' % 1 '%10s|%-10s|%.3s' % (s, s, s) '%10s' % e '%.2s' % e '%*d' % (5, 3) '%.*f' % (2, f) '%5.1f|' % f '%05.1f' % j '%+.1e' % f '%i %u' % (i, i) '%#o %#X' % (8, 255) '%.3d' % i '%s%%' % i i % 3 j % 3 i % -3 f % 2 j // 2 7 // -2 f // 2 -f // 2 i / 2 8 / 4 2 ** 3 2 ** -1 2 ** 0.5 2 ** 100 (-8) ** 2 -2 ** 2 2 ** 3 ** 2 i // 0 i / 0 i % 0 f // 0 'a' * 3 3 * 'ab' 'a' * 0 'a' * -1 [1] * 2 (1,) * 2 'a' * 'b' 'a' + 1 1 + 'a' 'a' + 'b' [1] + [2] [1] + (2,) (1,) + (2,) t + t 1.5 + 1 i - 0.5 none + 1 's' - 1 [1] - [1] {} + {} 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1] ~ {'a': 'b'} 1e3 1_000 0x1f 0b11 0o17 1.5e-7 1E5 .5 5. 10**20 123456789012345678901234567890 '{} {}'.format(1, s) '{0}{1}{0}'.format('a', 'b') '{a} {b!r:>8}'.format(a=1, b='x') '{:>8}|{:<8}|{:^8}|{:*^9}'.format(s[:3], i, f, 'x') '{:05d} {:+d} {:,} {:_}'.format(i, i, 1234567, 1234567) '{:x} {:#X} {:b} {:o} {:c}'.format(255, 255, 5, 8, 65) '{:.2f} {:10.3e} {:g} {:%} {:.1%}'.format(f, f, f, f, f) '{0[b]} {1.x}'.format(d, i) '{0[0]} {0[2]}'.format(l) '{:.3}'.format(s) '{{}} {}'.format(1) '{} {1}'.format(1, 2) '{' '}'.format() '{}'.format() '{x}'.format() '{:>{w}}'.format('a', w=5) '{!s:.2}'.format(s) '{}'.format(none) '{:5}|{:<5}|{:5}'.format(none, true, 'é') '{:d}'.format(s) '{:s}'.format(i) '{:z}'.format(s) '{:5d}|{:<5d}|{:=5d}|{:=+5d}'.format(i, i, j, i) '{:e}'.format(i) '{:.1f}'.format(i) '{a.b}'.format(a=d) '{!x}'.format(1) '{:08.2f}'.format(j) '{b} {A}'.format(**d) '{0} {1}'.format(*l) '{b}'.format_map(d)
""".split("\n")


# USED has the names that the templates of the chat goldens use, and those in the sources of vLLM 0.33.0 and llama-cpp-python 0.3.36 (182 files).
# from_json and fromjson are in neither jinja2 nor transformers.
USED = {
    "filters": "default dictsort first format indent int items join last length list lower map min reject rejectattr replace safe "
               "selectattr sort string tojson trim unique upper",
    "tests": "boolean defined false iterable mapping none number sequence string true undefined",
    "methods": "append endswith format get items lstrip pop replace rstrip split startswith strip update",
    "globals": "namespace raise_exception range strftime_now",
}


def unused():
    """Returns the names of USED that no row uses."""
    text = " ".join([*CALLS, *STATEMENTS])
    have = {"filters": FILTERS, "tests": {t.split()[0].split("(")[0] for t in TESTS}}
    names = [(kind, name) for kind, list_ in USED.items() for name in list_.split()]
    return [(k, n) for k, n in names if n not in have.get(k, METHODS) and f".{n}(" not in text and f"{n}(" not in text]


def _split(line):
    """Splits a line into expressions. It splits at blanks that are outside of brackets and texts and not beside an operator."""
    out, depth, quote, word = [], 0, None, ""
    for c in line:
        if quote:
            quote = None if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if c == " " and depth == 0 and not quote:
            out.append(word)
            word = ""
        else:
            word += c
    out.append(word)
    return out


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "and", "or", "in", "not", "is", "==", "!=", "<", ">", "<=", ">="]


def _expressions(line):
    joined = []
    for word in _split(line):
        if joined and word and (word in OPERATORS or joined[-1].split(" ")[-1] in OPERATORS or word == "defined"):
            joined[-1] += " " + word
        elif word:
            joined.append(word)
    return joined


def _loops():
    head = "{% for x in l %}"
    for attribute in "index index0 revindex revindex0 first last length depth depth0 previtem nextitem gone".split():
        yield head + "[{{ loop." + attribute + " }}]{% endfor %}"


STATEMENTS = [
    "{% for x in l %}{{ x }}{% else %}none{% endfor %}", "{% for x in le %}{{ x }}{% else %}none{% endfor %}", "{% for x in no %}{% endfor %}", "{% for x in i %}{% endfor %}", "{% for x in gone %}a{% else %}b{% endfor %}",
    "{% for c in e %}[{{ c }}]{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }},{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}", "{% for x in lm if x is string %}{{ x }}{% else %}no{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}!", "{% break %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in l %}{% for y in l %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in [{'c': [{'c': []}, {'c': [{'c': []}]}]}] recursive %}<{{ loop.depth }}{{ loop(x.c) }}>{% endfor %}", "{% for x in l %}{{ loop(x) }}{% endfor %}", "{% for x in l %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for x in l %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}",
    "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", "{% set d.x = 1 %}", "{% set gone.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b = 'xy' %}{{ a }}-{{ b }}", "{% set a, b = 1 %}", "{% if t %}{% set q = 1 %}{% endif %}{{ q }}", "{% set x %}a {{ i }}{% endset %}[{{ x }}]", "{% set x | upper | replace('A', 'b') %}a {{ s }}{% endset %}{{ x }}", "{% filter upper %}a {{ s }}{% endfilter %}", "{% filter replace('a', 'b')|trim %} aa {% endfilter %}",
    "{% macro m(a, b=2, c='x') %}{{ a }},{{ b }},{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=1, a=0) }}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, b=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ varargs|join('-') }}|{{ kwargs.items()|list }}{% endmacro %}{{ m(1, 2, 3, x=4) }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{{ i }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m() %}{{ y }}{% endmacro %}{% set y = 5 %}{{ m() }}", "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m() %}{% set z = 1 %}{% endmacro %}{{ m() }}{{ z }}", "{{ m }}{% macro m() %}{% endmacro %}", "{% macro m() %}a{% endmacro %}{{ m.name }}{{ m }}", "{% macro m(l) %}{{ l }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'l': 2}) }}",
    "{% with a = 1, b = i %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a }}", "{% with i = 1, k = i %}{{ k }}{% endwith %}", "{% block b %}x{{ i }}{% endblock %}", "{% set q = 1 %}{% block b %}{{ q }}{% endblock b %}", "{% for x in l %}{% block b %}{{ x }}{% endblock %}{% endfor %}", "{% generation %}a{{ i }}{% endgeneration %}", "{% generation %}{% set k = 1 %}{% endgeneration %}{{ k }}", "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% autoescape false %}{{ h }}{% endautoescape %}", "{% print s, i %}", "{% do 1 %}", "{% nope %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% if t %}", "{% endif %}", "{{ ", "{% raw %}{{ x }}{% endraw %}", "{% raw -%}\n {{ x }} {%- endraw %}!", "{%- raw %} a {% endraw -%} b",
    "a{# c #}b", "a {#- c -#} b", "a\n{# c #}\nb", "a\n  {# c #}\nb", "  {% if t %}\n  a\n  {% endif %}\nb", "x {% if t %} a {% endif %} y", "{%- if t -%}\n a \n{%- endif -%}\n b", "  {%+ if t %}a{% endif %}", "{% if t +%}\na{% endif %}", "a\n\n{%- if t %}b{% endif -%}\n\nc", "{{- s -}}  x", " {{ s }} \n", "a\r\n{% if t %}\r\nb\r\n{% endif %}\r\nc\r\n", "a\rb\n\n", "a\n", "a\n\n", "{{ 'a\\nb' }}{{ 'a\nb' }}", "{{ \"a\\x41\\u00e9\\U0001F600\\101\\q\\'\" }}", "{{ 'é\\é' }}", "{{ 'a' 'b' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': 1}.a }}", "{{ [1, 2,] }}{{ (1,) }}{{ () }}{{ (1, 2) }}", "{{ 1, 2 }}", "{{ }}", "{{ 'a }}", "{{ (1 }}", "{{ 1) }}", "{{ a b }}", "{{ 1 if t }}{{ 1 if fa }}{{ 1 if fa else 2 }}{{ 1 if fa else 2 if fa else 3 }}", "{{ (1 if fa).x }}", "{{ not t and fa }}{{ not (t and fa) }}{{ t or 1/0 }}", "{{ 1 < 2 < 3 }}{{ 1 < 2 > 3 }}{{ 1 == 1.0 == true }}", "{{ 'a' not in 'b' }}{{ 1 in l }}{{ 'b' in d }}{{ 1 in 'a' }}", "{{ 1 in i }}", "{{ -i|abs }}{{ (-i)|abs }}{{ -j.real }}", "{{ i is divisibleby 7 and t }}{{ i is not none }}{{ i is odd is defined }}",
    "{{ s.upper }}", "{{ l|map('upper') }}", "{{ (l|map('string')).x }}", "{% set g = l|map('string') %}{{ g|join }}{{ g|join }}", "{{ l|select|first }}{{ (r|map(attribute='n')|unique|list)[0] }}", "{{ x.y }}", "{{ x }}", "{{ raise_exception('no ' ~ s) }}", "{{ strftime_now('%d %b %Y') }}", "{{ strftime_now('%Y-%m-%d %H:%M %A %B %j %%') }}", "{{ strftime_now('') }}{{ strftime_now('%Z%z') }}", "{{ loop }}", "{{ self }}", "{{ super() }}", "{% for loop in l %}{% endfor %}", "{% set true = 1 %}", "{{ 07 }}", "{{ 1__0 }}", "{{ 1.foo }}", "{{ l.0.real }}", "{{ nest.a.b.1.c }}", "{{ d['b':] }}", "{{ l[1, 2] }}", "{{ s|upper|lower|title }}", "{{ s | default('x') | length }}", "{{ f|round|int }}", "{{ none|default('x') }}{{ none|default('x', true) }}", "{{ [d, r]|tojson }}", "{{ {'z': 1, 'a': [none, true, 1.0, 1e20, big]}|tojson(indent=4, sort_keys=true) }}", "{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}", "{{ {(1,): 2}|tojson }}", "{{ {1: 'a'}[1.0] }}{{ {1: 'a'}[true] }}{{ {'a': 1, 'a': 2} }}", "{{ {[1]: 2} }}", "{{ big + 1 }}", "{{ big == big }}{{ big > b }}{{ big }}{{ big|tojson }}{{ [big] }}{{ big|string|length }}", "{{ b + 1 }}{{ b2 - 1 }}{{ b * b }}", "{{ l == [3, 1, 2] }}{{ (1, 2) == [1, 2] }}{{ d == d }}{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}", "{{ [1, 2] < [1, 3] }}{{ 'a' < 'b' }}{{ 'B' < 'a' }}{{ 'é' > 'z' }}{{ '😀' > '\ufffd' }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ [1] < (1,) }}", "{{ t == 1 }}{{ 1.0 == 1 }}{{ '1' == 1 }}", "{{ (1, 'a', none, [1.5]) }}", "{{ [s, u, q, h] }}", "{{ {'é': '\\n'} }}", "{{ ['\\u200b', '\\ud7ff', '\\ue000', '\\u3000', '\\u0378', '\\U000e0001'] }}",
    *_loops(),
    "{% set a = namespace() %}{% set a.x = a %}{{ a }}{{ [a] }}{{ '%s' % a.x }}{{ [a]|join }}", "{% set a = namespace() %}{% set a.x = [a] %}{{ a }}{{ a.x }}", "{% set a = namespace(n=1) %}{% set a.x = (a, {'k': a}) %}{{ a.x }}{{ a }}{{ '{!r}'.format(a) }}", "{% set a = namespace() %}{% set a.x = {'k': a}.items() %}{{ a }}{{ a.x }}", "{% set l = [1] %}{% set a = namespace(l=[l, l]) %}{{ a }}", "{% set a = namespace() %}{% set a.x = a %}{{ a == a.x }}{{ a|tojson }}", "{% set a = namespace() %}{% set a.x = {'k': a} %}{{ a.x }}{{ a.x|string }}",
    "{% for m in r %}{% if m.n == 'Y' %}found{% break %}{% endif %}{% else %}none{% endfor %}", "{% for m in r %}{% if m.n == 'x' %}found{% break %}{% endif %}{% else %}none{% endfor %}", "{% for m in r %}{% if m.n == 'x' %}{{ loop.index }}{% break %}{% endif %}{% else %}none{% endfor %}", "{% for m in r %}{% continue %}{% else %}E{% endfor %}", "{% for m in r %}{{ loop.index }}{% continue %}{% else %}E{% endfor %}", "{% for m in r %}{% if loop.last %}{% continue %}{% endif %}{% else %}E{% endfor %}", "{% for m in r if m.v > 2 %}{% break %}{% else %}E{% endfor %}", "{% for x in [1] recursive %}{{ loop.index }}{% break %}{% else %}E{% endfor %}", "{% for x in l %}{% for y in l %}{% break %}{% else %}i{% endfor %}{% else %}o{% endfor %}",
    "{{ {1: 'a'}|xmlattr }}", "{{ ['b', 'a', 'c', 'B', 'A']|sort }}{{ ['b', 'a', 'B', 'A']|sort(reverse=true) }}{{ range(40)|sort(reverse=true) }}", "{{ [[2, 'x'], [1, 'y'], [2, 'a'], [1, 'b']]|sort(attribute=0) }}", "{{ dict(**d) }}{{ dict(**{'a': 1}, b=2) }}", "{{ dict(a=1, **{'a': 2}) }}", "{{ dict(**{1: 2}) }}", "{{ ('a b ' * 3).split(' ', 2) }}{{ ('a b ' * 3).rsplit(' ', 2) }}{{ 'a,b,,c'.rsplit(',') }}{{ 'a\\r\\nb\\n'.splitlines(true) }}",
    "{{ '%.3d|%5.1f|%-6.2e|%.40f' % (7, 2.25, 1e9, 0.1) }}", "{{ '' is iterable }}{{ 'a' is iterable }}{{ 1 is iterable }}{{ 'x' if '' else 'y' }}",
    "{{ 1234.5|round(-2) }} {{ 1250|round(-2) }} {{ 1250.0|round(-2) }} {{ 1350.0|round(-2) }} {{ 5.0|round(-1) }} {{ 15.0|round(-1) }} {{ -5.1|round(-1) }} {{ 4.9|round(-1) }}", "{{ 99.9|round(-2) }} {{ 49.9|round(-3) }} {{ 1e22|round(-5) }} {{ 1e300|round(-299) }} {{ 1.7e308|round(-308) }} {{ 7.0|round(-400) }} {{ -7.0|round(-400) }} {{ 2.5|round(400) }}", "{{ 1.6e308|round(-308) }} {{ 123456789.123|round(-3) }} {{ 0.0|round(-1) }} {{ -0.3|round(-1) }}",
    "{{ 2.675|round(2) }} {{ 1e-310|round(320) }} {{ 5e-324|round(323) }} {{ 5e-324|round(324) }}", "{{ [(1,), (1,), (2,)]|unique|list }}", "{{ [([1],)]|unique|list }}",
    "{{ [(1, {'a': 1})]|unique|list }}", "{{ [{'a': 1}.keys()]|unique|list }}", "{{ [{'a': 1}.values()]|unique|list|length }}",
    "{{ {([1],): 2} }}", "{{ {((1, 2), 'x'): 2} }}", "{{ ([1],) in {'a': 1} }}",
    "{{ {'a': 1}[([1],)] is defined }}", "{{ {'a': 1}.get(([1],)) }}", "{{ ([1],) is filter }}",
    "{{ {'a': 1}.items() in {} }}", "{{ '{:.3}|{:.3}|{:.3}|{:.3}|{:.3}|{:.0}'.format(1.0, 100.0, 99.96, 0.00001234, 1234.5, 5.0) }}", "{{ '{:.10}|{:10.4}|{:<10.4}|{:+.2}|{:,.9}'.format(1/3, 2.5, 2.5, 0.1, 1234567.5) }}",
    "{{ '{:.3}|{:.3}|{:.1}'.format(0.0, -0.0, 9.96) }}", "{{ '{:n} {:n} {:n} {:n} {:.3n} {:n}'.format(7, -1234567, 2.5, 1e10, 1234.5, true) }}", "{{ '{:,n}'.format(7) }}",
    "{{ '{:_n}'.format(7) }}", "{{ '{:.2n}'.format(7) }}", "{{ '{:z}'.format(-0.0) }} {{ '{:z.1f}'.format(-0.04) }} {{ '{:z.1f}'.format(-0.06) }} {{ '{:+z.1f}'.format(-0.04) }} {{ '{: z.0f}'.format(-0.4) }} {{ '{:z.2e}'.format(-0.0) }} {{ '{:z%}'.format(-1e-9) }} {{ '{:zg}'.format(-0.0) }}",
    "{{ '{:z}'.format(1) }}", "{{ '{:z}'.format('a') }}", "{{ '{:zd}'.format(1) }}",
    "{{ '%#g|%#g|%#.3g|%#.3g|%#.0f|%#.0e|%#G|%#.1g' % (1.0, 1e10, 100.0, 1e-10, 2.5, 3.0, 1e-7, 5.0) }}", "{{ '{:#g}|{:#.3g}|{:#.0f}|{:#.0e}|{:#}|{:#}|{:#.0%}|{:#.3}'.format(1.0, 100.0, 2.0, 3.0, 1e16, 2.5, 0.5, 100.0) }}", "{{ '{:#g}|{:#f}'.format((f * 1e308), (f * 1e308)) }}",
    "{{ '{:x<5}|{:05}|{:<05}|{:^05}|{:05}|{:<05d}|{:*<05d}|{:=05d}'.format('a', 'a', 'a', 'a', 7, 7, 7, -7) }}", "{{ '{:08,}|{:07,}|{:06,}|{:09,}|{:010,.1f}|{:+08,}|{:0<8,}|{:*=10,}'.format(1234, 1234, 1234, 1234, 1234.5, 1234, 1234, 1234) }}", "{{ '{:_x}|{:_b}|{:#_x}|{:_o}|{:#010_x}|{:_d}'.format(123456789, 1023, 123456789, 123456789, 123456, 1234567) }}",
    "{{ '{:,x}'.format(255) }}", "{{ '{:,c}'.format(65) }}", "{{ '{:,e}|{:,g}|{:,%}|{:_.2f}|{:,}'.format(12345.678, 123456.0, 12345.6, 1234567.891, 1e20) }}",
    "{{ '{:+c}'.format(65) }}", "{{ '{:#c}'.format(65) }}", "{{ '{:5c}|{:<5c}|{:05c}|{:=5c}'.format(65, 65, 65, 65) }}",
    "{{ '{:#s}'.format('a') }}", "{{ '{:=5}'.format('a') }}", "{{ '{:,s}'.format('a') }}",
    "{{ '{:d}'.format(true) }} {{ '{:5}'.format(true) }} {{ '{}'.format(true) }} {{ '{:s}'.format(true) }}", "{{ '{:5}|{:<6}|{:x}'.format(true, false, true) }}", "{{ '{:05}|{:010.2f}|{:+e}|{:E}|{:G}|{:F}|{:%}'.format((f * 1e308), -(f * 1e308), (f * 1e308), (f * 1e308), (f * 1e308), (f * 1e308), (f * 1e308)) }}",
    "{{ '{:.2%}|{:%}'.format(1.7e308, 0.125) }}", "{{ '%.1101f' % 0.1 }}", "{{ '%.1101e' % 0.1 }}",
    "{{ ('%.65535e' % 0.1)|length }} {{ ('%.65535f' % 0.1)|length }} {{ ('%.65535g' % 0.1) }} {{ ('{:.65535e}'.format(0.1))|length }}", "{{ '%.1100f' % 5e-324 == '%.1101f' % 5e-324 }}{{ ('%.1100f' % 5e-324)[-40:] }}", "{{ {(f * 1e308): 1, -(f * 1e308): 2, 1.5: 3, (f * 1e308)-(f * 1e308): 4}|tojson }}",
    "{{ [(f * 1e308), -(f * 1e308), (f * 1e308)-(f * 1e308)]|tojson }}", "{{ '\\x01\\x7f\\u00e9\\U0001f600\"\\\\'|tojson(ensure_ascii=true) }}{{ '\\x01\\x7f\\u00e9\\U0001f600\"\\\\'|tojson }}", "{% for x in [1, 2] %}{% block b scoped %}{{ x }}{{ loop.index }}{% endblock %}{% endfor %}",
    "{% for x in [1, 2] %}{% block b scoped %}{{ x }}{% set y = x %}{{ y }}{% endblock %}{{ y }}{% endfor %}", "{% set q = 1 %}{% with q = 2 %}{% block b scoped %}{{ q }}{% endblock %}{% block c %}{{ q }}{% endblock %}{% endwith %}", "{% for x in [1, 2] %}{% block b scoped %}{% for y in 'ab' %}{{ x }}{{ y }}{% endfor %}{% endblock %}{% endfor %}", "{% block b required %}{% endblock %}",
    "{% set m = '<a> b-c'|e %}{{ [m.upper(), m.lower(), m.title(), m.capitalize(), m.casefold(), m.swapcase(), m.strip(), m.lstrip('a'), m.rstrip(), m.center(20), m.ljust(20), m.rjust(20, '*'), m.zfill(20), m.expandtabs()] }}",
    "{% set m = '<a> b-c'|e %}{{ [m.split(), m.split('-'), m.rsplit(' ', 1), m.splitlines(), m.partition(' '), m.rpartition('-'), m.removeprefix('x'), m.removesuffix('c')] }}",
    "{% set m = '<a> b-c'|e %}{{ [m[0], m[1:3], m[-1], m[::-1]] }}{{ m[0] + '<' }}",
    "{% set m = '<a> b-c'|safe %}{{ [m|upper, m|lower, m|title, m|capitalize, m|trim, m|trim('<'), m|center(20), m|reverse, m|first, m|last, m|string, m|indent, m|replace('a', 'b'), m|list] }}",
    "{% set m = '<a> bcde fghi'|safe %}{{ [m|truncate(8, leeway=0), m|truncate(8, true, '<', 0), m|truncate(50), m|wordwrap(5), m|join, m|join('-')] }}",
    "{% set m = '<a>\\n\\nb'|safe %}{{ [m|indent, m|indent(2, true), m|indent(2, blank=true), m|indent('--', first=true)] }}",
    "{% set m = '<a>\\n\\nb'|safe %}{{ [m|indent('>')] }}",
    "{% set m = '%s <a>'|safe %}{{ [m|format('<')] }}",
    "{% set m = '<a>'|safe %}{{ [m.strip('<')] }}",
    "{% set m = '<a>'|safe %}{{ [m.split('<')] }}",
    "{% set m = '<a>'|safe %}{{ [m * 2, 2 * m, m ~ '<', m + '<', '<' + m, m.upper() + '&', (m|trim) + '&', m is escaped, m.upper() is escaped, m[0] is escaped, m|int, m|length, m|tojson, m|wordcount] }}",
    "{% set m = '<a>'|safe %}{{ [m|unique|list, m|sort, m|min, m|max, m|batch(2)|list, m|map('upper')|list, m.count('a'), m.find('a'), m.index('a'), m.startswith('<')] }}",
    "{% set m = '<a>'|safe %}{{ m.upper().lower().strip() + '<b>' }}{{ {m: 1} }}{{ m == '<a>' }}{{ m in ['<a>'] }}",
    "{% for c in '<a>'|safe %}{{ [c] }}{% endfor %}",
    "{% set m = '<a>&amp;b<'|safe %}{{ [m.strip('<'), m.lstrip('<'), m.rstrip('<'), m.split('<'), m.rsplit('<', 1), m.partition('<'), m.rpartition('&'), m.removeprefix('<'), m.removesuffix('<')] }}",
    "{{ ('a'|safe).ljust(5, '<') }}",
    "{{ ('a'|safe).center(5, '-') + '<' }}",
]


def rows():
    """Yields (template, names in VALUES for `v` and `w`) for every row. `gone` has no value."""
    for name, forms in FILTERS.items():
        for form in forms:
            for value in EVERY:
                yield "{{ v|" + name + form + " }}", (value,)
    for test in TESTS:
        for value in EVERY:
            yield "{{ v is " + test + " }}", (value,)
    for name, forms in METHODS.items():
        for form in forms:
            for value in [*TEXTS, "l", "d", "i"]:
                yield "{{ v." + name + form + " }}", (value,)
    few = ["s", "z", "i", "j", "o", "b", "f", "f2", "no", "t", "l", "le", "d", "gone", "n"]
    for operator in ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "and", "or"]:
        for left in few:
            for right in few:
                if operator != "**" or right != "b":  # Python itself would compute this without end
                    yield "{{ v " + operator + " w }}", (left, right)
    for line in CALLS:
        for expression in _expressions(line.strip()):
            yield "{{ " + expression + " }}", ()
    for statement in STATEMENTS:
        yield statement, ()


def values_of(bound):
    """Returns a row's context: `v` and `w`, and values of the templates' other names."""
    named = {name: VALUES[value] for name, value in zip("vw", bound) if value != "gone"}
    return {**VALUES, **named} if not bound else {**{k: VALUES[k] for k in ("ls", "d", "no")}, **named}
