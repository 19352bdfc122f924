/* Implements `cox serve` in a SageMaker container: it converts DJL's settings to arguments and
 * writes DJL's lines to the log.
 * cli/commands/up.c calls `up_sagemaker_argv`, which reads the settings with
 * cli/sagemaker/settings.h. cluster.c calls `up_sagemaker_say` when the model is loading and
 * when it serves.
 * Invariants: the log line about vLLM's engine contains only values that apply to Coxswain. A
 * printed text stays on one line. The usual parser reports a wrong command line. Arguments and
 * strings are on the caller's arena. */
#include "cli/up/sagemaker.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/sagemaker/host.h"
#include "cli/sagemaker/log.h"
#include "cli/up/plan/options.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/config/print.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"

extern char **environ;

enum { PATH_BYTES = 4096, NO_QUANTIZATION = 0 };

static struct str unquoted(struct str s)
{
    bool is_quoted = s.len >= 2 && s.ptr[0] == '"' && s.ptr[s.len - 1] == '"';
    return is_quoted ? (struct str){s.ptr + 1, s.len - 2} : s;
}

/* Returns the value of an option in the spelling of the option's table: "auto", "float16". */
static struct str option_text(const struct strbuf *yaml, const char *name)
{
    size_t n = strlen(name);
    struct str rest = strbuf_str(yaml);
    while (rest.len > 0) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t n_line = end ? (size_t)(end - rest.ptr) : rest.len;
        if (n_line > n + 2 && strncmp(rest.ptr, name, n) == 0 && rest.ptr[n] == ':')
            return unquoted((struct str){rest.ptr + n + 2, n_line - n - 2});
        n_line += end != NULL;
        rest = (struct str){rest.ptr + n_line, rest.len - n_line};
    }
    return STR("auto");
}

static const char *python_bool(bool on)
{
    return on ? "True" : "False";
}

/* Returns the device that --device auto would choose. */
static const char *device_name(const struct up_options *o, const char *model)
{
    if (o->device == UP_DEVICE_AUTO && strcmp(model, "null") == 0)
        return "null";
    if (o->device == UP_DEVICE_AUTO)
        return sagemaker_gpus(environ) > 0 ? "cuda" : "cpu";
    return o->device == UP_DEVICE_CUDA ? "cuda" : o->device == UP_DEVICE_CPU ? "cpu" : "null";
}

/* Returns --max-model-len, or else the model's maximum length; 0 = unknown. */
static uint32_t max_seq_len(const struct up_options *o, const char *model)
{
    char cache_dir[PATH_BYTES];
    struct model_info info;
    struct error ignored;
    uint32_t n = 0;
    if (o->max_model_len > 0)
        return (uint32_t)o->max_model_len;
    if (o->cache_dir)
        snprintf(cache_dir, sizeof cache_dir, "%s", o->cache_dir);
    else
        model_cache_dir(NULL, getenv("HOME"), cache_dir, sizeof cache_dir);
    if (model_info_open(model, cache_dir, &info, &ignored) == STATUS_OK) {
        n = info.max_model_len;
        model_info_fini(&info);
    }
    return n;
}

/* Appends the line "… Initializing an LLM engine (v…) with config: …". `model` is MODEL as
 * given, `name` the served name. The function reads the model's files to find the maximum
 * length. */
static void append_engine(const struct up_options *o, const char *model, const char *name,
                          struct strbuf *out)
{
    struct strbuf yaml;
    strbuf_init(&yaml, 0);
    config_print_yaml(&yaml, up_specs, up_n_specs, o);
    const struct str dtype = option_text(&yaml, "dtype"),
                     load_format = option_text(&yaml, "load_format"),
                     quantization = option_text(&yaml, "quantization"),
                     kv_cache_dtype = option_text(&yaml, "kv_cache_dtype");
    const uint32_t max_len = max_seq_len(o, model);
    const size_t from = out->len;
    strbuf_printf(out,
                  "[INFO ] PyProcess - W-%d-%s-stdout: INFO Initializing an LLM engine (v%s) with "
                  "config: model='%s', speculative_config=",
                  (int)getpid(), name, COX_VERSION, model);
    strbuf_append_c(out, o->speculation.config   ? o->speculation.config
                         : o->speculation.method ? o->speculation.method
                         : o->speculation.model  ? o->speculation.model
                                                 : "None");
    strbuf_printf(out, ", tokenizer='%s', trust_remote_code=False, dtype=" STR_FMT ", ", model,
                  STR_ARG(dtype));
    if (max_len > 0)
        strbuf_printf(out, "max_seq_len=%u, ", max_len);
    strbuf_printf(out,
                  "load_format=" STR_FMT ", tensor_parallel_size=%lld, pipeline_parallel_size=%lld,"
                  " data_parallel_size=%lld, enforce_eager=%s, kv_cache_dtype=" STR_FMT
                  ", device_config=%s, served_model_name=%s, enable_prefix_caching=%s, "
                  "chunked_prefill_enabled=True, max_num_seqs=%lld",
                  STR_ARG(load_format), (long long)o->tp, (long long)o->pp, (long long)o->dp,
                  python_bool(o->enforce_eager), STR_ARG(kv_cache_dtype), device_name(o, model),
                  name, python_bool(o->enable_prefix_caching), (long long)o->max_num_seqs);
    /* without this option the weights' files define the quantisation */
    if (o->quantization != NO_QUANTIZATION)
        strbuf_printf(out, ", quantization=" STR_FMT, STR_ARG(quantization));
    for (size_t i = from; i < out->len; i++)
        if (iscntrl((unsigned char)out->ptr[i]))
            out->ptr[i] = '?'; /* a control character would break the line */
    strbuf_append_c(out, "\n");
    strbuf_fini(&yaml);
}

void up_sagemaker_say(const struct up_options *o, const struct up_sagemaker_model *model,
                      void (*say)(const struct sagemaker_model *m, struct strbuf *out))
{
    static const char *const forms[] = {"vllm", "disable", "disable", "vllm"};
    const struct sagemaker_model m = {.name = model->served_as,
                                      .family = model->family,
                                      .rolling_batch = forms[o->invocations],
                                      .host = o->host,
                                      .port = (uint32_t)o->port,
                                      .tp = (uint32_t)o->tp,
                                      .dp = (uint32_t)o->dp,
                                      .n_gpus = sagemaker_gpus(environ),
                                      .settings = model->settings};
    struct strbuf b;
    if (!o->sagemaker)
        return;
    strbuf_init(&b, 0);
    say(&m, &b);
    if (say == sagemaker_loading)
        append_engine(o, model->name, model->served_as, &b);
    fputs(strbuf_str(&b).ptr, stderr);
    strbuf_fini(&b);
}

/* Returns true when the command line is valid and names no model. The usual parser reports a
 * wrong command line. */
static bool lacks_model(const struct command_line *line, int argc, char **argv)
{
    struct up_options *o = mem_zalloc(sizeof *o);
    struct config_result res = {0};
    struct error unread;
    bool lacks = config_parse(line->specs, line->n_specs, argc, argv, environ, o, &res, &unread) ==
                     STATUS_OK &&
                 !res.help && !res.version && res.positional.n_items == 0;
    config_fini(&res);
    mem_free(o);
    return lacks;
}

bool up_sagemaker_is_wanted(const struct command_line *line, int argc, char **argv)
{
    if (strcmp(argv[0], "serve") != 0 || (argc > 1 && argv[1][0] != '-'))
        return false;
    return sagemaker_is_here(environ) || ((sagemaker_variable(environ, "HF_MODEL_ID") ||
                                           sagemaker_variable(environ, "OPTION_MODEL_ID")) &&
                                          lacks_model(line, argc, argv));
}

bool up_sagemaker_argv(int *argc, char **argv, struct arena *arena, char ***owned_argv,
                       const char **settings_text, int *code)
{
    static char properties[SAGEMAKER_PROPERTIES_MAX];
    struct sagemaker_output out;
    struct error err = {0};
    const char *store = sagemaker_model_store(environ);
    const struct sagemaker_input in = {.environ_ = environ,
                                       .properties = sagemaker_properties(store, properties),
                                       .has_weights = sagemaker_has_weights(store),
                                       .n_gpus = sagemaker_gpus(environ)};
    if (sagemaker_read(&in, arena, &out, &err) != STATUS_OK) {
        fprintf(stderr, "cox %s: %s\n", argv[0], err.text);
        *code = EXIT_USAGE;
        return false;
    }
    for (uint32_t i = 0; i < out.n_warnings; i++)
        command_warn(argv[0], out.warnings[i]);
    struct strbuf settings;
    strbuf_init(&settings, 0);
    sagemaker_settings(&in, &out, &settings);
    fputs(strbuf_str(&settings).ptr, stderr);
    strbuf_reset(&settings);
    sagemaker_model_settings(&in, &out, &settings);
    char *kept = arena_try_alloc(arena, settings.len + 1);
    *settings_text = kept ? memcpy(kept, settings.ptr, settings.len + 1) : NULL;
    strbuf_fini(&settings);
    char **all = mem_array((size_t)*argc + out.n_args + 1, sizeof *all);
    all[0] = argv[0];
    for (uint32_t i = 0; i < out.n_args; i++)
        all[1 + i] = (char *)out.args[i];
    for (int i = 1; i < *argc; i++)
        all[out.n_args + (uint32_t)i] = argv[i];
    *argc += (int)out.n_args;
    all[*argc] = NULL;
    *owned_argv = all;
    return true;
}
