/* Tests how the models of a set are read, and the file that the gateways get. The tests write a
 * file of --models, read it with the real option table, and look at the entries or the error.
 * Invariant: an error names the file and the line. */
#include "cli/up/set/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/up/set/gateway_file.h"
#include "common/json/yaml_file.h"

struct read_case {
    struct up_options o;
    struct config_result res;
    struct arena arena;
    struct up_set set;
    struct error err;
    char path[64];
};

static enum status read_args(struct read_case *c, int argc, char **argv)
{
    char *no_env[] = {NULL};
    *c = (struct read_case){0};
    arena_init(&c->arena, 0);
    TRY(config_parse(up_specs, up_n_specs, argc, argv, no_env, &c->o, &c->res, &c->err));
    const struct set_input in = {.argc = argc,
                                 .argv = argv,
                                 .environ_ = no_env,
                                 .specs = up_specs,
                                 .n_specs = up_n_specs,
                                 .options = &c->o,
                                 .models = &c->res.positional};
    return up_set_read(&in, &c->arena, &c->set, &c->err);
}

static enum status read_text(struct read_case *c, const char *text)
{
    char path[] = "/tmp/coxtest-models-XXXXXX", name[] = "up", flag[] = "--models";
    char tp[] = "--tp=2";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    enum status s = read_args(c, 4, (char *[]){name, flag, path, tp, NULL});
    (void)unlink(path);
    return s;
}

static void end(struct read_case *c)
{
    up_set_free(&c->set);
    config_fini(&c->res);
    arena_fini(&c->arena);
}

static void an_entry_overrides_the_command_line(void **state)
{
    struct read_case c;
    assert_int_equal(read_text(&c, "models:\n"
                                   "- name: a\n"
                                   "  aliases: [b, c]\n"
                                   "  model: demo\n"
                                   "  tensor_parallel_size: 4\n"
                                   "  tool_call_parser: hermes\n"
                                   "  start: asleep\n"
                                   "  fallback: ORG/Some-Model\n"
                                   "  max_requests: 3\n"
                                   "- {model: ORG/Some-Model, enforce-eager: true}\n"
                                   "routes:\n- {name: r, targets: [{model: a}]}\n"),
                     STATUS_OK);
    const struct set_model *a = &c.set.models[0], *b = &c.set.models[1];
    assert_int_equal(c.set.n, 2);
    assert_int_equal(a->o->tp, 4);
    assert_int_equal(a->o->start, UP_START_ASLEEP);
    assert_int_equal(a->names.n_items, 3);
    assert_int_equal(b->o->tp, 2); /* the value of the command line */
    assert_true(b->o->enforce_eager);
    assert_int_equal(b->o->start, UP_START_ALWAYS);
    assert_string_equal(b->name, "ORG/Some-Model");
    assert_string_equal(b->tag, "some-model");
    const struct set_shown shown[] = {{"demo", "127.0.0.1:1", 600, "it said \"no\"\nand ended"},
                                      {"/m", "127.0.0.1:2", 0, NULL}};
    struct strbuf out;
    strbuf_init(&out, 0);
    set_gateway_file_text(&c.set, shown, &out);
    assert_string_equal(out.ptr, "managed_by: \"cox up\"\n"
                                 "models:\n"
                                 "- name: \"a\"\n"
                                 "  aliases: [\"b\", \"c\"]\n"
                                 "  model: \"demo\"\n"
                                 "  head: \"127.0.0.1:1\"\n"
                                 "  queue_timeout: 600\n"
                                 "  tool_call_parser: \"hermes\"\n"
                                 "  fallback: \"ORG/Some-Model\"\n"
                                 "  max_requests: 3\n"
                                 "  state: failed\n"
                                 "  reason: \"it said \\\"no\\\"\\nand ended\"\n"
                                 "- name: \"ORG/Some-Model\"\n"
                                 "  model: \"/m\"\n"
                                 "  head: \"127.0.0.1:2\"\n"
                                 "routes: [{\"name\":\"r\",\"targets\":[{\"model\":\"a\"}]}]\n");
    strbuf_fini(&out);
    end(&c);
}

/* The text of a set is read again without a change, so that `cox models` changes one model only. */
static void a_written_set_is_the_same_set(void **state)
{
    struct read_case c;
    struct up_set again = {0};
    struct strbuf yaml;
    char up[] = "up", a[] = "a=/x/m.gguf", b[] = "\"b=null", on[] = "--on-demand";
    assert_int_equal(read_args(&c, 4, (char *[]){up, a, b, on, NULL}), STATUS_OK);
    char *no_env[] = {NULL};
    char *argv[] = {up, a, b, on, NULL};
    const struct set_input in = {4, argv, no_env, up_specs, up_n_specs, &c.o, &c.res.positional};
    strbuf_init(&yaml, 0);
    up_set_write(&c.set, &yaml);
    assert_int_equal(up_set_read_again(&in, "set", strbuf_str(&yaml), &c.arena, &again, &c.err),
                     STATUS_OK);
    assert_int_equal(again.n, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(again.models[i].name, c.set.models[i].name);
        assert_string_equal(again.models[i].made_of, c.set.models[i].made_of);
    }
    up_set_free(&again);
    strbuf_fini(&yaml);
    end(&c);
}

/* `cox models` writes the whole file again, with each plain word in quotes. */
static void a_stored_edit_leaves_the_other_models_alone(void **state)
{
    static const char text[] =
        "models:\n"
        "- {name: one, model: \"null\", max_num_seqs: 8, enforce-eager: true, idle_timeout: 100}\n"
        "- name: two\n  model: \"null\"\n  chat_template: ~\n  lora_modules: [a=/x, 1]\n"
        "  speculative_config: {a: 0.1, b: 1e5, c: [2, \"3\", null], d: {e: true}}\n";
    struct read_case c;
    struct up_set again = {0};
    json_t *tree;
    char up[] = "up", model[] = "null", *no_env[] = {NULL}, *argv[] = {up, model, NULL};
    if (read_text(&c, text) != STATUS_OK)
        fail_msg("%s", c.err.text);
    assert_int_equal(yaml_file_tree(str_from(text), &tree, &c.err), STATUS_OK);
    char *yaml = json_dumps(tree, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    const struct set_input in = {2, argv, no_env, up_specs, up_n_specs, &c.o, &c.res.positional};
    assert_int_equal(up_set_read_again(&in, "set", str_from(yaml), &c.arena, &again, &c.err),
                     STATUS_OK);
    for (uint32_t i = 0; i < 2; i++)
        assert_string_equal(again.models[i].made_of, c.set.models[i].made_of);
    assert_string_not_equal(again.models[0].made_of, again.models[1].made_of);
    free(yaml);
    json_decref(tree);
    up_set_free(&again);
    end(&c);
}

static void models_of_the_command_line(void **state)
{
    struct read_case c;
    char up[] = "up", a[] = "/x/Model A.gguf", b[] = "b=null", d[] = "second=null";
    char on[] = "--on-demand";
    assert_int_equal(read_args(&c, 5, (char *[]){up, a, b, d, on, NULL}), STATUS_INVALID);
    assert_non_null(strstr(c.err.text, "without blanks")); /* the name is "Model A" */
    end(&c);
    char e[] = "/x/a=b/m.gguf";
    assert_int_equal(read_args(&c, 5, (char *[]){up, e, b, d, on, NULL}), STATUS_OK);
    assert_string_equal(c.set.models[0].source, e);
    assert_string_equal(c.set.models[1].source, "null");
    assert_string_equal(c.set.models[2].name, "second");
    assert_int_equal(c.set.models[2].o->start, UP_START_ON_DEMAND);
    end(&c);
}

static void equal_tags_get_numbers(void **state)
{
    struct read_case c;
    char up[] = "up", a[] = "m/x=null", b[] = "X=null", d[] = "x=null", e[] = "x.=null";
    assert_int_equal(read_args(&c, 5, (char *[]){up, b, d, e, a, NULL}), STATUS_OK);
    assert_string_equal(c.set.models[0].tag, "x");
    assert_string_equal(c.set.models[1].tag, "x-2");
    assert_string_equal(c.set.models[2].tag, "x-3");
    end(&c);
}

static void wrong_files_are_refused_with_their_line(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", ":1: the file must have a list `models`"},
        {"models: []\n", "the file must have a list `models`"},
        {"models: 3\n", "the file must have a list `models`"},
        {"models:\n- 3\n", ":2: a model must be a mapping"},
        {"models:\n- {name: a}\n", ":2: a model has no `model`"},
        {"models:\n- {name: [a], model: b}\n", ":2: `name` must be a word"},
        {"models:\n- {name: a, model: b, start: never}\n", ":2: `start` must be always"},
        {"models:\n- {name: a, model: b, aliases: c}\n", ":2: `aliases` must be a list"},
        {"models:\n- {name: a, model: b}\n- {name: a, model: c}\n", ":3: two models have the name"},
        {"models:\n- {name: a, model: b, aliases: [a]}\n", ":2: two models have the name"},
        {"models:\n- name: a\n  model: b\n  tp: many\n", ":2: model a: "},
        {"models:\n- name: a\n  model: b\n  port: 9\n", ":4: `port` is not an option of one model"},
        {"models:\n- name: a\n  model: b\n  gpu: 1\n", ":4: `gpu` is not an option of one model"},
        {"models:\n- name: a\n  model: b\n  swap_space: 1\n", "is not an option of one model"},
        {"models:\n- {name: \"a b\", model: b}\n", "the model name \"a b\" is invalid"},
        {"models:\n- {name: a, model: b}\nmore: 1\n", ":3: unknown key `more`"},
        {"models:\n- {name: a, model: b}\nroutes:\n- name: r\n  targets: [{model: c}]\n",
         ":5: `model` names c, but the file has no model of this name"},
        {"models:\n- {name: a, model: b}\nroutes:\n- {name: r, targets: [{model: a, weight: "
         "-1}]}\n",
         ":4: `weight` must be a whole number"},
        {"models:\n- {name: a, model: b}\nroutes:\n- {name: r, targets: [{model: a, weight: 0}]}\n",
         ":4: at least one target needs a weight above 0"},
        {"models:\n- {name: a, model: b}\nroutes:\n- {name: r, targets: [{model: a}], mirror: c}\n",
         ":4: `mirror` names c"},
        {"models:\n- {name: a, model: b}\nroutes:\n- {name: r, targets: [{model: a}]}\n"
         "- {name: r, targets: [{model: a}]}\n",
         ":5: two routes have the name r"},
        {"models:\n- {name: a, model: b}\nroutes:\n- {name: r, targets: [{model: a}], more: 1}\n",
         ":4: unknown key `more`"},
        {"models:\n- {name: a, model: b}\nroutes: 3\n", ":3: `routes` must be a list"},
        {"models:\n- {name: a, model: b, fallback: c}\n", ":2: `fallback` names c"},
        {"models:\n- {name: a, model: b, fallback: a}\n", ":2: the fallbacks of a lead back"},
        {"models:\n- {name: a, model: b, fallback: c}\n- {name: c, model: b, fallback: a}\n",
         ":2: the fallbacks of a lead back to itself"},
        {"models:\n- {name: a, model: b, max_requests: 0}\n", ":2: `max_requests` must be"},
        {"models: [", ":2: the file is not valid YAML"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct read_case c;
        assert_int_equal(read_text(&c, cases[i].text), STATUS_INVALID);
        if (!strstr(c.err.text, cases[i].words))
            fail_msg("%s: %s", cases[i].text, c.err.text);
        end(&c);
    }
}

/* The text of an order of `cox models` is in no file, so an error names no line of one. */
static void an_order_has_no_lines(void **state)
{
    static const char *const cases[][2] = {
        {"models:\n- {name: a, model: b}\n- {name: a, model: c}\n", "two models have the name a."},
        {"models:\n- {name: a, model: b, start: never}\n", "`start` must be always"},
        {"models:\n- {name: a, model: b, fallback: c}\n", "`fallback` names c"},
        {"models: [", "the file is not valid YAML"},
    };
    struct read_case c;
    char up[] = "up", model[] = "null", *no_env[] = {NULL}, *argv[] = {up, model, NULL};
    assert_int_equal(read_args(&c, 2, argv), STATUS_OK);
    const struct set_input in = {2, argv, no_env, up_specs, up_n_specs, &c.o, &c.res.positional};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct up_set again = {0};
        assert_int_equal(
            up_set_read_again(&in, NULL, str_from(cases[i][0]), &c.arena, &again, &c.err),
            STATUS_INVALID);
        if (strncmp(c.err.text, cases[i][1], strlen(cases[i][1])) != 0)
            fail_msg("%s: %s", cases[i][0], c.err.text);
        up_set_free(&again);
    }
    end(&c);
}

static void each_model_has_its_step_log(void **state)
{
    struct read_case c;
    assert_int_equal(read_text(&c,
                               "models:\n- {name: a, model: b, step_log: /x/a}\n"
                               "- {name: b, model: b, step-log: /x/b, step_log_max_bytes: 9}\n"),
                     STATUS_OK);
    assert_string_equal(c.set.models[0].o->step_log, "/x/a");
    assert_string_equal(c.set.models[1].o->step_log, "/x/b");
    assert_int_equal(c.set.models[1].o->step_log_max_bytes, 9);
    end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_overrides_the_command_line),
        cmocka_unit_test(models_of_the_command_line),
        cmocka_unit_test(an_order_has_no_lines),
        cmocka_unit_test(each_model_has_its_step_log),
        cmocka_unit_test(a_written_set_is_the_same_set),
        cmocka_unit_test(a_stored_edit_leaves_the_other_models_alone),
        cmocka_unit_test(equal_tags_get_numbers),
        cmocka_unit_test(wrong_files_are_refused_with_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
