/* Tests run files: the accepted forms, and every problem with its line and column. `parse` reads
 * a text into a `struct parsed`, and `check` compares the lines of its problems and notes.
 * Invariant: all problems of a file are reported at once, in the order of their lines. */
#include "cli/run/file/file.h"
#include "cli/run/file/places.h"
#include "cli/run/file/problems.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct parsed {
    struct arena arena;
    struct run_file file;
    struct run_problems problems;
    struct strbuf lines;
};

static void parse(struct parsed *p, const char *text)
{
    arena_init(&p->arena, 0);
    strbuf_init(&p->lines, 0);
    run_problems_init(&p->problems);
    run_file_parse(str_from(text), &p->arena, &p->file, &p->problems);
    run_problems_print(&p->problems, "f", &p->lines);
    run_notes_print(&p->problems, "f", &p->lines);
}

static void drop(struct parsed *p)
{
    run_file_fini(&p->file);
    run_problems_fini(&p->problems);
    strbuf_fini(&p->lines);
    arena_fini(&p->arena);
}

/* Holds a test case. `text` is a run file. `want` is one of its problem lines; NULL = no
 * problem. */
struct row {
    const char *text, *want;
};

static void check(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct parsed p;
        parse(&p, rows[i].text);
        const char *lines = strbuf_str(&p.lines).ptr;
        if (rows[i].want ? !strstr(lines, rows[i].want) : p.problems.n != 0)
            fail_msg("%s\nsays\n%s\nwanted\n%s", rows[i].text, lines,
                     rows[i].want ? rows[i].want : "nothing");
        drop(&p);
    }
}
#define CHECK(rows) check(rows, sizeof(rows) / sizeof(rows)[0])

static void test_whole(void **state)
{
    struct parsed p;
    parse(&p, "name: demo-server\n"
              "description: with Prometheus\n"
              "tags: [a, b]\n"
              "model: demo\n"
              "options: {max-model-len: 4096, served_model_name: [x, y]}\n"
              "resources: {workers: 2, tp: 2, cpu: 2, memory: 4Gi, gpus: 1}\n"
              "import:\n"
              "  /code/: {git: {url: github.com/a/b.git, ref: main}}\n"
              "  /weights: hf://org/name\n"
              "  /data: file:/srv/data\n"
              "export: {/out/: 'file:/srv/out'}\n"
              "volumes:\n"
              "  /cache: {host: /srv/cache}\n"
              "  /big: {size: 10Gi}\n"
              "  /own: {claim: mine}\n"
              "run: [echo a, {command: echo b, workdir: /code/x/}]\n"
              "ports:\n"
              "  - {name: prometheus, type: http, port: 9191}\n"
              "  - {name: api, type: http, port: 8100}\n"
              "monitoring: true\n"
              "env: {HF_TOKEN: HF_TOKEN, N: 3, B: true, E: ''}\n");
    assert_string_equal(strbuf_str(&p.lines).ptr, "");
    const struct run_file *f = &p.file;
    assert_string_equal(f->name.s, "demo-server");
    assert_int_equal(f->tags.n, 2);
    assert_int_equal(f->up.workers, 2);
    assert_int_equal(f->up.tp, 2);
    assert_int_equal(f->up.max_model_len, 4096);
    assert_int_equal(f->up.served_model_names.n_items, 2);
    /* the gateway gets the first port that is not for monitoring */
    assert_int_equal(f->up.port, 8100);
    assert_int_equal(run_file_prometheus_port(f), 9191);
    assert_int_equal(f->resources.gpus, 1);
    assert_string_equal(f->imports.items[0].path, "/code");
    assert_string_equal(f->imports.items[0].what, "https://github.com/a/b.git");
    assert_string_equal(f->imports.items[0].ref, "main");
    assert_string_equal(f->imports.items[1].what, "hf:org/name");
    assert_string_equal(f->imports.items[2].what, "/srv/data");
    assert_string_equal(f->exports.items[0].what, "/srv/out");
    assert_int_equal(f->volumes.n, 3);
    assert_int_equal(f->volumes.items[1].kind, RUN_VOLUME_SIZE);
    assert_null(f->commands.items[0].workdir);
    assert_string_equal(f->commands.items[1].workdir, "/code/x");
    assert_true(f->env.items[0].is_taken && f->env.items[0].is_secret);
    assert_false(f->env.items[1].is_taken || f->env.items[1].is_secret);
    assert_string_equal(f->env.items[1].value, "3");
    assert_true(run_file_brings(f, "/code/x") && run_file_brings(f, "/cache"));
    assert_false(run_file_brings(f, "/codex"));
    drop(&p);
}

static void test_taken(void **state)
{
    static const struct row rows[] = {
        {"name: a\nmodel: null\n", "f:2:8: `model: null` means no model in YAML"},
        {"name: a\nmodel:\n", "f:1:1: nothing to start"},
        {"name: \"a\\x9b31m\"\nmodel: demo\n", "f:1:7: `name` must be one line"},
        {"name: a\nmodel: 'null'\n", NULL},
        {"name: a\nrun: x\nimport: {/c: {git: {url: 'https://a.b/c@v1'}}}\n", NULL},
        {"name: a\nrun: x\nimport: {/c: {git: {url: 'git@a.b:c/d'}}}\n", NULL},
        {"name: a\nrun: x\nimport: {/c: {git: {url: 'ssh://git@a.b/c'}}}\n", NULL},
        {"name: a\nrun: echo\n", NULL},
        {"name: 한글 a\nrun: [echo]\n", NULL},
        {"name: a\nmodel: hf://org/name\n", NULL},
        {"name: a\nmodel: org/name\nrun: echo first\n", NULL},
        {"name: a\nmodel: demo\noptions:\n", NULL},
        {"name: a\nmodel: demo\noptions: {trust-remote-code: true}\n",
         "f:3:11: note: trust_remote_code has no effect here"},
        {"name: a\nmodel: demo\noptions: {limit-mm-per-prompt: {image: 2}}\n", "has no effect"},
        {"name: a\nmodel: demo\nresources: {cluster: x, preset: y}\n",
         "f:3:22: note: `cluster` names nothing here"},
        {"name: a\nrun: echo\nimport: {/c: {git: {url: 'git@host:a/b.git'}}}\n", NULL},
        {"name: a\nrun: echo\nimport: {/c: {git: {url: /srv/r, ref: v1.0}}}\n", NULL},
        {"name: a\nrun: echo\nmonitoring: True\n", NULL},
    };
    CHECK(rows);
}

static const struct row refused[] = {
    {"", "f:1:1: a run file must be a mapping"},
    {"- a\n", "f:1:1: a run file must be a mapping"},
    {"name: [\n", "f:2:1: the file is not valid YAML"},
    {"a: b: c\n", "f:1:5: the file is not valid YAML"},
    {"name: a\nname: b\n", "f:2:1: \"name\" is already set in line 1"},
    {"name: &x a\nrun: *x\n", "f:1:7: anchors"},
    {"name: a\nrun: *x\n", "f:2:6: aliases"},
    {"name: !!str a\n", "f:1:7: anchors (&x) and tags"},
    {"name: a\n---\nname: b\n", "f:2:1: the file has more than one YAML document"},
    {"name: [[[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]]\n", "nested too deeply"},
    {"run: echo\n", "f:1:1: `name` is missing"},
    {"name:\nrun: echo\n", "f:1:1: `name` is missing"},
    {"name: 123456789012\nrun: echo\n", "f:1:7: `name` \"123456789012\" looks like a run's ID"},
    {"name: [a]\nrun: echo\n", "f:1:7: `name` must be a string"},
    {"name: \"a\\nb\"\nrun: echo\n", "f:1:7: `name` must be one line"},
    {"name: a\n", "f:1:1: nothing to start"},
    {"name: a\nmodle: demo\nrun: echo\n",
     "f:2:1: unknown key \"modle\" in a run file; did you mean `model`?"},
    {"name: a\nzzzzzzzzz: 1\nrun: echo\n",
     "f:2:1: unknown key \"zzzzzzzzz\" in a run file. Allowed keys: name, description"},
    {"name: a\nrun: x\nimport: {/c: {git: {url: 'https://me:pw@a.b/c'}}}\n",
     "f:3:26: `url` contains a user or password"},
    {"name: a\nrun: x\nimport: {/c: {git: {url: 'https://token@a.b/c'}}}\n",
     "f:3:26: `url` contains a user or password"},
    {"name: a\nrun: x\nimport: {/c: {git: {url: 'token@a.b/c'}}}\n",
     "f:3:26: `url` contains a user or password"},
    {"name: a\nrun: x\nimport: {/c: {git: {url: 'me:pw@a.b/c'}}}\n",
     "f:3:26: `url` contains a user or password"},
    {"name: a\nrun: x\nimport: {/c: {git: {url: 'ssh://me:pw@a.b/c'}}}\n",
     "f:3:26: `url` contains a user or password"},
    {"name: a\nrun: x\nimport: {/c: {git: {url: 'http://me:pw@a.b/c'}}}\n",
     "f:3:26: `url` contains a user or password"},
    {"name: a\nmodel: -x\n", "f:2:8: `model` \"-x\" is an option, not a model"},
    {"name: a\nmodel: 'hf://../x'\n", "f:2:8: `model`: "},
    {"name: a\nrun: {workdir: /x}\n", "f:2:6: an entry of `run` has no `command`"},
    {"name: a\nrun: {command: [a]}\n", "f:2:16: `command` must be a string"},
    {"name: a\nrun:\n  - command: a\n    workdir: /x/../../y\n",
     "f:4:14: \"/x/../../y\" is not an absolute path"},
    {"name: a\nrun: {command: a, workdir: x}\n", "f:2:28: \"x\" is not an absolute path"},
    /* Wrong ports are problems. */
    {"name: a\nrun: a\nports: {name: x}\n", "f:3:8: `ports` must be a list"},
    {"name: a\nrun: a\nports:\n  - {name: x, port: 1}\n  - {name: y, port: 1}\n",
     "f:5:5: port 1 is already used in line 4"},
    {"name: a\nrun: a\nports:\n  - {name: x, port: 1}\n  - {name: x, port: 2}\n",
     "f:5:5: the port name \"x\" is already used in line 4"},
    {"name: a\nrun: a\nports: [{name: x, port: 65536}]\n",
     "f:3:25: `port` must be a whole number from 1 to 65535"},
    {"name: a\nrun: a\nports: [{name: X, port: 1}]\n", "f:3:16: a port's `name`"},
    {"name: a\nrun: a\nports: [{name: x, port: 1, type: udp}]\n",
     "f:3:34: a port's `type` must be http or tcp"},
    {"name: a\nrun: a\nports: [{name: x}]\n", "f:3:9: an entry of `ports` needs `name` and `port`"},
    {"name: a\nmodel: demo\noptions: {port: 1}\nports: [{name: x, port: 2}]\n",
     "f:4:9: `ports` and line 3 both set `port`"},
    /* Wrong environment variables are problems. */
    {"name: a\nrun: a\nenv: {1x: a}\n", "f:3:7: `env`: \"1x\" is not a valid variable name"},
    {"name: a\nrun: a\nenv: {LD=x: a}\n", "is not a valid variable name"},
    {"name: a\nrun: a\nenv: {X: [a]}\n", "f:3:10: `env`: the value of X must be a string"},
    {"name: a\nrun: a\nenv: {X: }\n", "`env`: the value of X must be a string"},
    /* A wrong option or resource is a problem with the message of `cox up` and the line. */
    {"name: a\nmodel: demo\noptions:\n  tp: 2\n  max-model-len: many\n",
     "f:5:3: `options`: max_model_len: \"many\" is not allowed; it must be a whole number"},
    {"name: a\nmodel: demo\noptions: {max-modl-len: 1}\n",
     "f:3:11: `options`: max_modl_len: unknown option; did you mean max_model_len?"},
    {"name: a\nmodel: demo\noptions: {model: null2}\n",
     "f:3:11: `options` cannot contain the model"},
    {"name: a\nmodel: demo\noptions: {tokenizer: x}\n",
     "f:3:11: `options`: tokenizer is not supported"},
    {"name: a\nmodel: demo\noptions: {tp: 2}\nresources: {tp: 4}\n",
     "f:4:17: `resources` and line 3 both set `tp`"},
    {"name: a\nmodel: demo\noptions: {tensor_parallel_size: 2}\nresources: {tp: 4}\n",
     "both set `tp`"},
    {"name: a\nmodel: demo\nresources: {tp: 0}\n", "f:3:17: `options`: tp: \"0\" is not allowed"},
    {"name: a\nmodel: demo\noptions: {prefill-workers: 3, tp: 2}\n",
     "f:2:8: `cox up demo` would reject these options: --"},
    {"name: a\nrun: a\nresources: {tp: 2}\n",
     "f:3:17: `tp` is an option of `cox up`, but the file has no `model`"},
    {"name: a\nrun: a\nresources: {cpu: lots}\n", "f:3:18: `cpu` \"lots\" is not a quantity"},
    {"name: a\nrun: a\nresources: {memory: 0}\n", "f:3:21: `memory` \"0\" is not a quantity"},
    /* Wrong imports and volumes are problems. */
    {"name: a\nrun: a\nimport: {/: {git: {url: a.b/c}}}\n",
     "f:3:10: \"/\" is not an absolute path"},
    {"name: a\nrun: a\nimport: {/x/../y: {git: {url: a.b/c}}}\n",
     "f:3:10: \"/x/../y\" is not an absolute path"},
    {"name: a\nrun: a\nimport: {/x: {git: {url: 'ext::sh -c id'}}}\n",
     "f:3:26: `url` \"ext::sh -c id\" is not a valid URL"},
    {"name: a\nrun: a\nimport: {/x: {git: {url: 'ext::id'}}}\n",
     "f:3:26: `url` \"ext::id\" is not supported: use https://"},
    {"name: a\nrun: a\nimport: {/x: {git: {url: 'a@b::id'}}}\n",
     "f:3:26: `url` \"a@b::id\" is not supported: use https://"},
    {"name: a\nrun: a\nimport: {/x: {git: {url: --upload-pack=id}}}\n",
     "f:3:26: `url` \"--upload-pack=id\" is not a valid URL"},
    {"name: a\nrun: a\nimport: {/x: {git: {url: http://a.b/c}}}\n",
     "is not supported: use https://"},
    {"name: a\nrun: a\nimport: {/x: {git: {url: fd::17}}}\n", "is not supported: use https://"},
    {"name: a\nrun: a\nimport: {/x: {git: {url: a.b/c, ref: -x}}}\n",
     "f:3:38: `ref` \"-x\" is not the name of a branch"},
    {"name: a\nrun: a\nimport: {/x: {git: {url: a.b/c, ref: 'a:b'}}}\n",
     "`ref` \"a:b\" is not the name of a branch"},
    {"name: a\nrun: a\nimport: {/x: vessl-dataset://o/q}\n",
     "f:3:14: vessl-dataset://o/q belongs to another platform"},
    {"name: a\nrun: a\nexport: {/x: vessl-dataset://o/q}\n",
     "f:3:14: vessl-dataset://o/q belongs to another platform"},
    {"name: a\nrun: a\nimport: {/x: vessl-artifact://o/p}\n",
     "f:3:14: \"vessl-artifact://o/p\" is not an artifact"},
    {"name: a\nrun: a\nimport: {/x: vessl-artifact://o/p/q/r}\n", "is not an artifact: write"},
    {"name: a\nrun: a\nimport: {/x: vessl-artifact://o/../q}\n", "is not an artifact: write"},
    {"name: a\nrun: a\nexport: {/x: vessl-artifact://o//q}\n", "is not an artifact: write"},
    {"name: a\nrun: a\nexport: {/x: 'vessl-artifact://o/p/a b'}\n", "is not an artifact: write"},
    {"name: a\nrun: a\nimport: {/x: {artifact: q}}\n",
     "f:3:25: `artifact` belongs to another platform"},
    {"name: a\nrun: a\nimport: {/x: file:data}\n", "f:3:14: file:data is not an absolute path"},
    {"name: a\nrun: a\nimport: {/x: what}\n", "f:3:14: \"what\" cannot be imported"},
    {"name: a\nrun: a\nimport: {/x: file:/d}\nvolumes: {/x/y: {size: 1Gi}}\n",
     "f:4:11: \"/x/y\" and \"/x\" of line 3 are the same path or inside each other"},
    {"name: a\nrun: a\nvolumes: {/x: {size: big}}\n", "f:3:22: `size` \"big\""},
    {"name: a\nrun: a\nvolumes: {/x: {claim: A_b}}\n", "f:3:23: `claim` \"A_b\""},
    {"name: a\nrun: a\nvolumes: {/x: {host: rel}}\n", "f:3:22: \"rel\" is not an absolute path"},
    {"name: a\nrun: a\nvolumes: {/x: {host: /y, size: 1Gi}}\n",
     "f:3:15: a volume must have exactly one of"},
    {"name: a\nrun: a\nmonitoring: maybe\n", "f:3:13: `monitoring` must be true or false"},
    {"name: a\nrun: a\nimage: a b\n", "f:3:8: `image` \"a b\""},
    {"name: a\nrun: a\ntags: x\n", "f:3:7: `tags` must be a list"},
};

static void test_refused(void **state)
{
    CHECK(refused);
}

/* All problems of a file are reported, in the order of their lines. */
static void test_all_at_once(void **state)
{
    struct parsed p;
    parse(&p, "monitoring: 3\nname: 12\nmodel: demo\noptions: {tp: x}\nport: 1\n");
    assert_string_equal(
        strbuf_str(&p.lines).ptr,
        "f:1:13: `monitoring` must be true or false\n"
        "f:2:7: `name` \"12\" looks like a run's ID, because it has only digits. Add a letter\n"
        "f:4:11: `options`: tp: \"x\" is not allowed; it must be a whole number from 1 to 1024\n"
        "f:5:1: unknown key \"port\" in a run file; did you mean `ports`?\n");
    drop(&p);
    struct strbuf many;
    strbuf_init(&many, 0);
    strbuf_append_c(&many, "name: a\nrun: echo\n");
    for (int i = 0; i < 60; i++)
        strbuf_printf(&many, "x%d: 1\n", i);
    parse(&p, many.ptr);
    assert_non_null(strstr(p.lines.ptr, "f: 10 more problems are not shown\n"));
    drop(&p);
    strbuf_fini(&many);
}

/* VESSL's example, with a different command, is a valid run file. */
static void test_of_another_platform(void **state)
{
    struct parsed p;
    struct strbuf text;
    struct error err;
    strbuf_init(&text, 0);
    assert_int_equal(run_file_read("tests/e2e/runs/vessl.yaml", &text, &err), STATUS_OK);
    parse(&p, text.ptr);
    assert_int_equal(p.problems.n, 0);
    /* one note is for the cluster and one for the preset */
    assert_int_equal(p.problems.n_notes, 2);
    assert_string_equal(p.file.commands.items[0].workdir, "/code/vllm-run");
    assert_int_equal(p.file.ports.n, 2);
    assert_int_equal(p.file.env.n, 2);
    assert_true(p.file.env.items[1].is_taken);
    drop(&p);
    strbuf_fini(&text);
}

/* The lines that VESSL's users write to keep a cache between runs are accepted. */
static void test_artifacts(void **state)
{
    struct parsed p;
    parse(&p, "name: a\nrun: a\n"
              "import:\n"
              "  /root/.cache/huggingface/: vessl-artifact://{ORGANIZATION}/{PROJECT}/models\n"
              "  /data: vessl-artifact://o/p/data\n"
              "export:\n"
              "  /root/.cache/huggingface/: vessl-artifact://{ORGANIZATION}/{PROJECT}/models\n"
              "  /out: vessl-artifact://o/p/data\n");
    assert_int_equal(p.problems.n, 0);
    assert_int_equal(p.problems.n_notes, 2); /* each name in braces has one note */
    const struct run_import *im = p.file.imports.items, *ex = p.file.exports.items;
    assert_int_equal(im[0].kind, RUN_IMPORT_ARTIFACT);
    assert_string_equal(im[0].what, "{ORGANIZATION}/{PROJECT}/models");
    assert_true(run_file_keeps(&p.file, &im[0]) && run_file_keeps(&p.file, &ex[0]));
    assert_false(run_file_keeps(&p.file, &im[1])); /* the artifact is exported from another path */
    assert_false(run_file_keeps(&p.file, &ex[1]));
    assert_string_equal(run_file_hf_home(&p.file), "/root/.cache/huggingface");
    drop(&p);
    parse(&p, "name: a\nrun: a\nvolumes: {/root/.cache/huggingface: {size: 1Gi}}\n"
              "env: {HF_HOME: /elsewhere}\n");
    assert_null(run_file_hf_home(&p.file));
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),     cmocka_unit_test(test_taken),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_artifacts), cmocka_unit_test(test_of_another_platform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
