"""Sets up Python's jinja2 for chat templates, as transformers and vLLM do."""
import functools
import json

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """Renders the text between {% generation %} and {% endgeneration %}."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

    def _inside(self, caller):
        return caller()


def environment(now):
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


@functools.lru_cache(maxsize=8)
def _compiled(env, source):
    return env.from_string(source)


def render(env, source, values):
    text = _compiled(env, source).render(**values)
    text.encode()  # encode() raises an error for half of a surrogate pair, which is not text
    return text
