/* Tests the tables of commands and flags: suggestions for a mistyped name, shell completion,
 * docs/reference/flags.md, vLLM's command lines, server-sent events, and warnings about the
 * machine's limits. Each test calls a pure function and compares its text. Invariant: the
 * documents in the repository equal the tables. */
#include "cli/base/command_line.h"
#include "cli/commands/documents/environment.h"
#include "cli/commands/documents/flags.h"
#include "cli/commands/list.h"
#include "cli/table.h"
#include "cli/up/plan/options.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/client/sse_reader.h"
#include "cli/commands/completion.h"
#include "cli/up/prepare/preflight.h"

static void test_nearest(void **state)
{
    static const char *const cases[][2] = {
        {"statsu", "status"},
        {"statu", "status"},
        {"wroker", "worker"},
        {"jointoken", "join-token"},
        {"u", "up"},
        {"vesrion", "version"},
        {"xyzzy", NULL},
        {"flagz", NULL},
        {"drian", "drain"},
        {"undrian", "undrain"},
        {"models lst", "models list"},
        {"models allias", "models alias"},
        {"models status", NULL},
        {"bench lst", NULL},
        {"a-name-that-is-much-longer-than-any-command-is", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct command *c = command_nearest(&commands, cases[i][0]);
        const char *got = c ? c->name : "(none)";
        if (strcmp(got, cases[i][1] ? cases[i][1] : "(none)") != 0)
            fail_msg("%s: %s", cases[i][0], got);
    }
    for (size_t i = 0; i < commands.n; i++)
        assert_ptr_equal(command_find(&commands, commands.rows[i].name), &commands.rows[i]);
}

static void test_completion(void **state)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    struct strbuf b;
    strbuf_init(&b, 0);
    for (size_t i = 0; i < 3; i++) {
        strbuf_reset(&b);
        assert_true(completion_write(&commands, shells[i], &b));
        assert_non_null(strstr(b.ptr, "status"));
        assert_non_null(strstr(b.ptr, "tensor-parallel-size"));
        assert_non_null(strstr(b.ptr, "no-async-scheduling"));
        /* the script also has flags of the worker */
        assert_non_null(strstr(b.ptr, "null-stall-after-step"));
        assert_null(strstr(b.ptr, "enable-dbo"));
        /* the script also has the subcommands of `cox run` */
        assert_non_null(strstr(b.ptr, "terminate"));
    }
    assert_false(completion_write(&commands, "tcsh", &b));
    strbuf_fini(&b);
}

static void check_page(const char *path, const char *command,
                       void (*write)(const struct command_table *t, struct strbuf *out))
{
    struct strbuf want;
    strbuf_init(&want, 0);
    write(&commands, &want);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s: run the test in the source folder", path);
    char *have = calloc(1, want.len + 2);
    size_t n = fread(have, 1, want.len + 1, f);
    fclose(f);
    if (n != want.len || memcmp(have, want.ptr, n) != 0)
        fail_msg("%s is old: %s > %s", path, command, path);
    free(have);
    strbuf_fini(&want);
}

static void test_pages_are_current(void **state)
{
    check_page("docs/reference/flags.md", "cox flags", flags_write_markdown);
    check_page("docs/reference/environment.md", "cox flags --environment",
               environment_write_markdown);
}

static size_t count_in_groups(const struct command *c, const struct option_spec *s)
{
    size_t n = 0;
    const struct option_spec *found;
    for (const struct option_group *g = c->groups; g->key; g++)
        for (size_t i = 0; (found = help_option_at(g, c->specs, *c->n_specs, i, NULL)); i++)
            n += found == s;
    return n;
}

/* When a command has groups of options, each listed option is in exactly one group. */
static void test_groups(void **state)
{
    for (size_t i = 0; i < commands.n; i++) {
        const struct command *c = &commands.rows[i];
        size_t n = 0;
        for (size_t k = 0; c->specs && k < *c->n_specs; k++) {
            bool is_listed = help_is_listed(&c->specs[k]);
            n += is_listed;
            if (c->groups && is_listed && count_in_groups(c, &c->specs[k]) != 1)
                fail_msg("cox %s --%s: %zu groups have it (common/options/groups.c)", c->name,
                         c->specs[k].name, count_in_groups(c, &c->specs[k]));
        }
        if (n > HELP_SHORT_TABLE && !c->groups)
            fail_msg("cox %s: %zu options without groups", c->name, n);
    }
}

/* Checks that a table has each name in a list of groups. A name without a table row belongs to a
 * removed option. */
static void check_names_of_groups(const struct option_group *groups)
{
    for (const struct option_group *g = groups; g->key; g++) {
        char names[2048], *save;
        snprintf(names, sizeof names, "%s", g->names);
        for (char *w = strtok_r(names, " *", &save); w; w = strtok_r(NULL, " *", &save)) {
            bool found = false;
            for (size_t i = 0; i < commands.n; i++)
                for (size_t k = 0; commands.rows[i].specs && k < *commands.rows[i].n_specs; k++)
                    found = found || strcmp(commands.rows[i].specs[k].name, w) == 0;
            if (!found)
                fail_msg("group %s: no command has --%s", g->key, w);
        }
    }
}

static void test_names_of_groups(void **state)
{
    for (size_t i = 0; i < commands.n; i++)
        if (commands.rows[i].groups)
            check_names_of_groups(commands.rows[i].groups);
}

/* `cox help` lists each command once. */
static void test_sections(void **state)
{
    for (size_t i = 0; i < commands.n; i++) {
        const struct command *c = &commands.rows[i];
        size_t n = 0;
        for (const struct command_section *s = commands.sections; s->title; s++) {
            char names[256], *save;
            snprintf(names, sizeof names, "%s", s->names);
            for (char *w = strtok_r(names, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
                n += strcmp(w, c->name) == 0;
                if (!command_find(&commands, w))
                    fail_msg("cox help: no command \"%s\"", w);
            }
        }
        if (n != (c->help && !strchr(c->name, ' ')))
            fail_msg("cox help lists %s %zu times", c->name, n);
    }
}

/* The help of `cox up` may repeat the default of another program, as in "0 = the head's default,
 * 256.". The number must be that program's default. */
static void test_defaults_that_texts_repeat(void **state)
{
    static const char *const programs[][2] = {{"head", "the head's default, "},
                                              {"worker", "the worker's default, "}};
    size_t n = 0;
    for (size_t i = 0; i < up_n_specs; i++)
        for (size_t p = 0; p < 2; p++) {
            const struct command *c = command_find(&commands, programs[p][0]);
            const char *at = up_specs[i].help ? strstr(up_specs[i].help, programs[p][1]) : NULL;
            for (size_t k = 0; at && k < *c->n_specs; k++) {
                if (strcmp(c->specs[k].name, up_specs[i].name) != 0)
                    continue;
                double said = strtod(at + strlen(programs[p][1]), NULL);
                n++;
                if (said != strtod(c->specs[k].def, NULL))
                    fail_msg("cox up --%s: %g, cox %s has %s", up_specs[i].name, said,
                             programs[p][0], c->specs[k].def);
            }
        }
    assert_true(n >= 7);
}

/* A help text is a sentence. It begins with a capital or a name, and it ends with a full stop. */
static void test_help_is_sentences(void **state)
{
    for (size_t i = 0; i < commands.n; i++) {
        const struct command *c = &commands.rows[i];
        for (size_t k = 0; c->specs && k < *c->n_specs; k++) {
            const struct option_spec *s = &c->specs[k];
            const char *text = s->help ? s->help : s->instead ? s->instead : "A.";
            size_t n = strlen(text);
            if (strchr("abcdefghijklmnopqrstuvwxyz", text[0]) || text[n - 1] != '.')
                fail_msg("cox %s --%s: %s", c->name, s->name, text);
        }
    }
}

/* The JSON has one object for each option of each program, under the name that a configuration
 * file uses. */
static void test_flags_as_json(void **state)
{
    static const char *const want[] = {
        ("{\"name\": \"max_num_seqs\", \"type\": \"int\", \"default\": \"256\", \"help\": "
         "\"Maximum number of sequences in one step.\", \"min\": 1, \"max\": 65536, \"secret\": "
         "false}"),
        "\"choices\": [\"fcfs\", \"priority\"]",
        "{\"name\": \"api_key\", \"type\": \"list\"",
        "\n  \"worker\": [\n    {\"name\": \"model\", \"type\": \"string\", \"default\": \"null\"",
    };
    struct strbuf b;
    strbuf_init(&b, 0);
    flags_write_json(&commands, &b);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(b.ptr, want[i]))
            fail_msg("not there: %s", want[i]);
    assert_non_null(strstr(strstr(b.ptr, "\"name\": \"api_key\""), "\"secret\": true"));
    json_t *all = json_loads(b.ptr, 0, NULL);
    assert_non_null(all);
    const struct command *head = command_find(&commands, "head");
    assert_int_equal(json_array_size(json_object_get(all, "head")), *head->n_specs);
    json_decref(all);
    strbuf_fini(&b);
}

/* Real command lines of `vllm serve` are accepted with a known number of warnings, or refused in
 * one sentence that names the flag. */
static void test_command_lines_of_vllm(void **state)
{
    static const struct {
        const char *line, *error;
        size_t n_warnings;
    } cases[] = {
        {"MODEL --max-model-len 65536 --disable-frontend-multiprocessing", NULL, 1},
        {"--model MODEL --served-model-name a b --host 0.0.0.0 --port 8000 --seed -1", NULL, 1},
        {"--host 0.0.0.0 --dtype auto --gpu-memory-utilization 0.9 --trust-remote-code "
         "--enforce-eager MODEL",
         NULL, 1},
        {"MODEL -tp 4 -pp 2 -dp 2 --distributed-executor-backend ray --swap-space 4 "
         "--max-num-queued-reqs 100 --disable-log-requests --api-key k",
         NULL, 3},
        {"-O3 --cudagraph-capture-sizes 1 2 4 8 MODEL --compilation-config "
         "{\"cudagraph_mode\":\"PIECEWISE\"}",
         NULL, 3},
        {"MODEL --speculative-config {\"method\":\"ngram\",\"num_speculative_tokens\":3}", NULL, 0},
        {"MODEL -sc {\"method\":\"ngram\"} --spec-tokens 5 --ngram-prompt-lookup-max 4", NULL, 0},
        {"MODEL --speculative-model [ngram] --num-speculative-tokens 5 --num-lookahead-slots 5",
         NULL, 1},
        {"MODEL --spec-model SMALL --spec-method draft_model --spec-tokens 5 "
         "--speculative-draft-tensor-parallel-size 1",
         NULL, 1},
        {"MODEL --num-speculative-tokens 17", "--num-speculative-tokens", 0},
        {"MODEL --speculative-config.method ngram", "--speculative-config", 0},
        {"MODEL --load-format safetensors --quantization None --revision main --nnodes 1 "
         "--generation-config vllm --runner generate",
         NULL, 2},
        {"MODEL --generation-config auto --allowed-origins [\"*\"] --allow-credentials --root-path "
         "/x",
         NULL, 0},
        {"MODEL --load-format runai_streamer", NULL, 0},
        {"MODEL --load-format tensorizer", "dummy", 0},
        {"MODEL --enable-chunked-prefill False --no-enable-prefix-caching "
         "--max_num_batched_tokens 8k --scheduling-policy fcfs --shutdown-timeout 30",
         NULL, 1},
        {"MODEL --enable-auto-tool-choice --tool-call-parser hermes", NULL, 0},
        {"MODEL --reasoning-parser deepseek_r1", NULL, 0},
        {"--structured-outputs-config.disable_any_whitespace true MODEL "
         "--structured-outputs-config.backend=xgrammar --guided-decoding-disable-any-whitespace",
         NULL, 1},
        {"MODEL --tool-parser-plugin x.py", "--tool-call-parser", 0},
        {"MODEL --enable-lora --lora-root /x --max-loras 2 --lora-modules sql=/x/a b=c", NULL, 0},
        {"MODEL --quantization awq", "--quantization", 0},
        {"MODEL -q awq", "-q: \"awq\"", 0},
        {"MODEL --tokenizer other/model", "--tokenizer", 0},
        {"MODEL -tp 8 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1", "cox join-token", 0},
        {"MODEL --dtype half", NULL, 0},
        /* this flag is Coxswain's own, and it has no effect alone */
        {"MODEL --elastic-tp-wait 3", NULL, 1},
        {"MODEL --elastic-tp --elastic-tp-wait 3", NULL, 0},
        {"MODEL --dtype bfloat16 --kv-cache-dtype auto", NULL, 0},
        {"MODEL --dtype int8", "half|float32|float", 0},
        {"MODEL --kv-cache-dtype fp8_e5m2", "fp8_per_token_head", 0},
        {"MODEL --ssl-keyfile k --ssl-certfile c --ssl-ca-certs a --ssl-cert-reqs 2 "
         "--enable-ssl-refresh --ssl-ciphers x --uds /s",
         NULL, 0},
        {"MODEL --ssl-cert-reqs 3", "--ssl-cert-reqs", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct up_options o = {0};
        struct config_result res;
        struct error err = {0};
        char text[512], *argv[32] = {(char[]){"serve"}}, *save, *no_env[] = {NULL};
        int argc = 1;
        snprintf(text, sizeof text, "%s", cases[i].line);
        for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
            argv[argc++] = w;
        enum status s = config_parse(up_specs, up_n_specs, argc, argv, no_env, &o, &res, &err);
        bool right = s == STATUS_OK && !cases[i].error &&
                     res.warnings.n_items == cases[i].n_warnings && res.positional.n_items == 1 &&
                     strcmp(res.positional.items[0], "MODEL") == 0;
        if (cases[i].error)
            right = s != STATUS_OK && strstr(err.text, cases[i].error);
        if (!right)
            fail_msg("%s: %zu warnings, %s", cases[i].line, res.warnings.n_items, err.text);
        config_fini(&res);
    }
}

/* Every row specifies how the flag is handled. The row of a refused flag has advice. */
static void test_rows_of_vllm(void **state)
{
    for (size_t i = 0; i < up_n_specs; i++) {
        const struct option_spec *s = &up_specs[i];
        if (s->type == OPTION_REFUSED && (!s->instead || (s->takes == TAKES_NOTHING && s->choices)))
            fail_msg("--%s: what instead?", s->name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->name, up_specs[k].name) == 0)
                fail_msg("--%s: twice", s->name);
    }
}

static void append_line(void *ctx, struct str data)
{
    struct strbuf *b = ctx;
    strbuf_append_str(b, data);
    strbuf_append_c(b, ";");
}

static void test_sse(void **state)
{
    const char text[] =
        ": hello\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:two\n\ndata: \ndata: [DONE]\n";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct strbuf got;
        struct sse_reader r;
        strbuf_init(&got, 0);
        sse_reader_init(&r, append_line, &got);
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            size_t left = sizeof text - 1 - at;
            assert_true(sse_reader_feed(&r, (struct str){text + at, left < piece ? left : piece}));
        }
        assert_string_equal(got.ptr, "{\"a\":1};two;;[DONE];");
        sse_reader_fini(&r);
        strbuf_fini(&got);
    }
}

static void test_limits(void **state)
{
    static const struct {
        struct machine_limits l;
        uint32_t n_workers;
        bool on_gpus;
        const char *words; /* words of the expected warning; NULL = no warning */
    } cases[] = {
        {{UINT64_MAX, UINT64_MAX}, 8, true, NULL}, {{1024, UINT64_MAX}, 1, false, "open files"},
        {{65536, 1 << 20}, 8, false, NULL},        {{65536, 64 << 20}, 2, true, "/dev/shm"},
        {{65536, 64 << 20}, 1, true, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct strbuf b;
        strbuf_init(&b, 0);
        preflight_warnings(&cases[i].l, cases[i].n_workers, cases[i].on_gpus, &b);
        if (cases[i].words ? !b.ptr || !strstr(b.ptr, cases[i].words) : b.len != 0)
            fail_msg("case %zu: %s", i, b.ptr ? b.ptr : "");
        strbuf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_pages_are_current),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_names_of_groups),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_defaults_that_texts_repeat),
        cmocka_unit_test(test_help_is_sentences),
        cmocka_unit_test(test_flags_as_json),
        cmocka_unit_test(test_command_lines_of_vllm),
        cmocka_unit_test(test_rows_of_vllm),
        cmocka_unit_test(test_sse),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
