"""Attacks with a request's chat template (--trust-request-chat-template) and its input, which cost memory and time in every filter."""
from attacks import Attack


def by_template(name, template, **fields):
    return Attack(f"template/{name}", "template", lambda t: [t.chat(chat_template=template, max_tokens=2, **fields)], needs=("template",))


ATTACKS = [
    by_template("format_width", "{{ '%2000000000d' | format(1) | length }}"),
    by_template("sorts", "{%- for i in range(400) -%}{%- set q = range(99999)|list|sort|reverse|list -%}{%- endfor -%}x"),
    by_template("times", "{{ ('x' * 2000000000) | length }}"),
    by_template("list_times", "{{ ([0] * 900000000) | length }}"),
    by_template("doubling", "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s | length }}"),
    by_template("replace", "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(30) %}{% set n.s = n.s | replace('a', 'aaaa') %}{% endfor %}x"),
    by_template("center", "{{ 'x' | center(2000000000) | length }}"),
    by_template("indent", "{{ 'x\\ny' | indent(2000000000) | length }}"),
    by_template("loops", "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}x"),
    by_template("macro_for_ever", "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"),
    by_template("join", "{{ range(99999) | map('string') | join('y' * 99999) | length }}"),
    by_template("tojson", "{% set n = namespace(o=[1]) %}{% for i in range(28) %}{% set n.o = [n.o, n.o] %}{% endfor %}{{ n.o | tojson | length }}"),
    by_template("batch", "{{ range(99999) | batch(1, 'x' * 9999) | list | length }}"),
    by_template("unique", "{% for i in range(300) %}{% set q = range(99999) | map('string') | unique | list %}{% endfor %}x"),
    by_template("split", "{% for i in range(300) %}{% set q = ('a,' * 99999).split(',') | list %}{% endfor %}x"),
    by_template("slice", "{% for i in range(3000) %}{% set q = ('a' * 999999)[::-1] %}{% endfor %}x"),
    by_template("parentheses", "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}"),
    by_template("blocks_in_blocks", "{% if true %}" * 5000 + "x" + "{% endif %}" * 5000),
    by_template("power", "{{ (99999999 ** 9999999) | length }}"),
    by_template("a_megabyte", "{# " + "x" * (1 << 20) + " #}x"),
    by_template("kwargs", "{{ a | sort | join('-') | length }}", chat_template_kwargs={"a": [str(i) for i in range(100000)]}),
]
