/* Converts the settings of DJL Serving's LMI containers to arguments of `cox up`.
 * `sagemaker_read` receives the environment and the text of serving.properties. Each `read_…`
 * function looks up its settings, checks them, and appends arguments or warnings to `struct
 * sagemaker_output`.
 * Invariants: the file overrides the environment, and OPTION_ variables override plain names.
 * Two names of one setting with different values are an error. The numbers of arguments and
 * warnings are bounded. The functions are pure: no file is read, and strings are on the arena. */
#include "cli/sagemaker/settings.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/str.h"

enum { MAX_TEXT = 4096 };

struct reader {
    const struct sagemaker_input *in;
    struct arena *arena;
    struct sagemaker_output *out;
    struct error *err;
};

static const char *text(struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static const char *text(struct reader *r, const char *fmt, ...)
{
    char buf[MAX_TEXT];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(buf, sizeof buf, fmt, args);
    va_end(args);
    size_t size = n < 0 ? 1 : n < MAX_TEXT ? (size_t)n + 1 : MAX_TEXT;
    char *out = arena_try_alloc(r->arena, size);
    if (!out)
        return "";
    memcpy(out, buf, size - 1);
    out[size - 1] = '\0';
    return out;
}

static void arg(struct reader *r, const char *a)
{
    if (a && r->out->n_args < SAGEMAKER_MAX_ARGS)
        r->out->args[r->out->n_args++] = a;
}

static void flag(struct reader *r, const char *name, const char *value)
{
    if (!value)
        return;
    arg(r, name);
    arg(r, value);
}

static void warn(struct reader *r, const char *what)
{
    if (r->out->n_warnings < SAGEMAKER_MAX_WARNINGS)
        r->out->warnings[r->out->n_warnings++] = what;
}

/* ---- lookup ---- */

/* Returns the value of an environment variable. An empty value counts as not set. */
static const char *variable(char *const *environ_, const char *name)
{
    size_t n = strlen(name);
    for (; *environ_; environ_++)
        if (strncmp(*environ_, name, n) == 0 && (*environ_)[n] == '=')
            return (*environ_)[n + 1] ? *environ_ + n + 1 : NULL;
    return NULL;
}

static const char *variable_of(const struct reader *r, const char *name)
{
    return variable(r->in->environ_, name);
}

bool sagemaker_split_property(struct str line, struct str *key, struct str *value)
{
    size_t i = 0;
    line = str_trim(line, " \t\n\v\f\r");
    if (line.len == 0 || *line.ptr == '#' || *line.ptr == '!')
        return false;
    while (i < line.len && line.ptr[i] != '=' && line.ptr[i] != ':')
        i++;
    *key = str_trim((struct str){line.ptr, i}, " \t\n\v\f\r");
    *value = i < line.len
                 ? str_trim((struct str){line.ptr + i + 1, line.len - i - 1}, " \t\n\v\f\r")
                 : STR("");
    return true;
}

/* Returns the value of a key in the file. The last line with the key counts. */
static const char *property(struct reader *r, const char *name)
{
    struct str rest = r->in->properties, key, value;
    const char *found = NULL;
    while (rest.len > 0) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t n = end ? (size_t)(end - rest.ptr) : rest.len;
        if (sagemaker_split_property((struct str){rest.ptr, n}, &key, &value) &&
            str_eq_c(key, name))
            found = value.len ? text(r, STR_FMT, STR_ARG(value)) : NULL;
        n += end != NULL;
        rest = (struct str){rest.ptr + n, rest.len - n};
    }
    return found;
}

/* Returns the variable called `prefix` + `name`, with the name as written or in capitals. */
static const char *prefixed(const struct reader *r, const char *prefix, const char *name)
{
    char full[128];
    size_t n = strlen(prefix);
    const char *v;
    snprintf(full, sizeof full, "%s%s", prefix, name);
    if ((v = variable_of(r, full)))
        return v;
    for (char *c = full + n; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return variable_of(r, full);
}

/* Returns the value of an option. The file overrides the environment, and OPTION_ overrides the
 * plain name `alias` (or NULL). */
static const char *option(struct reader *r, const char *name, const char *alias)
{
    char full[128];
    snprintf(full, sizeof full, "option.%s", name);
    const char *v = property(r, full);
    if (!v)
        v = prefixed(r, "OPTION_", name);
    return v || !alias ? v : variable_of(r, alias);
}

/* Returns the value of a server option, whose name does not begin with "option.". */
static const char *server_option(struct reader *r, const char *name)
{
    const char *v = property(r, name);
    return v ? v : prefixed(r, "SERVING_", name);
}

/* Reads a setting that has one name in DJL and another in vLLM. Different values are an error. */
static enum status twin(struct reader *r, const char *name, const char *vllm, const char *alias,
                        const char **out)
{
    const char *a = option(r, name, NULL), *b = option(r, vllm, NULL);
    if (a && b && strcmp(a, b) != 0)
        return error_set(
            r->err, STATUS_INVALID,
            "option.%s is %s, but option.%s, which means the same, is %s. Set only one of them",
            name, a, vllm, b);
    *out = a ? a : b ? b : alias ? variable_of(r, alias) : NULL;
    return STATUS_OK;
}

static bool is_true(const char *v)
{
    return v && strcasecmp(v, "true") == 0;
}

/* ---- meaning ---- */

static bool has_static_batches(struct reader *r)
{
    uint64_t n = 0;
    const char *batch = server_option(r, "batch_size");
    return batch && str_to_u64(str_from(batch), &n) == STATUS_OK && n > 1;
}

/* Chooses the value of --invocations. A batch_size above 1 disables rolling batches. */
static enum status read_rolling_batch(struct reader *r, const char **form)
{
    static const char *const rolling[] = {"vllm", "lmi-dist", "scheduler", "trtllm"};
    const char *v = option(r, "rolling_batch", NULL);
    bool is_rolling = false, is_static = has_static_batches(r);
    bool is_auto = !v || strcmp(v, "auto") == 0;
    for (size_t i = 0; !is_auto && i < sizeof rolling / sizeof *rolling; i++)
        is_rolling = is_rolling || strcmp(v, rolling[i]) == 0;
    if (!is_auto && !is_rolling && strcmp(v, "disable") != 0 && strcmp(v, "disabled") != 0)
        return error_set(r->err, STATUS_INVALID,
                         "rolling_batch=%s is not supported: use auto, vllm or disable (lmi-dist, "
                         "scheduler and trtllm mean vllm)",
                         v);
    if (is_rolling && strcmp(v, "vllm") != 0)
        warn(r, text(r, "rolling_batch=%s is served as vllm", v));
    if (is_rolling && is_static)
        warn(r, "batch_size above 1 turns rolling_batch off, so answers are lists");
    if (server_option(r, "max_batch_delay"))
        warn(r, "max_batch_delay has no effect: a request joins the running batch at its next step "
                "and does not wait for others");
    is_static = is_static || (!is_auto && !is_rolling && !is_true(option(r, "async_mode", NULL)));
    is_rolling = is_rolling && !is_static;
    bool is_tgi = is_rolling && is_true(option(r, "tgi_compat", NULL));
    *form = is_static ? "static" : is_tgi ? "tgi" : is_rolling ? "rolling" : "async";
    return STATUS_OK;
}

static enum status read_count(struct reader *r, const char *name, const char *v, uint32_t *out)
{
    uint64_t n;
    if (str_to_u64(str_from(v), &n) != STATUS_OK || n == 0 || n > 1024)
        return error_set(r->err, STATUS_INVALID, "%s=%s is invalid: give a number from 1 to 1024%s",
                         name, v, strncmp(name, "tensor", 6) == 0 ? ", or max" : "");
    *out = (uint32_t)n;
    return STATUS_OK;
}

/* Reads the degrees of parallelism. "max" means all GPUs. With a number, the model is served in
 * as many replicas as the GPUs allow. Without GPUs, the given number of ranks run on CPUs. */
static enum status read_parallel(struct reader *r)
{
    const char *tp_text, *pp_text, *fallback = variable_of(r, "TENSOR_PARALLEL_DEGREE");
    uint32_t pp = 1, tp = 1, gpus = r->in->n_gpus;
    TRY(twin(r, "tensor_parallel_degree", "tensor_parallel_size", NULL, &tp_text));
    TRY(twin(r, "pipeline_parallel_degree", "pipeline_parallel_size", "PIPELINE_PARALLEL_DEGREE",
             &pp_text));
    if (!tp_text)
        tp_text = fallback ? fallback : variable_of(r, "SM_NUM_GPUS");
    if (pp_text)
        TRY(read_count(r, "pipeline_parallel_degree", pp_text, &pp));
    bool is_max = !tp_text || strcmp(tp_text, "max") == 0;
    if (!is_max)
        TRY(read_count(r, "tensor_parallel_degree", tp_text, &tp));
    else if (gpus / pp > 0)
        tp = gpus / pp;
    if (gpus > 0 && tp * pp > gpus)
        return error_set(r->err, STATUS_INVALID,
                         "tensor_parallel_degree %u x pipeline_parallel_degree %u is more than the "
                         "%u GPUs of this machine. Use lower degrees or an instance with more GPUs",
                         tp, pp, gpus);
    r->out->n_model_gpus = tp * pp;
    flag(r, "--tensor-parallel-size", text(r, "%u", tp));
    flag(r, "--pipeline-parallel-size", text(r, "%u", pp));
    if (gpus / (tp * pp) > 1)
        flag(r, "--data-parallel-size", text(r, "%u", gpus / (tp * pp)));
    return STATUS_OK;
}

static enum status read_dtype(struct reader *r)
{
    static const char *const names[][2] = {
        {"fp32", "float32"},  {"float32", "float32"},   {"fp16", "float16"}, {"float16", "float16"},
        {"bf16", "bfloat16"}, {"bfloat16", "bfloat16"}, {"auto", "auto"},
    };
    const char *v = option(r, "dtype", NULL);
    if (!v)
        return STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(v, names[i][0]) == 0) {
            flag(r, "--dtype", names[i][1]);
            return STATUS_OK;
        }
    return error_set(
        r->err, STATUS_INVALID,
        "dtype=%s is not supported: use fp32, float32, fp16, float16, bf16, bfloat16 or auto", v);
}

/* Reads the model and its name. A mounted model is called "model". A hub's model has the name of
 * its id, with _ for every character that is not a letter or a digit. */
static enum status read_model(struct reader *r)
{
    const char *store = sagemaker_model_store(r->in->environ_);
    const char *id = option(r, "model_id", "HF_MODEL_ID"),
               *given = option(r, "served_model_name", NULL);
    bool mounted = !id || strcmp(id, store) == 0;
    if (mounted && !r->in->has_weights)
        return error_set(r->err, STATUS_INVALID,
                         "no model to serve: %s contains no config.json and HF_MODEL_ID is not "
                         "set. Mount a model there or set HF_MODEL_ID",
                         store);
    if (!mounted && r->in->has_weights)
        warn(r,
             text(r, "%s also contains a model, which is ignored: only %s is served", store, id));
    char *name = (char *)text(r, "%s", mounted ? "model" : id);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c))
            *c = '_';
    arg(r, mounted ? store : id);
    flag(r, "--served-model-name", given ? given : name);
    if (!mounted && !strstr(id, "://"))
        flag(r, "--revision", option(r, "revision", "HF_REVISION"));
    return STATUS_OK;
}

/* Returns `chosen`, the value of DJL's setting. When `chosen` is NULL, it returns vLLM's
 * variable, which DJL's users may also set. */
static const char *or_vllms(struct reader *r, const char *name, const char *chosen)
{
    const char *v = variable_of(r, name);
    if (v && chosen && strcmp(v, chosen) != 0)
        warn(r, text(r, "%s=%s has no effect: DJL's own setting for it has the value %s", name, v,
                     chosen));
    return chosen ? chosen : v;
}

static enum status read_engine(struct reader *r)
{
    const char *form = NULL, *seqs, *quantize = option(r, "quantize", "HF_MODEL_QUANTIZE");
    TRY(read_rolling_batch(r, &form));
    bool is_rolling = strcmp(form, "rolling") == 0 || strcmp(form, "tgi") == 0;
    flag(r, "--invocations", form);
    TRY(twin(r, "max_rolling_batch_size", "max_num_seqs", "MAX_BATCH_SIZE", &seqs));
    seqs = or_vllms(r, "VLLM_MAX_NUM_SEQS", seqs);
    flag(r, "--max-num-seqs", seqs ? seqs : is_rolling ? "256" : "32");
    TRY(read_parallel(r));
    TRY(read_dtype(r));
    const char *prefill = option(r, "max_rolling_batch_prefill_tokens", "MAX_BATCH_PREFILL_TOKENS");
    flag(r, "--max-num-batched-tokens",
         or_vllms(r, "VLLM_MAX_NUM_BATCHED_TOKENS",
                  prefill ? prefill : option(r, "max_num_batched_tokens", NULL)));
    flag(r, "--max-model-len", or_vllms(r, "VLLM_MAX_MODEL_LEN", option(r, "max_model_len", NULL)));
    flag(r, "--gpu-memory-utilization",
         or_vllms(r, "VLLM_GPU_MEMORY_UTILIZATION",
                  option(r, "gpu_memory_utilization", "CUDA_MEMORY_FRACTION")));
    flag(r, "--kv-cache-dtype", option(r, "kv_cache_dtype", NULL));
    if (is_true(option(r, "enforce_eager", NULL)))
        arg(r, "--enforce-eager");
    const char *caching = option(r, "enable_prefix_caching", NULL);
    if (caching && !is_true(caching))
        arg(r, "--no-enable-prefix-caching");
    if (quantize && strcmp(quantize, "fp8") == 0)
        flag(r, "--quantization", quantize);
    else if (quantize)
        warn(r,
             text(r, "quantize=%s has no effect: pre-quantised weights are detected automatically",
                  quantize));
    if (is_true(option(r, "enable_lora", NULL)))
        warn(r, "enable_lora does not load adapters from the model's folder. Load them with `cox "
                "lora`");
    return STATUS_OK;
}

static void read_chat(struct reader *r)
{
    flag(r, "--tool-call-parser", option(r, "tool_call_parser", NULL));
    flag(r, "--reasoning-parser", option(r, "reasoning_parser", NULL));
    flag(r, "--chat-template", option(r, "chat_template", NULL));
    if (is_true(option(r, "enable_auto_tool_choice", NULL)))
        arg(r, "--enable-auto-tool-choice");
}

/* Reads the timeouts. SAGEMAKER_ variables override the file and the other variables. */
static void read_timeouts(struct reader *r)
{
    const char *loading = variable_of(r, "SAGEMAKER_STARTUP_TIMEOUT");
    if (!loading)
        loading = option(r, "model_loading_timeout", "MODEL_LOADING_TIMEOUT");
    flag(r, "--startup-timeout", loading ? loading : "1200");
    const char *chunk = server_option(r, "chunked_read_timeout");
    flag(r, "--chunk-timeout", chunk ? chunk : "120");
}

/* Reads the largest size of a request body. The size is in bytes, or in MB in DJL's older form. */
static enum status read_max_body(struct reader *r)
{
    uint64_t mb;
    const char *bytes = variable_of(r, "SAGEMAKER_MAX_REQUEST_SIZE"),
               *mb_text = variable_of(r, "SAGEMAKER_MAX_PAYLOAD_IN_MB");
    if (!bytes && mb_text) {
        if (str_to_u64(str_from(mb_text), &mb) != STATUS_OK || mb > 1024)
            return error_set(
                r->err, STATUS_INVALID,
                "SAGEMAKER_MAX_PAYLOAD_IN_MB=%s is invalid: give a number from 0 to 1024", mb_text);
        /* 0 means that batch transform sets no limit, so the server's default is used */
        if (mb > 0)
            bytes = text(r, "%llu", (unsigned long long)mb << 20);
    }
    if (!bytes)
        bytes = server_option(r, "max_request_size");
    flag(r, "--max-body-bytes", bytes ? bytes : "67108864");
    return STATUS_OK;
}

/* Reads how a batch transform job sends its records. SageMaker passes this to its containers. */
static void read_batch_strategy(struct reader *r)
{
    const char *v = variable_of(r, "SAGEMAKER_BATCH_STRATEGY");
    if (v && strcmp(v, "MULTI_RECORD") == 0)
        warn(r, "BatchStrategy MultiRecord puts several records into one request, which is not "
                "supported. Set BatchStrategy to SingleRecord and SplitType to Line");
}

static enum status read_megabytes(struct reader *r, const char *name, uint64_t usual, uint64_t *out)
{
    const char *v = server_option(r, name);
    *out = usual;
    if (v && (str_to_u64(str_from(v), out) != STATUS_OK || *out > UINT32_MAX))
        return error_set(r->err, STATUS_INVALID, "%s=%s is invalid: give a number of MB", name, v);
    return STATUS_OK;
}

static void read_statuses(struct reader *r)
{
    static const char *const names[] = {"bad_request", "throttle_error", "wlm_error",
                                        "server_error", "timeout"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = server_option(r, text(r, "%s_http_code", names[i]));
        if (v)
            flag(r, "--invocations-statuses", text(r, "%s=%s", names[i], v));
    }
}

bool sagemaker_is_here(char *const *environ_)
{
    for (; *environ_; environ_++)
        if (strncmp(*environ_, "SAGEMAKER_", 10) == 0)
            return true;
    return false;
}

const char *sagemaker_variable(char *const *environ_, const char *name)
{
    return variable(environ_, name);
}

bool sagemaker_is_multi_model(char *const *environ_)
{
    return is_true(variable(environ_, "SAGEMAKER_MULTI_MODEL"));
}

const char *sagemaker_model_store(char *const *environ_)
{
    const char *v = variable(environ_, "SERVING_MODEL_STORE");
    return v ? v : "/opt/ml/model";
}

enum status sagemaker_read(const struct sagemaker_input *in, struct arena *arena,
                           struct sagemaker_output *out, struct error *err)
{
    struct reader r = {in, arena, out, err};
    *out = (struct sagemaker_output){0};
    const char *port = variable_of(&r, "SAGEMAKER_BIND_TO_PORT");
    TRY(read_model(&r));
    arg(&r, "--sagemaker");
    flag(&r, "--host", "0.0.0.0");
    flag(&r, "--port", port ? port : "8080");
    /* 20 s, because SageMaker sends SIGKILL 30 s after SIGTERM */
    flag(&r, "--shutdown-timeout", "20");
    flag(&r, "--stats-format", "vllm0"); /* vllm0 is the form that DJL's users search for */
    TRY(read_engine(&r));
    read_chat(&r);
    read_timeouts(&r);
    TRY(read_max_body(&r));
    read_batch_strategy(&r);
    read_statuses(&r);
    TRY(read_megabytes(&r, "required_memory_mb", 0, &out->required_memory_mb));
    TRY(read_megabytes(&r, "reserved_memory_mb", 500, &out->reserved_memory_mb));
    const char *queue = server_option(&r, "job_queue_size");
    if (!queue)
        queue = variable_of(&r, "MAX_CONCURRENT_REQUESTS");
    flag(&r, "--max-waiting", queue ? queue : "1000");
    return STATUS_OK;
}
