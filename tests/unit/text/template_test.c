/* Tests chat templates. The tests render a source with a JSON context and compare text or error
 * with those of transformers. Other tests check the order of sources in a model's folder,
 * built-in formats, and malicious templates. Invariants: the fuel of a rendering limits its work
 * and memory, and deep nesting is an error. Each rendering owns its template and result, and
 * frees both. */
#include "text_fixture.h"
#include <sys/stat.h>
#include <time.h>

/* Most seconds that one rendering may take, with a margin for slow machines and sanitizers. */
#define MOST_SECONDS 20
#define NOON         1721995200 /* 2024-07-26 12:00:00 UTC in Unix seconds */

static int render(const char *source, const char *context, uint64_t fuel, char *out, size_t cap)
{
    char err[TEXT_ERR_MAX] = "", *text = NULL;
    size_t len = 0;
    struct text_template *t = NULL;
    int rc = text_template_new(source, strlen(source), &t, err);
    if (rc == TEXT_OK)
        rc = text_template_render(t, context, strlen(context), NOON, fuel, &text, &len, err);
    snprintf(out, cap, "%s", rc == TEXT_OK ? text : err);
    if (rc == TEXT_OK)
        assert_int_equal(len, strlen(text));
    text_free(text);
    text_template_free(t);
    return rc;
}

static void renders_like_python(void **state)
{
    static const struct {
        const char *name, *source, *context, *want;
    } cases[] = {
        {"variables", "{{ a }}-{{ b.c[0] }}-{{ gone }}", "{\"a\":\"x\",\"b\":{\"c\":[7]}}", "x-7-"},
        {"none and bool", "{{ a }} {{ b }} {{ 1.0 }} {{ f }}", "{\"a\":null,\"b\":true,\"f\":1e16}",
         "None True 1.0 1e+16"},
        {"trim_blocks", "{% if true %}\na\n  {% endif %}\nb", "{}", "a\nb"},
        {"last newline goes", "a\n", "{}", "a"},
        {"repr", "{{ a }}", "{\"a\":[{\"k\":\"it's\",\"n\":null},\"\\n\"]}",
         "[{'k': \"it's\", 'n': None}, '\\n']"},
        {"no escaping", "{{ a }}", "{\"a\":\"<b>&\\\"\"}", "<b>&\""},
        {"tojson", "{{ a|tojson }}", "{\"a\":{\"z\":\"\xC3\xA9<'\",\"b\":[1,2.5,true,null]}}",
         "{\"z\": \"\xC3\xA9<'\", \"b\": [1, 2.5, true, null]}"},
        {"tojson indent", "{{ a|tojson(indent=2) }}", "{\"a\":{\"k\":[1,{}]}}",
         "{\n  \"k\": [\n    1,\n    {}\n  ]\n}"},
        {"tojson separators", "{{ a|tojson(separators=(',', ':'), sort_keys=true) }}",
         "{\"a\":{\"z\":1,\"b\":2}}", "{\"b\":2,\"z\":1}"},
        {"order of keys", "{% for k in a %}{{ k }}{% endfor %}",
         "{\"a\":{\"z\":1,\"y\":2,\"a\":3}}", "zya"},
        {"methods",
         "{{ a.strip().split('-')|last }}{{ b.items()|list|length }}{{ a.startswith(' x') }}",
         "{\"a\":\" x-y \",\"b\":{\"q\":1}}", "y1True"},
        {"strip takes separators", "[{{ a.strip() }}{{ a|trim }}]", "{\"a\":\"\\u001cx\\u001f\"}",
         "[xx]"},
        {"namespace and break",
         "{% set n = namespace(i=0) %}{% for x in [1,2,3] %}{% if x == 3 %}{% break %}{% endif %}"
         "{% set n.i = n.i + x %}{% endfor %}{{ n.i }}",
         "{}", "3"},
        {"loop neighbours",
         "{% for x in a if x != 2 %}{{ loop.previtem }}{{ x }}{{ loop.last }} {% endfor %}",
         "{\"a\":[1,2,3]}", "1False 13True "},
        {"strftime_now", "{{ strftime_now('%d %b %Y %H:%M') }}", "{}", "26 Jul 2024 12:00"},
        {"integers of any size", "{{ a }} {{ a|tojson }} {{ b + 1 }} {{ [a] }} {{ a > b }}",
         "{\"a\":123456789012345678901234567890123456789012,\"b\":18446744073709551615}",
         "123456789012345678901234567890123456789012 123456789012345678901234567890123456789012 "
         "18446744073709551616 [123456789012345678901234567890123456789012] True"},
        {"a property of a method's name", "{{ a.items()|list }}{{ a['items'] }}{{ a.get('x', 5) }}",
         "{\"a\":{\"items\":1}}", "[('items', 1)]15"},
        {"CRLF", "{% if true %}\r\na\r\n{% endif %}\r\nb\rc\r\n", "{}", "a\nb\nc"},
        {"generation", "{% generation %}a{%- endgeneration %}{% raw %}{% generation %}{% endraw %}",
         "{}", "a{% generation %}"},
        {"tools are none when absent",
         "{{ tools is none }}{{ documents }}{{ add_generation_prompt }}", "{}", "TrueNoneFalse"},
        {"none is not iterable", "{{ tools is iterable }}{{ 'a' is sequence }}", "{}", "FalseTrue"},
        {"for over a sum", "{% for x in a + [3] if x > 1 %}{{ x }}{% endfor %}", "{\"a\":[1,2]}",
         "23"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[1024];
        int rc = render(cases[i].source, cases[i].context, 0, out, sizeof out);
        if (rc != TEXT_OK || strcmp(out, cases[i].want) != 0)
            fail_msg("%s: %d '%s', not '%s'", cases[i].name, rc, out, cases[i].want);
    }
}

static void errors_have_their_code(void **state)
{
    static const struct {
        const char *name, *source, *context;
        int want;
        const char *part; /* part of the error message; NULL = any */
    } cases[] = {
        {"raise_exception", "{{ raise_exception('no system role, p\xC3\xA9riod') }}", "{}",
         TEXT_TEMPLATE, "no system role, p\xC3\xA9riod"},
        {"raise_exception in a macro",
         "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}", "{}", TEXT_TEMPLATE,
         "deep"},
        {"syntax", "{% for %}", "{}", TEXT_INVALID, NULL},
        {"unknown filter", "{{ 1|nonsense }}", "{}", TEXT_INVALID, NULL},
        {"for over none", "{% for x in tools %}{% endfor %}", "{}", TEXT_INVALID, "NoneType"},
        {"str + list", "{{ 'a' + b }}", "{\"b\":[1]}", TEXT_INVALID, NULL},
        {"attribute of undefined", "{{ a.b.c }}", "{\"a\":{}}", TEXT_INVALID, NULL},
        {"context is no object", "x", "[]", TEXT_INVALID, "object"},
        {"context is no JSON", "x", "{", TEXT_INVALID, NULL},
        {"endless loop",
         "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", "{}",
         TEXT_LIMIT, NULL},
        {"macro without end", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", TEXT_LIMIT,
         NULL},
        {"huge repeat", "{{ 'x' * 9999999999 }}", "{}", TEXT_LIMIT, "too large"},
        {"large output", "{% set s = 'x' * 50000000 %}{{ s }}{{ s }}", "{}", TEXT_LIMIT, "longer"},
        {"huge range", "{{ range(1000000000)|list }}", "{}", TEXT_INVALID, NULL},
        {"includes itself", "{% include 'chat' %}", "{}", TEXT_INVALID, "one file"},
        {"line", "a\n\n{{ a.b }}", "{}", TEXT_INVALID, "line 3: 'a' is undefined"},
        {"what is missing", "{{ 'a'|urlize }}", "{}", TEXT_INVALID, "'urlize' is not supported"},
        {"changes a list", "{{ a.append(1) }}", "{\"a\":[]}", TEXT_INVALID, "unsafe"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[TEXT_ERR_MAX];
        int rc = render(cases[i].source, cases[i].context, 2000000, out, sizeof out);
        if (rc != cases[i].want || (cases[i].part && !strstr(out, cases[i].part)))
            fail_msg("%s: %d '%s'", cases[i].name, rc, out);
    }
}

/* The contexts have long texts of narrow and of wide characters. These are s, and t and u, which
 * differ only at their ends. */
static const char *const heads[] = {
    "{% set s = 'a' * 1000000 %}{% set t = s ~ 'b' %}{% set u = s ~ 'c' %}",
    "{% set s = 'é' * 500000 %}{% set t = s ~ 'b' %}{% set u = s ~ 'c' %}"};

/* A short expression that processes many bytes costs as many steps. Each expression ends with an
 * error within the budget of a request. */
static void work_is_charged(void **state)
{
    enum { FUEL = 500000 };
    static const char *const bodies[] = {
        "t < u",
        "t == u",
        "t != u",
        "t in u",
        "t in [u]",
        "[t, u]|max",
        "[t, u]|min(true)",
        "[t, u]|sort(false, true)",
        "{t: 1}[u]",
        "{t: 1} == {u: 1}",
        "t in {u: 1}",
        "s|length",
        "s|count",
        "s|int",
        "s|float",
        "s|upper",
        "s|title",
        "s.find(t)",
        "s.count('b')",
        "s.replace('b', 'c')",
        "s.split('b')",
        "s.splitlines()",
        "s.isalpha()",
        "s.istitle()",
        "s.casefold()",
        "s is lower",
        "s[1:3]",
        "s[-1]",
        "s|reverse|length",
        "s.strip('bcd')",
        "s|wordcount",
        "s|truncate(5)",
        "s|striptags",
        "s|urlencode|length",
        "s|e|length",
        "s|tojson|length",
        "[t, u]|unique|list|length",
        "t|replace('b', '')|length",
        "t.startswith((u, u, u, u))",
        "s|batch(2)|first",
        "[t, u]|groupby('x')",
        "t is sameas u",
        "'%s' % t",
        "'{}'.format(t)|length",
        "[t]|string|length",
        "namespace(**{t: 1})",
        "s|indent|length",
        "s|wordwrap|length",
        "s is sameas s",
        "s|tojson(ensure_ascii=true)|length",
        "1.2e-200|round(300)",
        "'%f' % 1.7e308",
        "'%.65535e' % 0.1",
        "1.7e308|filesizeformat",
        "strftime_now('%c' * 500)",
        "t.zfill(30000000)",
        "s.center(30000000)",
    };
    for (size_t i = 0; i < 2; i++) { /* the texts alone fit into the budget */
        char out[TEXT_ERR_MAX];
        assert_int_equal(render(heads[i], "{}", FUEL, out, sizeof out), TEXT_OK);
    }
    for (size_t i = 0; i < 2 * sizeof bodies / sizeof *bodies; i++) {
        char out[TEXT_ERR_MAX], source[1024];
        const char *body = bodies[i / 2];
        snprintf(source, sizeof source,
                 "%s{%% for a in range(99999) %%}{%% for b in range(99999) %%}"
                 "{%% set q = %s %%}{%% endfor %%}{%% endfor %%}",
                 heads[i % 2], body);
        clock_t from = clock();
        int rc = render(source, "{}", FUEL, out, sizeof out);
        double took = (double)(clock() - from) / CLOCKS_PER_SEC;
        if ((rc != TEXT_LIMIT && rc != TEXT_INVALID) || took > MOST_SECONDS / 5.0)
            fail_msg("%s: %d '%s' after %.1f s of work", body, rc, out, took);
    }
}

/* Scopes of macros, namespaces and iterators exist until the end of the rendering, so they count
 * as memory. */
static void held_values_are_counted(void **state)
{
    static const char *const kept[] = {"macro m() %}{% endmacro", "set n = namespace(a=1)",
                                       "set n = cycler(1)", "set n = joiner()"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char out[TEXT_ERR_MAX], source[512];
        snprintf(source, sizeof source,
                 "{%% for a in range(99999) %%}{%% for b in range(99999) %%}{%% %s %%}"
                 "{%% endfor %%}{%% endfor %%}",
                 kept[i]);
        int rc = render(source, "{}", 50000000, out, sizeof out);
        if (rc != TEXT_LIMIT || !strstr(out, "is too large"))
            fail_msg("%s: '%s'", kept[i], out);
    }
}

/* A template has 80,000 names, attributes or macros, and each of them is searched among the
 * earlier ones. */
static void many_names_are_charged(void **state)
{
    static const char *const parts[][2] = {{"{% set v", "=1 %}"},
                                           {"{% set q.v", "=1 %}"},
                                           {"{% macro m", "() %}{% endmacro %}"},
                                           {"{% if v", " %}{% endif %}"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t n = 80000, len = 0, room = n * 48 + 64;
        char out[TEXT_ERR_MAX], *source = malloc(room);
        len += (size_t)snprintf(source, room, "%s", "{% set q = namespace() %}");
        for (size_t at = 0; at < n; at++)
            len +=
                (size_t)snprintf(source + len, room - len, "%s%zu%s", parts[i][0], at, parts[i][1]);
        clock_t from = clock();
        int rc = render(source, "{}", 0, out, sizeof out);
        double took = (double)(clock() - from) / CLOCKS_PER_SEC;
        free(source);
        if ((rc != TEXT_LIMIT && rc != TEXT_OK) || took > MOST_SECONDS)
            fail_msg("%s: %d '%s' after %.1f s of work", parts[i][0], rc, out, took);
    }
}

/* Keywords from a large dictionary do not cost quadratic work. */
static void many_keywords_are_read_once(void **state)
{
    size_t n = 80000, len = 0, room = n * 16 + 64;
    char out[TEXT_ERR_MAX], *context = malloc(room);
    len += (size_t)snprintf(context, room, "{\"d\":{");
    for (size_t at = 0; at < n; at++)
        len += (size_t)snprintf(context + len, room - len, "%s\"k%zu\":1", at ? "," : "", at);
    snprintf(context + len, room - len, "}}");
    clock_t from = clock();
    assert_int_equal(render("{{ dict(**d)|length }}", context, 0, out, sizeof out), TEXT_OK);
    assert_string_equal(out, "80000");
    assert_true((double)(clock() - from) / CLOCKS_PER_SEC < MOST_SECONDS);
    free(context);
}

/* A malicious template cannot use more than the limits of time and memory, whatever value it
 * makes larger. */
static void growth_is_bounded(void **state)
{
    static const char *const sources[] = {
        "{{ 'x'.center(10 ** 9) }}",
        "{{ 'x'|center(10 ** 9) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (10 ** 9, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{% set s = 'a' * 1000000 %}{{ s.replace('a', s) }}",
        "{% set s = 'a' * 1000000 %}{{ s|replace('', s) }}",
        "{{ ('ab' * 100000).split('a')|join('x' * 1000000) }}",
        "{{ [1] * 10 ** 9 }}",
        "{{ ('\n' * 100000)|indent(100000) }}",
        "{{ ('\t' * 100000).expandtabs(100000) }}",
        "{{ [1]|batch(10 ** 9, 'x')|list }}",
        "{{ [1]|slice(10 ** 9)|list }}",
        "{{ 2 ** 1000000000 }}",
        "{{ 10 ** 30 * 10 ** 30 }}",
        "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}",
        "{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor "
        "%}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ strftime_now('%999999999d') }}",
        "{% for i in range(99999) %}{% set q = ('a' * 100000)[5] %}{% endfor %}",
        "{{ ('\n' * 20000000).splitlines() }}",
        "{{ ('\n' * 20000000).split('\n') }}",
        "{{ ('a ' * 20000000).split() }}",
        "{{ ('a ' * 20000000).rsplit(' ')|length }}",
        "{{ ('a' * 20000000)|list|length }}",
        "{{ [1, 2]|tojson(separators=('x' * 60000000, 'x' * 60000000)) }}",
        "{{ [[2 ** 100] * 1000] * 200000 }}",
        "{% set a = namespace(x=1) %}{% for i in range(1000) %}{% set a.x = namespace(y=a.x) %}"
        "{% endfor %}{{ a }}",
        "{% set a = namespace(x=[1]) %}{% for i in range(100) %}{% set a.x = [a.x, a.x] %}"
        "{% endfor %}{{ a }}",
        "{{ '{:.100000f}'.format(1) }}",
        "{{ '%.65536f' % 1 }}",
        "{{ '%.*e' % (99999, 1) }}",
        "{{ '{:.65535f}'.format(1) * 9999999 }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char out[TEXT_ERR_MAX];
        int rc = render(sources[i], "{}", 2000000, out, sizeof out);
        if (rc != TEXT_LIMIT && rc != TEXT_INVALID)
            fail_msg("%s: %d '%s'", sources[i], rc, out);
    }
    /* Values that refer to themselves, or to a long chain of other values, are freed without a
     * crash. */
    static const char *const chains[] = {
        "{% set n = namespace(x=1) %}{% for i in range(9999) %}"
        "{% set n.x = namespace(y=n.x) %}{% endfor %}{% set n.n = n %}x",
        "{% set n = namespace(l=1) %}{% for i in range(9999) %}"
        "{% for x in [n.l] %}{% set n.l = loop %}{% endfor %}{% endfor %}x",
        "{% set n = namespace(m=1) %}{% macro f() %}{% macro g() %}{% set n.m = g %}{% endmacro %}"
        "{% set n.m = f %}{% endmacro %}{{ f() }}{% for i in range(999) %}{{ n.m() }}{% endfor %}x",
        "{% for i in range(9999) %}{% for x in [1] %}{% set q = loop.changed(loop) %}{% endfor %}"
        "{% endfor %}x",
    };
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        char out[TEXT_ERR_MAX];
        if (render(chains[i], "{}", 0, out, sizeof out) != TEXT_OK || strcmp(out, "x") != 0)
            fail_msg("%s: '%s'", chains[i], out);
    }
}

/* The time is in the server's time zone, like that of datetime.now(). The name and offset of the
 * zone are empty, because such a time has none. */
static void the_time_is_local(void **state)
{
    char out[256];
    setenv("TZ", "IST-5:30", 1);
    tzset();
    assert_int_equal(
        render("{{ strftime_now('%d %b %Y %A %H:%M[%z%Z]%%') }}", "{}", 0, out, sizeof out),
        TEXT_OK);
    assert_string_equal(out, "26 Jul 2024 Friday 17:30[]%");
    setenv("TZ", "UTC", 1);
    tzset();
}

/* Deeply nested expressions and JSON end with an error, and do not overflow the stack. */
static void nesting_is_bounded(void **state)
{
    size_t n = 200000;
    char out[TEXT_ERR_MAX], *deep = malloc(2 * n + 64);
    size_t len = (size_t)sprintf(deep, "{{ ");
    memset(deep + len, '(', n);
    strcpy(deep + len + n, " }}");
    assert_int_not_equal(render(deep, "{}", 0, out, sizeof out), TEXT_OK);
    len = (size_t)sprintf(deep, "{\"a\":");
    memset(deep + len, '[', n);
    memset(deep + len + n, ']', n - 1);
    strcpy(deep + len + 2 * n - 1, "]}");
    assert_int_equal(render("{{ a }}", deep, 0, out, sizeof out), TEXT_INVALID);
    free(deep);
}

static void bad_utf8_is_refused(void **state)
{
    char err[TEXT_ERR_MAX], *out = NULL;
    size_t len;
    struct text_template *t = NULL;
    assert_int_equal(text_template_new("a\xFF", 2, &t, err), TEXT_INVALID);
    assert_int_equal(text_template_new("a", 1, &t, err), TEXT_OK);
    assert_int_equal(text_template_render(t, "{\"a\":\"\x80\"}", 9, 0, 0, &out, &len, err),
                     TEXT_INVALID);
    text_template_free(t);
}

#define HI                                                                                         \
    "{\"messages\":[{\"role\":\"user\",\"content\":\" Hi "                                         \
    "\"},{\"role\":\"assistant\",\"content\":\"Yo\"},"                                             \
    "{\"role\":\"user\",\"content\":\"?\"}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\"," \
    "\"eos_token\":\"</s>\"}"
#define SYS                                                                                        \
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Row.\"},{\"role\":\"user\",\"content\":"    \
    "\"Hi\"}],"                                                                                    \
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}"

static void built_in_formats(void **state)
{
    static const struct {
        const char *name, *hi, *sys;
    } cases[] = {
        {"chatml",
         "<|im_start|>user\n Hi "
         "<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\n?<|im_end|>\n"
         "<|im_start|>assistant\n",
         "<|im_start|>system\nRow.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>"
         "assistant\n"},
        {"llama3",
         "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|"
         "end_header_id|>"
         "\n\nYo<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n?<|eot_id|><|start_header_id|"
         ">assistant"
         "<|end_header_id|>\n\n",
         "<s><|start_header_id|>system<|end_header_id|>\n\nRow.<|eot_id|><|start_header_id|>user<|"
         "end_header_id|>"
         "\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"llama2", "<s>[INST] Hi [/INST] Yo </s><s>[INST] ? [/INST]",
         "<s>[INST] <<SYS>>\nRow.\n<</SYS>>\n\nHi [/INST]"},
        {"mistral", "<s>[INST] Hi [/INST] Yo</s>[INST] ? [/INST]", "<s>[INST] Row.\n\nHi [/INST]"},
        {"gemma3",
         "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n<start_"
         "of_turn>user\n?"
         "<end_of_turn>\n<start_of_turn>model\n",
         "<s><start_of_turn>user\nRow.\n\nHi<end_of_turn>\n<start_of_turn>model\n"},
        {"phi3",
         "<|user|>\n Hi <|end|>\n<|assistant|>\nYo<|end|>\n<|user|>\n?<|end|>\n<|assistant|>\n",
         "<|system|>\nRow.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n"},
        {"vicuna",
         "<s>A chat between a curious user and an artificial intelligence assistant. The assistant "
         "gives helpful, "
         "detailed, and polite answers to the user's questions. USER: Hi ASSISTANT: Yo</s>USER: ? "
         "ASSISTANT:",
         "<s>Row. USER: Hi ASSISTANT:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const contexts[] = {HI, SYS}, *const wants[] = {cases[i].hi, cases[i].sys};
        for (int k = 0; k < 2; k++) {
            char err[TEXT_ERR_MAX] = "", *out = NULL;
            size_t len;
            struct text_template *t = NULL;
            assert_int_equal(text_template_open(fixture_dir, cases[i].name, NULL, &t, err),
                             TEXT_OK);
            if (text_template_render(t, contexts[k], strlen(contexts[k]), 0, 0, &out, &len, err) !=
                TEXT_OK)
                fail_msg("%s: %s", cases[i].name, err);
            if (strcmp(out, wants[k]) != 0)
                fail_msg("%s: '%s', not '%s'", cases[i].name, out, wants[k]);
            text_free(out);
            text_template_free(t);
        }
    }
}

static void assert_opens_as(const char *override, const char *family, const char *context,
                            const char *want)
{
    char err[TEXT_ERR_MAX] = "", *out = NULL;
    size_t len;
    struct text_template *t = NULL;
    if (text_template_open(fixture_dir, override, family, &t, err) != TEXT_OK)
        fail_msg("%s", err);
    if (text_template_render(t, context, strlen(context), 0, 0, &out, &len, err) != TEXT_OK)
        fail_msg("%s", err);
    assert_string_equal(out, want);
    text_free(out);
    text_template_free(t);
}

static void families_have_a_format(void **state)
{
    static const struct {
        const char *family, *bos, *want;
    } cases[] = {
        {"llama", "<s>", "<s>[INST] a [/INST]"},
        {"llama", "<|begin_of_text|>",
         "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"},
        {"qwen3_moe", "", "<|im_start|>user\na<|im_end|>\n"},
        {"gemma2", "<bos>", "<bos><start_of_turn>user\na<end_of_turn>\n"},
        {"mixtral", "<s>", "<s>[INST] a [/INST]"},
        {"phi3", "<s>", "<|user|>\na<|end|>\n"},
    };
    static const char one[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[128];
        int n = snprintf(config, sizeof config, "{\"bos_token\":\"%s\"}", cases[i].bos);
        fixture_write("tokenizer_config.json", config, (size_t)n);
        assert_opens_as(NULL, cases[i].family, one, cases[i].want);
    }
    unlink(fixture_path("tokenizer_config.json"));
    char err[TEXT_ERR_MAX];
    struct text_template *t = NULL;
    assert_int_equal(text_template_open(fixture_dir, NULL, "llama", &t, err), TEXT_UNSUPPORTED);
}

/* A tokenizer may name no end token. For a model that was trained with an end token, the token
 * is then encoded as text. */
static void built_in_formats_want_no_tokens(void **state)
{
    static const char context[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                                  "{\"role\":\"assistant\",\"content\":\"b\"},"
                                  "{\"role\":\"user\",\"content\":\"c\"}]}";
    char err[TEXT_ERR_MAX] = "";
    struct text_template *t = NULL;
    assert_opens_as("mistral", NULL, context, "[INST] a [/INST] b</s>[INST] c [/INST]");
    assert_opens_as("llama2", NULL, context, "[INST] a [/INST] b </s>[INST] c [/INST]");
    assert_opens_as("vicuna", NULL, context,
                    "A chat between a curious user and an artificial intelligence assistant. The "
                    "assistant gives helpful, detailed, and polite answers to the user's "
                    "questions. USER: a ASSISTANT: b</s>USER: c ");
    assert_int_equal(text_template_open(fixture_dir, "vicuma", NULL, &t, err), TEXT_IO);
    assert_non_null(strstr(err, "vicuma"));
    assert_non_null(strstr(err, "chatml, gemma3, llama2, llama3, mistral, phi3, vicuna"));
}

/* Sources are added to the folder from the weakest to the strongest. */
static void sources_in_their_order(void **state)
{
    char err[TEXT_ERR_MAX];
    struct text_template *t = NULL;
    assert_int_equal(text_template_open(fixture_dir, NULL, NULL, &t, err), TEXT_UNSUPPORTED);
    assert_int_equal(text_template_open(fixture_dir, NULL, "no_family", &t, err), TEXT_UNSUPPORTED);
    assert_opens_as(NULL, "mistral", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                    "[INST] a [/INST]");

    static const char list[] =
        "{\"bos_token\":{\"content\":\"<b>\"},\"eos_token\":null,\"chat_template\":[{\"name\":"
        "\"default\","
        "\"template\":\"plain{{ bos_token }}\"},{\"name\":\"tool_use\",\"template\":\"tools{{ "
        "tools|length }}\"}]}";
    fixture_write("tokenizer_config.json", list, sizeof list - 1);
    assert_opens_as(NULL, "mistral", "{}", "plain<b>");
    assert_opens_as(NULL, NULL, "{\"bos_token\":\"mine\"}", "plainmine");
    assert_opens_as(NULL, NULL, "{\"tools\":[1,2]}", "tools2");

    fixture_write("chat_template.jinja", "jinja{{ bos_token }}", 20);
    assert_opens_as(NULL, "mistral", "{\"tools\":[1]}", "jinja<b>");
    fixture_write("mine.jinja", "over{{ bos_token }}", 19);
    assert_opens_as(fixture_path("mine.jinja"), "mistral", "{}", "over<b>");
    assert_opens_as("phi3", NULL, "{\"messages\":[]}", "");
    assert_int_equal(text_template_open(fixture_dir, "neither", NULL, &t, err), TEXT_IO);

    fixture_write("chat_template.jinja", "{% if %}", 8);
    assert_int_equal(text_template_open(fixture_dir, NULL, NULL, &t, err), TEXT_INVALID);
    unlink(fixture_path("chat_template.jinja"));
    unlink(fixture_path("tokenizer_config.json"));
}

/* A template may be a file additional_chat_templates/NAME.jinja. `tool_use` serves requests with
 * tools, and the other templates are chosen by name. */
static void additional_templates(void **state)
{
    static const char config[] =
        "{\"bos_token\":\"<b>\",\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},"
        "{\"name\":\"tool_use\",\"template\":\"list\"},{\"name\":\"rag\",\"template\":"
        "\"R{{ bos_token }}\"}]}";
    char err[TEXT_ERR_MAX], *out = NULL;
    size_t len;
    struct text_template *t = NULL, *named = NULL;
    fixture_write("tokenizer_config.json", config, sizeof config - 1);
    assert_int_equal(text_template_open(fixture_dir, NULL, NULL, &t, err), TEXT_OK);
    assert_int_equal(text_template_pick(t, "rag", 3, &named, err), TEXT_OK);
    assert_int_equal(text_template_render(named, "{}", 2, 0, 0, &out, &len, err), TEXT_OK);
    assert_string_equal(out, "R<b>");
    text_free(out);
    text_template_free(named);
    assert_int_equal(text_template_pick(t, "ra", 2, &named, err), TEXT_UNSUPPORTED);
    text_template_free(t);
    assert_int_equal(mkdir(fixture_path("additional_chat_templates"), 0755), 0);
    fixture_write("additional_chat_templates/tool_use.jinja", "TOOLS{{ bos_token }}", 20);
    assert_opens_as(NULL, NULL, "{\"tools\":[1]}", "TOOLS<b>");
    assert_opens_as(NULL, NULL, "{\"tools\":null}", "D");
    /* With this file, the configuration's list is not read. */
    fixture_write("chat_template.jinja", "PLAIN", 5);
    assert_opens_as(NULL, NULL, "{\"tools\":[1]}", "TOOLS<b>");
    assert_opens_as(NULL, NULL, "{}", "PLAIN");
    assert_opens_as("phi3", NULL, "{\"messages\":[],\"tools\":[1]}", "");
    assert_int_equal(text_template_open(fixture_dir, NULL, NULL, &t, err), TEXT_OK);
    assert_int_equal(text_template_pick(t, "rag", 3, &named, err), TEXT_UNSUPPORTED);
    text_template_free(t);
    unlink(fixture_path("additional_chat_templates/tool_use.jinja"));
    unlink(fixture_path("chat_template.jinja"));
    unlink(fixture_path("tokenizer_config.json"));
    rmdir(fixture_path("additional_chat_templates"));
}

/* --chat-template can hold a template on one line. */
static void inline_template(void **state)
{
    char err[TEXT_ERR_MAX];
    struct text_template *t = NULL;
    assert_opens_as("{{ a }}\\n\\t\\u00e9\xC3\xA9", NULL, "{\"a\":1}", "1\n\t\xC3\xA9\xC3\xA9");
    assert_opens_as("{% for x in a %}\n{{ x }}{% endfor %}", NULL, "{\"a\":[1,2]}", "12");
    assert_int_equal(text_template_open(fixture_dir, "{% if %}", NULL, &t, err), TEXT_INVALID);
    assert_int_equal(text_template_open(fixture_dir, "{{ a }}\\xZZ", NULL, &t, err), TEXT_INVALID);
    assert_non_null(strstr(err, "command line"));
    assert_int_equal(text_template_open(fixture_dir, "no/such.jinja", NULL, &t, err), TEXT_IO);
    assert_non_null(strstr(err, "there is no file no/such.jinja"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(renders_like_python),
                                       cmocka_unit_test(errors_have_their_code),
                                       cmocka_unit_test(growth_is_bounded),
                                       cmocka_unit_test(work_is_charged),
                                       cmocka_unit_test(held_values_are_counted),
                                       cmocka_unit_test(many_names_are_charged),
                                       cmocka_unit_test(many_keywords_are_read_once),
                                       cmocka_unit_test(the_time_is_local),
                                       cmocka_unit_test(nesting_is_bounded),
                                       cmocka_unit_test(bad_utf8_is_refused),
                                       cmocka_unit_test(built_in_formats),
                                       cmocka_unit_test(families_have_a_format),
                                       cmocka_unit_test(built_in_formats_want_no_tokens),
                                       cmocka_unit_test(sources_in_their_order),
                                       cmocka_unit_test(additional_templates),
                                       cmocka_unit_test(inline_template)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
