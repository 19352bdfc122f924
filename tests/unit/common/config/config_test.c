/* Tests the parser of options: command lines, environment variables and YAML files, for a small
 * table of options in this file. `parse` and `parse_yaml` run the parser. The tests compare the
 * values, warnings and errors. A command line overrides the environment, the environment
 * overrides the file, and a secret is never in an output. */
#include "common/config/argv.h"
#include "common/config/config.h"
#include "common/config/help.h"
#include "common/config/hide.h"
#include "common/config/print.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct sample {
    struct option_list passes;
    int64_t seqs, big;
    double util;
    const char *model, *key, *service, *guess;
    bool caching, eager;
    int64_t wait_s, path_s;
    int device;
    struct option_list names, aliases, roots;
};

static const struct option_spec specs[] = {
    OPT_INT(sample, seqs, "max-num-seqs", 1, 65536, "256", "sequences at once"),
    {.name = "big", .type = OPTION_INT, .offset = offsetof(struct sample, big), .help = "any"},
    {.name = "service",
     .type = OPTION_STRING,
     .offset = offsetof(struct sample, service),
     .env = "OTHERS_TRACES_NAME,OTHERS_NAME",
     .help = "a name that another standard has, too"},
    {.name = "guess",
     .type = OPTION_STRING,
     .offset = offsetof(struct sample, guess),
     .help = "a JSON object",
     .json = true},
    OPT_FLOAT(sample, util, "utilization", 0.1, 1.0, "0.9", "share of memory"),
    {.name = "model",
     .aliases = "model-path,m",
     .type = OPTION_STRING,
     .offset = offsetof(struct sample, model),
     .help = "the model"},
    {.name = "api-key",
     .type = OPTION_STRING,
     .offset = offsetof(struct sample, key),
     .help = "a key",
     .secret = true},
    {.name = "pass",
     .type = OPTION_LIST,
     .offset = offsetof(struct sample, passes),
     .help = "words that open",
     .env = "OTHERS_PASS",
     .secret = true},
    OPT_BOOL(sample, caching, "prefix-caching", "true", "reuse prefixes"),
    OPT_BOOL(sample, eager, "no-wait", NULL, "a name that starts with no-"),
    {.name = "wait-s",
     .type = OPTION_INT,
     .offset = offsetof(struct sample, wait_s),
     .env = "OTHERS_WAIT",
     .def = "5",
     .help = "of a switch",
     .needs = "no-wait"},
    {.name = "path-s",
     .type = OPTION_INT,
     .offset = offsetof(struct sample, path_s),
     .help = "of a text",
     .needs = "model"},
    OPT_ENUM(sample, device, "device", "auto|cpu|cuda", "auto", "where to run"),
    OPT_LIST(sample, names, "served-model-name", "names"),
    OPT_WORDS(sample, aliases, "alias", WORDS_ARE_VALUES, "more names"),
    OPT_WORDS(sample, roots, "root", WORDS_ARE_VALUES_BUT_ONE, "folders"),
    OPT_IGNORED("swap-space", TAKES_ONE, "there is none"),
    OPT_IGNORED("eager", TAKES_NOTHING, NULL),
    OPT_IGNORED("token", TAKES_PERHAPS_ONE, NULL),
    OPT_IGNORED("sizes", TAKES_MANY, NULL),
    {.name = "level", .aliases = "O", .type = OPTION_IGNORED, .takes = TAKES_ONE},
    OPT_REFUSED("adapters", TAKES_NOTHING, NULL, "there are none yet"),
    OPT_REFUSED("nodes", TAKES_ONE, "1|one", "join them"),
    {.name = "main", .type = OPTION_ARGUMENT, .help = "the same as a bare word"},
};
enum { N_SPECS = sizeof specs / sizeof *specs };

struct parsed {
    struct sample c;
    struct config_result res;
    struct error err;
    enum status s;
};

/* Parses command-line words and environment words. In each text blanks separate the words. */
static struct parsed parse(const char *args, const char *env)
{
    static char text[2][2048];
    static char *words[2][64];
    struct parsed p = {.s = STATUS_OK};
    int n[2] = {1, 0};
    words[0][0] = (char *)"prog";
    for (int i = 0; i < 2; i++) {
        char *save;
        snprintf(text[i], sizeof text[i], "%s", i ? env : args);
        for (char *w = strtok_r(text[i], " ", &save); w; w = strtok_r(NULL, " ", &save))
            words[i][n[i]++] = w;
        words[i][n[i]] = NULL;
    }
    p.s = config_parse(specs, N_SPECS, n[0], words[0], words[1], &p.c, &p.res, &p.err);
    return p;
}

static void test_defaults(void **state)
{
    struct parsed p = parse("", "");
    assert_int_equal(p.s, STATUS_OK);
    assert_int_equal(p.c.seqs, 256);
    assert_true(p.c.util > 0.89 && p.c.util < 0.91);
    assert_null(p.c.model);
    assert_true(p.c.caching);
    assert_false(p.c.eager);
    assert_int_equal(p.c.device, 0);
    assert_int_equal(p.c.names.n_items, 0);
    assert_int_equal(p.res.warnings.n_items, 0);
    config_fini(&p.res);
}

static void test_spellings(void **state)
{
    static const struct {
        const char *args, *env;
        int64_t seqs, big;
        bool caching, eager;
        int device;
    } cases[] = {
        {"--max-num-seqs 7", "", 7, 0, true, false, 0},
        {"--max_num_seqs=7", "", 7, 0, true, false, 0},
        {"--max-num-seqs=1k", "", 1000, 0, true, false, 0},
        {"--max-num-seqs=1Ki", "", 1024, 0, true, false, 0},
        {"--max-num-seqs=2K", "", 2048, 0, true, false, 0},
        {"--big -3m", "", 256, -3000000, true, false, 0},
        {"--big 8Gi", "", 256, 8ll << 30, true, false, 0},
        {"--no-prefix-caching", "", 256, 0, false, false, 0},
        {"--no_prefix_caching --no-wait", "", 256, 0, false, true, 0},
        {"--prefix-caching=off", "", 256, 0, false, false, 0},
        {"--device cuda", "", 256, 0, true, false, 2},
        {"--max-num-seqs 7 --max-num-seqs 8", "", 8, 0, true, false, 0},
        {"", "COX_MAX_NUM_SEQS=9 COX_DEVICE=cpu", 9, 0, true, false, 1},
        {"--max-num-seqs 7", "COX_MAX_NUM_SEQS=9", 7, 0, true, false, 0},
        {"", "COX_MAX_NUM_SEQS= OTHER=1 COX_UNRELATED=x", 256, 0, true, false, 0},
        {"", "COX_NO_WAIT=1 COX_PREFIX_CACHING=no", 256, 0, false, true, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse(cases[i].args, cases[i].env);
        if (p.s != STATUS_OK)
            print_error("case %zu: %s\n", i, p.err.text);
        assert_int_equal(p.s, STATUS_OK);
        assert_int_equal(p.c.seqs, cases[i].seqs);
        assert_int_equal(p.c.big, cases[i].big);
        assert_int_equal(p.c.caching, cases[i].caching);
        assert_int_equal(p.c.eager, cases[i].eager);
        assert_int_equal(p.c.device, cases[i].device);
        config_fini(&p.res);
    }
}

/* An option that needs another option must give a warning when that other option is off. */
static void test_given_without_its_partner(void **state)
{
    static const struct {
        /* words of the command line and of the environment, and the warning; NULL = no warning */
        const char *args, *env, *want;
    } cases[] = {
        {"", "", NULL},
        {"--wait-s 5", "", "--wait-s has no effect without --no-wait"},
        {"--wait-s 7 --no-wait", "", NULL},
        {"--wait-s 7", "COX_NO_WAIT=1", NULL},
        {"--no-wait=false --wait-s 7", "", "--wait-s has no effect without --no-wait"},
        {"", "COX_WAIT_S=7", "COX_WAIT_S has no effect without COX_NO_WAIT"},
        {"--path-s 1", "", "--path-s has no effect without --model"},
        {"--path-s 1 --model=", "", "--path-s has no effect without --model"},
        {"--path-s 1 --model x", "", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse(cases[i].args, cases[i].env);
        assert_int_equal(p.s, STATUS_OK);
        assert_int_equal(p.res.warnings.n_items, cases[i].want ? 1 : 0);
        if (cases[i].want)
            assert_string_equal(p.res.warnings.items[0], cases[i].want);
        config_fini(&p.res);
    }
}

static void test_names_of_another_standard(void **state)
{
    static const struct {
        const char *args, *env, *want;
    } cases[] = {
        {"", "OTHERS_NAME=a", "a"},
        {"", "OTHERS_NAME=a OTHERS_TRACES_NAME=b", "b"},
        {"", "OTHERS_TRACES_NAME= OTHERS_NAME=a OTHERS_NAMES=c", "a"},
        {"", "COX_SERVICE=c OTHERS_NAME=a", "c"},
        {"--service d", "COX_SERVICE=c OTHERS_NAME=a", "d"},
        {"", "XOTHERS_NAME=a OTHERS_NAME", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse(cases[i].args, cases[i].env);
        assert_int_equal(p.s, STATUS_OK);
        if (!cases[i].want)
            assert_null(p.c.service);
        else
            assert_string_equal(p.c.service, cases[i].want);
        config_fini(&p.res);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *args, *env, *in_text;
    } cases[] = {
        {"--max-num-seqs 0", "", "--max-num-seqs: \"0\" is not allowed"},
        {"--max-num-seqs 65537", "", "from 1 to 65536"},
        {"--max-num-seqs 99999999999999999999", "", "whole number"},
        {"--max-num-seqs 9223372036854775807k", "", "whole number"},
        {"--max-num-seqs abc", "", "\"abc\""},
        {"--max-num-seqs k", "", "\"k\""},
        {"--max-num-seqs", "", "--max-num-seqs needs a value"},
        {"--max-num-seqs --device", "", "--max-num-seqs needs a value"},
        {"--max-num-seq 3", "", "did you mean --max-num-seqs?"},
        {"--num-seqs 3", "", "did you mean --max-num-seqs?"},
        {"--seqs=3", "", "did you mean --max-num-seqs?"},
        {"--eqs 3", "", "unknown option; --help"},
        {"--zzzzzzzzzzzzzzzzzzzz", "", "unknown option; --help"},
        {"-x", "", "unknown option"},
        {"--verison", "", "did you mean --version?"},
        {"--utilization nan", "", "from 0.1 to 1"},
        {"--utilization -inf", "", "from 0.1 to 1"},
        {"--utilization 1.5", "", "from 0.1 to 1"},
        {"--device gpu", "", "one of auto|cpu|cuda"},
        {"--device=", "", "one of auto|cpu|cuda"},
        {"--prefix-caching=maybe", "", "true or false"},
        {"--no-prefix-caching=true", "", "unknown option"},
        {"--no-model", "", "unknown option"},
        {"", "COX_MAX_NUM_SEQS=x", "COX_MAX_NUM_SEQS: \"x\""},
        {"", "COX_MAX_NUM_SEQS=tcp://10.0.0.1:80", "enableServiceLinks"},
        {"--config /nonexistent/cox.yaml", "", "/nonexistent/cox.yaml: No such file"},
        {"--config", "", "--config needs a value"},
        /* The error has the user's spelling, not the table's. */
        {"--model-path", "", "--model-path needs a value"},
        {"-m", "", "-m needs a value"},
        {"--max_num_seqs x", "", "--max_num_seqs: \"x\""},
        {"--max_num_seqs=x", "", "--max_num_seqs: \"x\""},
        {"", "OTHERS_WAIT=x", "OTHERS_WAIT: \"x\""},
        {"", "OTHERS_PASS=\t\n", "OTHERS_PASS is set but has no value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse(cases[i].args, cases[i].env);
        if (p.s == STATUS_OK || !strstr(p.err.text, cases[i].in_text))
            print_error("case %zu: %s\n", i, p.s ? p.err.text : "was accepted");
        assert_int_not_equal(p.s, STATUS_OK);
        assert_non_null(strstr(p.err.text, cases[i].in_text));
        assert_null(p.res.owned);
        config_fini(&p.res);
    }
}

/* vLLM's command lines are accepted. A case has the positional arguments that are left, the
 * number of warnings, or the error. */
static void test_flags_of_vllm(void **state)
{
    static const struct {
        const char *args, *positional, *error;
        size_t n_warnings;
    } cases[] = {
        {"--eager m", "m", NULL, 1},
        {"--no-eager m --eager", "m", NULL, 1},
        {"--eager false m", "m", NULL, 1},
        {"--eager=True m", "m", NULL, 1},
        {"m --swap-space -1 --swap-space 4", "m", NULL, 1},
        {"--swap_space=4 m", "m", NULL, 1},
        {"--swap-space.key 4 m", "m", NULL, 1},
        {"--swap-space", NULL, "--swap-space needs a value", 0},
        {"--swap-space --eager", NULL, "--swap-space needs a value", 0},
        {"m --no-swap-space", NULL, "--no-swap-space: unknown option", 0},
        {"-O3 m", "m", NULL, 1},
        {"-O 3 m", "m", NULL, 1},
        {"-O=3 m", "m", NULL, 1},
        {"-O.mode=3 m", "m", NULL, 1},
        {"-O.mode 3 m", "m", NULL, 1},
        {"-Z3 m", NULL, "-Z3: unknown option", 0},
        {"m --token", "m", NULL, 1},
        {"m --token x --eager", "m", NULL, 2},
        {"--sizes 1 2 4 --eager m", "m", NULL, 2},
        {"--sizes 1 2 4 m", "m", NULL, 1},
        {"m --sizes 1 2 4", "m", NULL, 1},
        {"m --adapters", NULL, "--adapters is not supported. there are none yet", 0},
        {"m --no-adapters", "m", NULL, 1},
        {"m --adapters=false", "m", NULL, 1},
        {"m --nodes 2", NULL, "--nodes is not supported. join them", 0},
        {"m --nodes one --nodes 1", "m", NULL, 1},
        {"m --nodes.x 1", "m", NULL, 1},
        {"--main m --eager", "m", NULL, 1},
        {"--main=m --root a b", "m", NULL, 0},
        {"--main m n", "m n", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p = parse(cases[i].args, "COX_ADAPTERS=1 COX_SWAP_SPACE=4");
        char got[256] = "";
        for (size_t k = 0; k < p.res.positional.n_items; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", k ? " " : "",
                     p.res.positional.items[k]);
        if (cases[i].error ? p.s == STATUS_OK || !strstr(p.err.text, cases[i].error)
                           : p.s != STATUS_OK || strcmp(got, cases[i].positional) != 0 ||
                                 p.res.warnings.n_items != cases[i].n_warnings)
            fail_msg("%s: \"%s\", %zu warnings, %s", cases[i].args, got, p.res.warnings.n_items,
                     p.err.text);
        config_fini(&p.res);
    }
}

/* A positional argument may also be given by its name. The command line has precedence, then the
 * environment, then the file. */
static void test_argument_by_name(void **state)
{
    char path[] = "/tmp/cox-config-XXXXXX", args[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "main: from_file\nsizes: [1, {a: [2]}]\nswap_space: {a: 1}\n"
                               "adapters: False\nprefix_caching: False\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    static const struct {
        const char *args, *env, *want;
    } cases[] = {
        {"", "", "from_file"},
        {"", "COX_MAIN=from_env", "from_env"},
        {"typed", "COX_MAIN=from_env", "typed"},
        {"--main typed", "COX_MAIN=from_env", "typed"},
        {"--root a b", "", "from_file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(args, sizeof args, "--config %s %s", path, cases[i].args);
        struct parsed p = parse(args, cases[i].env);
        if (p.s != STATUS_OK || p.res.positional.n_items != 1 ||
            strcmp(p.res.positional.items[0], cases[i].want) != 0)
            fail_msg("%s %s: %s", cases[i].args, cases[i].env, p.err.text);
        assert_false(p.c.caching);
        assert_int_equal(p.res.warnings.n_items, 3);
        config_fini(&p.res);
    }
    unlink(path);
}

static void test_lists_positionals_ignored(void **state)
{
    struct parsed p = parse("serve --served-model-name a --served-model-name=b,c --swap-space 4 "
                            "-m path --swap-space=5 -- --x -",
                            "COX_SERVED_MODEL_NAME=e1,e2");
    assert_int_equal(p.s, STATUS_OK);
    assert_int_equal(p.c.names.n_items, 2);
    assert_string_equal(p.c.names.items[0], "a");
    assert_string_equal(p.c.names.items[1], "b,c");
    assert_string_equal(p.c.model, "path");
    assert_int_equal(p.res.positional.n_items, 3);
    assert_string_equal(p.res.positional.items[0], "serve");
    assert_string_equal(p.res.positional.items[1], "--x");
    assert_string_equal(p.res.positional.items[2], "-");
    assert_int_equal(p.res.warnings.n_items, 1);
    assert_non_null(strstr(p.res.warnings.items[0], "--swap-space"));
    config_fini(&p.res);
    p = parse("", "COX_SERVED_MODEL_NAME=e1,,e2,e3 COX_MAX_NUM_SEQ=3");
    assert_int_equal(p.c.names.n_items, 3);
    assert_string_equal(p.c.names.items[2], "e3");
    assert_int_equal(p.res.warnings.n_items, 1);
    assert_non_null(strstr(p.res.warnings.items[0], "COX_MAX_NUM_SEQ"));
    config_fini(&p.res);
}

/* Joins the items of a list with commas. */
static void join(const struct option_list *l, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < l->n_items; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "," : "", l->items[i]);
}

static void test_bare_words_after_a_list(void **state)
{
    static const struct {
        const char *args, *aliases, *roots, *positional;
    } cases[] = {
        {"--alias a b c", "a,b,c", "", ""},
        {"x --alias a b --max-num-seqs 3 y", "a,b", "", "x,y"},
        {"--alias a b --alias c d", "a,b,c,d", "", ""},
        /* after '=' the option takes only one value, as in argparse */
        {"--alias=a b", "a", "", "b"},
        {"--alias a -- b", "a", "", "b"},
        {"M --root a b", "", "a,b", "M"},
        {"--root a b M", "", "a,b", "M"},
        {"--root a M --max-num-seqs 3", "", "a", "M"},
        {"--root a b --max-num-seqs 3 M", "", "a,b", "M"},
        {"--root a M --root c", "", "a,c", "M"},
        {"--root a M --alias x y", "x,y", "a", "M"},
        {"--root a", "", "a", ""},
        {"--root a -- M", "", "a", "M"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char aliases[64], roots[64], positional[64];
        struct parsed p = parse(cases[i].args, "");
        assert_int_equal(p.s, STATUS_OK);
        join(&p.c.aliases, aliases, sizeof aliases);
        join(&p.c.roots, roots, sizeof roots);
        join(&p.res.positional, positional, sizeof positional);
        if (strcmp(aliases, cases[i].aliases) != 0 || strcmp(roots, cases[i].roots) != 0 ||
            strcmp(positional, cases[i].positional) != 0)
            fail_msg("%s: aliases %s, roots %s, arguments %s", cases[i].args, aliases, roots,
                     positional);
        config_fini(&p.res);
    }
}

static void test_help_and_version(void **state)
{
    static const char *const help[] = {"--help", "-h", "x --help --nonsense"};
    for (size_t i = 0; i < 3; i++) {
        struct parsed p = parse(help[i], "COX_DEVICE=nonsense");
        assert_int_equal(p.s, STATUS_OK);
        assert_true(p.res.help);
        assert_int_equal(p.c.seqs, 256);
        config_fini(&p.res);
    }
    struct parsed p = parse("--version", "");
    assert_true(p.res.version && !p.res.help);
    config_fini(&p.res);
    struct strbuf b;
    strbuf_init(&b, 0);
    struct help h = {.usage = "prog [OPTION...]", .specs = specs, .n_specs = N_SPECS, .width = 100};
    struct error err = {0};
    assert_int_equal(help_write(&b, &h, &err), STATUS_OK);
    assert_non_null(strstr(b.ptr, "Usage: prog [OPTION...]"));
    assert_non_null(strstr(b.ptr, "--max-num-seqs N"));
    assert_non_null(strstr(b.ptr, "(default 256; 1 to 65536)"));
    assert_non_null(strstr(b.ptr, "also --model-path, -m)"));
    assert_null(strstr(b.ptr, "swap-space"));
    strbuf_fini(&b);
}

/* The help of a long table has groups. `--help` shows the common options. A topic shows a group,
 * or the options whose names contain a word. */
static void test_help_by_groups(void **state)
{
    static const struct option_group groups[] = {
        {"load", "Load", "utilization max-num-seqs* not-there*"},
        {"keys", "Keys", "api-key pass"},
        {0},
    };
    static const struct {
        /* topic, a text in the help, and a text not in it; has NULL = no such topic */
        const char *topic, *has, *lacks;
    } cases[] = {
        {NULL, "\nLoad:\n  --max-num-seqs N ", "--utilization"},
        {NULL, "`prog --help=all` lists all ", "--api-key"},
        {"all", "\nKeys:\n  --api-key TEXT ", "--help=GROUP"},
        {"all", "\nOther options:\n", "swap-space"},
        {"load", "\n  --utilization N ", "--api-key"},
        {"load", "Load:\n  --utilization", "--config"},
        {"num_seqs", "  --max-num-seqs N ", "--utilization"},
        {"--api", "  --api-key", "--pass"},
        {"nothing-like-it", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (unsigned width = 60; width <= 120; width += 60) {
            struct help h = {"prog [OPTION...]", specs, N_SPECS, groups, cases[i].topic, width};
            struct error err = {0};
            struct strbuf b;
            strbuf_init(&b, 0);
            enum status s = help_write(&b, &h, &err);
            if (!cases[i].has) {
                assert_int_equal(s, STATUS_NOT_FOUND);
                assert_non_null(strstr(err.text, "The groups are load, keys."));
            } else if (!strstr(b.ptr, cases[i].has) || strstr(b.ptr, cases[i].lacks)) {
                fail_msg("--help=%s: %s", cases[i].topic, b.ptr);
            }
            for (const char *line = b.ptr; *line; line += strcspn(line, "\n") + 1)
                assert_true(strcspn(line, "\n") <= width);
            strbuf_fini(&b);
        }
    struct parsed p = parse("--help=load", "");
    assert_true(p.res.help);
    assert_string_equal(p.res.help_topic, "load");
    config_fini(&p.res);
}

static struct parsed parse_yaml(const char *yaml, const char *args, const char *env)
{
    char path[] = "/tmp/config_testXXXXXX", all[1024];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, yaml, strlen(yaml)), (ssize_t)strlen(yaml));
    close(fd);
    snprintf(all, sizeof all, "--config %s %s", path, args);
    struct parsed p = parse(all, env);
    unlink(path);
    return p;
}

static void test_yaml(void **state)
{
    struct parsed p = parse_yaml("# a comment\nmax_num_seqs: 12\nmodel: 'a b'\ndevice: cuda\n"
                                 "prefix-caching: no\nserved_model_name: [x, y]\nbig: 5\n"
                                 "api_key:\nswap_space: [1, 2]\n",
                                 "--big 6", "COX_DEVICE=cpu");
    if (p.s != STATUS_OK)
        print_error("%s\n", p.err.text);
    assert_int_equal(p.s, STATUS_OK);
    assert_int_equal(p.c.seqs, 12);
    assert_string_equal(p.c.model, "a b");
    assert_int_equal(p.c.device, 1);
    assert_false(p.c.caching);
    assert_int_equal(p.c.names.n_items, 2);
    assert_string_equal(p.c.names.items[1], "y");
    assert_int_equal(p.c.big, 6);
    assert_null(p.c.key);
    assert_int_equal(p.res.warnings.n_items, 1);
    config_fini(&p.res);
    p = parse_yaml("served_model_name: one\n", "--served-model-name two", "");
    assert_int_equal(p.c.names.n_items, 1);
    assert_string_equal(p.c.names.items[0], "two");
    config_fini(&p.res);
    p = parse_yaml("", "", "");
    assert_int_equal(p.s, STATUS_OK);
    config_fini(&p.res);
}

/* As in vLLM's files, "no-x: true" is a switch without a value. */
static void test_yaml_switches_off(void **state)
{
    static const struct {
        const char *yaml;
        bool caching;
    } cases[] = {
        {"no_prefix_caching: true\n", false},
        {"no-prefix-caching: True\n", false},
        /* "no-x: false" has no effect, as if the switch were not in the file */
        {"no-prefix-caching: false\n", true},
        {"no-prefix-caching:\n", true},
        {"no-eager: true\n", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse_yaml(cases[i].yaml, "", "");
        if (p.s != STATUS_OK)
            print_error("%s%s\n", cases[i].yaml, p.err.text);
        assert_int_equal(p.s, STATUS_OK);
        assert_int_equal(p.c.caching, cases[i].caching);
        config_fini(&p.res);
    }
}

/* An option with a JSON value may have YAML in a file. */
static void test_yaml_as_json(void **state)
{
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"guess: {method: ngram, n: 4}\n", "{\"method\":\"ngram\",\"n\":4}"},
        {"guess:\n  a: -1.5e3\n  b: [true, null, ~, 'true', \"4\", 007, 4., -, x\\]\n  c: {}\n",
         "{\"a\":-1.5e3,\"b\":[true,null,null,\"true\",\"4\",\"007\",\"4.\",\"-\",\"x\\\\\"],"
         "\"c\":{}}"},
        {"guess: '{\"n\": 1}'\n", "{\"n\": 1}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse_yaml(cases[i].yaml, "", "");
        if (p.s != STATUS_OK)
            print_error("%s%s\n", cases[i].yaml, p.err.text);
        assert_int_equal(p.s, STATUS_OK);
        assert_string_equal(p.c.guess, cases[i].json);
        config_fini(&p.res);
    }
}

static void test_yaml_refused(void **state)
{
    static const struct {
        const char *yaml, *in_text;
    } cases[] = {
        {"max_num_seqs: 0\n", ":1: max_num_seqs: \"0\""},
        {"\nmax_num_seq: 1\n", ":2: max_num_seq: unknown option; did you mean max_num_seqs?"},
        {"model: [a]\n", "plain value"},
        {"model: {a: b}\n", "plain value"},
        {"served_model_name: [[a]]\n", "only plain values"},
        {"- a\n", "must consist of lines option_name: value"},
        {"word\n", "must consist of lines option_name: value"},
        {"model: a\nmodel: b\n", ":2: model: this file sets the option twice"},
        {"model: a\n---\nmodel: b\n", "more than one YAML document"},
        {"model: *x\n", "plain value"},
        {"no-model: true\n", ":1: no_model: unknown option"},
        {"no-prefix-caching: 5\n", ":1: the file is not valid: expected true or false"},
        {"prefix-caching: true\nno-prefix-caching: true\n",
         ":2: prefix_caching: this file sets the option twice"},
        {"guess: [a]\n", "a mapping or a plain value"},
        {"guess: {a: *x}\n", ":1: "},
        {"guess: {[a]: b}\n", "expected the name of a key"},
        {"guess: {a: [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}\n", "too deeply"},
        {"model: \"\\0\"\n", "NUL"},
        {"model: \"a\n", "not valid YAML"},
        {"? [a]\n: b\n", "expected the name of an option"},
        {"\xff\xfe\xff", "not valid YAML"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse_yaml(cases[i].yaml, "", "");
        if (p.s == STATUS_OK || !strstr(p.err.text, cases[i].in_text))
            print_error("case %zu: %s\n", i, p.s ? p.err.text : "was accepted");
        assert_int_not_equal(p.s, STATUS_OK);
        assert_non_null(strstr(p.err.text, cases[i].in_text));
    }
}

static void test_secret_is_never_shown(void **state)
{
    struct parsed p = parse("--api-key hunter2 --model a\"b --served-model-name n", "");
    struct strbuf b;
    strbuf_init(&b, 0);
    config_print_yaml(&b, specs, N_SPECS, &p.c);
    assert_null(strstr(b.ptr, "hunter2"));
    assert_non_null(strstr(b.ptr, "api_key: \"***\"\n"));
    assert_non_null(strstr(b.ptr, "model: \"a\\\"b\"\n"));
    assert_non_null(strstr(b.ptr, "max_num_seqs: 256\n"));
    assert_non_null(strstr(b.ptr, "device: \"auto\"\n"));
    assert_non_null(strstr(b.ptr, "served_model_name: [\"n\"]\n"));
    strbuf_fini(&b);
    config_fini(&p.res);
}

/* A variable may end with a newline, which echo or a file adds. A list without any item is an
 * error. Another program's variable is used, with a warning, when our variable is not set. */
static void test_secrets_of_the_environment(void **state)
{
    static const struct {
        /* command line, environment, and the items, joined by '|'; NULL = refused */
        const char *args, *env, *want;
        bool is_told;
    } cases[] = {
        {"", "COX_PASS=a\n", "a", false},
        {"", "COX_PASS=a,b\r\n", "a|b", false},
        {"", "COX_PASS=\ta\t,\tb\t\n", "a|b", false},
        {"", "COX_PASS=\n", NULL, false},
        {"", "COX_PASS=,", NULL, false},
        {"", "COX_PASS=", "", false},
        {"", "OTHERS_PASS=x,y\n", "x,y", true},
        {"", "OTHERS_PASS=\tx\r\n", "x", true},
        {"", "OTHERS_PASS=\n", NULL, false},
        {"", "OTHERS_PASS=x COX_PASS=a", "a", false},
        {"--pass b", "OTHERS_PASS=x", "b", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse(cases[i].args, cases[i].env);
        char got[64] = "";
        assert_int_equal(p.s == STATUS_OK, cases[i].want != NULL);
        for (size_t k = 0; p.s == STATUS_OK && k < p.c.passes.n_items; k++) {
            strcat(got, k ? "|" : "");
            strcat(got, p.c.passes.items[k]);
        }
        if (cases[i].want)
            assert_string_equal(got, cases[i].want);
        assert_int_equal(p.res.warnings.n_items, cases[i].is_told);
        config_fini(&p.res);
    }
}

/* The parser reads the YAML that the printer wrote and finds the same values. */
static void test_printed_yaml_reads_back(void **state)
{
    /* These characters must be quoted in YAML: a C1 control, a line separator, the byte order
     * mark, a noncharacter. */
    struct parsed p = parse("--model x\xC2\x81\xE2\x80\xA8\xEF\xBB\xBF\xEF\xBF\xBE\xC3\xA4 "
                            "--max-num-seqs 5 --no-prefix-caching --device cpu",
                            "");
    struct strbuf b;
    strbuf_init(&b, 0);
    config_print_yaml(&b, specs, N_SPECS, &p.c);
    struct parsed q = parse_yaml(b.ptr, "", "");
    assert_int_equal(q.s, STATUS_OK);
    assert_string_equal(q.c.model, p.c.model);
    assert_int_equal(q.c.seqs, 5);
    assert_false(q.c.caching);
    assert_int_equal(q.c.device, 1);
    config_fini(&p.res);
    config_fini(&q.res);
    strbuf_fini(&b);
}

/* The process overwrites the secrets in its own arguments. Other words stay unchanged. */
static void test_secrets_are_overwritten(void **state)
{
    static const char *const rows[][2] = {
        {"program", "program"},
        {"--api-key", "--api-key"},
        {"hunter2", "*******"},
        {"--api_key=hunter2", "--api_key=*******"},
        {"--model", "--model"},
        {"/a/path", "/a/path"},
        {"--pass", "--pass"},
        {"one", "***"},
        {"two", "***"},
        {"--max-num-seqs", "--max-num-seqs"},
        {"7", "7"},
        {"http://user:pw@host/p@q", "http://*******@host/p@q"},
        {"--model=https://t@host", "--model=https://*@host"},
        {"http://host/a@b", "http://host/a@b"},
        {"--wait=cox1.abc", "--wait=********"},
        {"user@host", "user@host"},
    };
    enum { N = sizeof rows / sizeof *rows };
    char words[N][64], *argv[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(words[i], sizeof words[i], "%s", rows[i][0]);
        argv[i] = words[i];
    }
    config_hide(specs, N_SPECS, N, argv);
    for (int i = 0; i < N; i++)
        assert_string_equal(words[i], rows[i][1]);
}

static void test_urls_for_people(void **state)
{
    struct strbuf b;
    (void)state;
    strbuf_init(&b, 0);
    config_append_url(&b, STR("redis://u:pw@host:1/2 "));
    config_append_url(&b, STR("unix://:pw@/p "));
    config_append_url(&b, STR("http://host/@"));
    assert_string_equal(strbuf_str(&b).ptr, "redis://****@host:1/2 unix://***@/p http://host/@");
    strbuf_fini(&b);
}

static void test_words_of_an_option(void **state)
{
    static const struct {
        const char *args;
        size_t want;
    } cases[] = {
        {"--max-num-seqs 3 --model", 2},
        {"--max_num_seqs=3 x", 1},
        {"--prefix-caching x", 1},
        {"--no-prefix-caching x", 1},
        {"-m x y", 2},
        {"--alias a b -3 --model m", 4},
        {"--alias=a b", 1},
        {"--root a b", 3},
        {"--served-model-name a b", 2},
        {"--main x y", 2},
        {"--swap-space 4 5", 2},
        {"--eager true x", 2},
        {"--eager x", 1},
        {"--token", 1},
        {"--sizes 1 2 3", 4},
        {"-O3 x", 1},
        {"--swap-space.a 3 x", 2},
        {"--max-num-seqs", 1}, /* the value is missing, which the parser reports */
        {"--unknown x", 0},
        {"--help", 0},
        {"--config f", 0},
        {"word", 0},
        {"-", 0},
        {"--", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128], *words[16] = {NULL}, *save;
        int n = 0;
        snprintf(text, sizeof text, "%s", cases[i].args);
        for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
            words[n++] = w;
        size_t got = config_count_words(specs, N_SPECS, n, words, 0);
        if (got != cases[i].want)
            fail_msg("%s: %zu, not %zu", cases[i].args, got, cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_secrets_are_overwritten),
        cmocka_unit_test(test_urls_for_people),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_given_without_its_partner),
        cmocka_unit_test(test_names_of_another_standard),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_flags_of_vllm),
        cmocka_unit_test(test_argument_by_name),
        cmocka_unit_test(test_lists_positionals_ignored),
        cmocka_unit_test(test_bare_words_after_a_list),
        cmocka_unit_test(test_help_and_version),
        cmocka_unit_test(test_help_by_groups),
        cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_yaml_switches_off),
        cmocka_unit_test(test_yaml_as_json),
        cmocka_unit_test(test_yaml_refused),
        cmocka_unit_test(test_secret_is_never_shown),
        cmocka_unit_test(test_secrets_of_the_environment),
        cmocka_unit_test(test_words_of_an_option),
        cmocka_unit_test(test_printed_yaml_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
