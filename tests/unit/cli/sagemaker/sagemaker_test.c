/* Tests the conversion of the settings of DJL Serving's containers to arguments of `cox up`. The
 * input is an environment and the text of serving.properties. The output is a list of arguments
 * and warnings, or an error. Invariant: a setting without effect gives a warning and never stops
 * the start. A number in a comment is the number of a statement in docs/develop/gateway.md. */
#include "cli/sagemaker/log.h"
#include "cli/sagemaker/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_VARIABLES = 16, JOINED_BYTES = 2048 };

/* Writes all arguments to `out`, separated by spaces, or the error. Warnings follow behind a |.
 * `env` holds lines NAME=VALUE. */
static void read_settings(const char *env, const char *properties, uint32_t n_gpus, char *out)
{
    char copy[1024], *variables[MAX_VARIABLES] = {NULL}, *save = NULL;
    int n = 0;
    struct arena arena;
    struct sagemaker_output got;
    struct error err = {0};
    snprintf(copy, sizeof copy, "%s", env);
    for (char *v = strtok_r(copy, "\n", &save); v && n + 1 < MAX_VARIABLES;
         v = strtok_r(NULL, "\n", &save))
        variables[n++] = v;
    arena_init(&arena, 0);
    const struct sagemaker_input in = {variables, str_from(properties), !strstr(env, "NO_WEIGHTS"),
                                       n_gpus};
    out[0] = '\0';
    if (sagemaker_read(&in, &arena, &got, &err) != STATUS_OK)
        snprintf(out, JOINED_BYTES, "%s", err.text);
    else
        for (uint32_t i = 0; i < got.n_args + got.n_warnings; i++)
            snprintf(out + strlen(out), JOINED_BYTES - strlen(out), "%s%s", i ? " " : "",
                     i < got.n_args ? got.args[i] : got.warnings[i - got.n_args]);
    arena_fini(&arena);
}

#define SEED_000                                                                                   \
    "OPTION_ROLLING_BATCH=vllm\nOPTION_TENSOR_PARALLEL_DEGREE=max\n"                               \
    "OPTION_MAX_ROLLING_BATCH_SIZE=2\nOPTION_DTYPE=fp16\nOPTION_TRUST_REMOTE_CODE=true\n"          \
    "OPTION_MAX_MODEL_LEN=8192\nVLLM_ATTENTION_BACKEND=XFORMERS\n"                                 \
    "OPTION_GPU_MEMORY_UTILIZATION=0.9\nVLLM_MAX_NUM_SEQS=16"

static void test_seed_000(void **state)
{
    char got[JOINED_BYTES];
    read_settings(SEED_000, "", 8, got);
    assert_string_equal(
        got,
        "/opt/ml/model --served-model-name model --sagemaker --host 0.0.0.0 --port "
        "8080 --shutdown-timeout 20 --stats-format vllm0 --invocations rolling --max-num-seqs 2 "
        "--tensor-parallel-size 8 --pipeline-parallel-size 1 --dtype float16 "
        "--max-model-len 8192 --gpu-memory-utilization 0.9 --startup-timeout 1200 "
        "--chunk-timeout 120 --max-body-bytes 67108864 --max-waiting 1000 "
        "VLLM_MAX_NUM_SEQS=16 has no effect: DJL's own setting for it has the value 2");
}

struct settings_case {
    /* want: a part of the output; !TEXT = the output lacks TEXT */
    const char *env, *properties, *want;
    uint32_t n_gpus;
};

static void check_settings(const struct settings_case *cases, size_t n)
{
    char got[JOINED_BYTES];
    for (size_t i = 0; i < n; i++) {
        const char *want = cases[i].want;
        bool absent = *want == '!';
        read_settings(cases[i].env, cases[i].properties, cases[i].n_gpus, got);
        if (!strstr(got, want + absent) != absent)
            fail_msg("%zu: %s / %s: no \"%s\" in: %s", i, cases[i].env, cases[i].properties, want,
                     got);
    }
}

static void test_settings(void **state)
{
    static const struct settings_case cases[] = {
        /* Statement 13: an option is set by the file or by the environment. */
        {"", "option.max_model_len=77\n", "--max-model-len 77", 0},
        {"OPTION_MAX_MODEL_LEN=77", "", "--max-model-len 77", 0},
        /* statement 14: the file overrides the environment */
        {"OPTION_DTYPE=bf16", " # x\noption.dtype : fp32\r\n", "--dtype float32", 0},
        {"OPTION_DTYPE=", "", "!--dtype", 0}, /* statement 16: an empty variable is not set */
        {"OPTION_DTYPE=bf16", "option.dtype=\n", "--dtype bfloat16", 0},
        /* statement 17: this path is the mounted model */
        {"HF_MODEL_ID=/opt/ml/model", "", "/opt/ml/model --served-model-name model ", 0},
        {"NO_WEIGHTS=1\nHF_MODEL_ID=org/name-x", "", "org/name-x --served-model-name org_name_x ",
         0},
        {"NO_WEIGHTS=1", "", "no model to serve: /opt/ml/model contains no config.json", 0},
        {"", "", "--tensor-parallel-size 4", 4}, /* statement 18: the default is all GPUs */
        {"", "option.pipeline_parallel_degree=2",
         "--tensor-parallel-size 2 --pipeline-parallel-size 2", 4},
        /* Statement 19: a degree above the number of GPUs is an error. */
        {"OPTION_TENSOR_PARALLEL_DEGREE=8", "", "is more than the 4 GPUs", 4},
        /* statement 20: this is a fallback name */
        {"TENSOR_PARALLEL_DEGREE=2", "", "--tensor-parallel-size 2", 2},
        {"SM_NUM_GPUS=2", "", "--tensor-parallel-size 2", 2},
        {"SM_NUM_GPUS=2\nTENSOR_PARALLEL_DEGREE=1", "", "--tensor-parallel-size 1", 2},
        {"OPTION_TENSOR_PARALLEL_DEGREE=1", "", "--data-parallel-size 4", 4},
        {"OPTION_TENSOR_PARALLEL_DEGREE=zwei", "", "give a number from 1 to 1024, or max", 4},
        {"OPTION_DTYPE=fp32", "", "--dtype float32", 0}, /* statement 21: all dtypes are known */
        {"OPTION_DTYPE=float32", "", "--dtype float32", 0},
        {"OPTION_DTYPE=float16", "", "--dtype float16", 0},
        {"OPTION_DTYPE=bfloat16", "", "--dtype bfloat16", 0},
        {"OPTION_DTYPE=auto", "", "--dtype auto", 0},
        {"OPTION_DTYPE=fp17", "", "dtype=fp17 is not supported: use", 0},
        /* Statement 22: lmi-dist is served as vllm. */
        {"OPTION_ROLLING_BATCH=lmi-dist", "", "--invocations rolling", 0},
        {"OPTION_ROLLING_BATCH=lmi-dist", "", "rolling_batch=lmi-dist is served as vllm", 0},
        /* Statement 23: auto means asynchronous invocations. */
        {"OPTION_ROLLING_BATCH=auto", "", "--invocations async --max-num-seqs 32", 0},
        {"", "", "--invocations async", 0},
        {"OPTION_ROLLING_BATCH=fast", "", "rolling_batch=fast is not supported: use", 0},
        {"OPTION_MAX_NUM_SEQS=4\nMAX_BATCH_SIZE=5", "", "--max-num-seqs 4", 0},
        {"OPTION_MAX_NUM_SEQS=4\nOPTION_MAX_ROLLING_BATCH_SIZE=5", "", "Set only one of them", 0},
        {"SAGEMAKER_BIND_TO_PORT=9000", "", "--port 9000", 0}, /* statement 3: sets the port */
        {"SERVING_JOB_QUEUE_SIZE=7", "", "--max-waiting 7", 0},
        {"SERVING_JOB_QUEUE_SIZE=7", "job_queue_size=9", "--max-waiting 9", 0},
        {"OPTION_ENFORCE_EAGER=true", "", "--enforce-eager", 0},
        {"OPTION_ENFORCE_EAGER=false", "", "!--enforce-eager", 0},
        {"OPTION_ENABLE_PREFIX_CACHING=false", "", "--no-enable-prefix-caching", 0},
        {"OPTION_QUANTIZE=awq", "", "pre-quantised weights are detected automatically", 0},
        {"option.dtype=fp17", "", "!fp17", 0},
        {"", "", "--startup-timeout 1200", 0}, /* statement 15: three ways set the time-out */
        {"MODEL_LOADING_TIMEOUT=5", "", "--startup-timeout 5", 0},
        {"OPTION_MODEL_LOADING_TIMEOUT=6\nMODEL_LOADING_TIMEOUT=5", "", "--startup-timeout 6", 0},
        {"OPTION_MODEL_LOADING_TIMEOUT=6\nSAGEMAKER_STARTUP_TIMEOUT=8",
         "option.model_loading_timeout=7", "--startup-timeout 8", 0},
        {"", "", "--max-body-bytes 67108864", 0}, /* statement 28: the body has a size limit */
        {"SERVING_MAX_REQUEST_SIZE=5000", "", "--max-body-bytes 5000", 0},
        {"SERVING_MAX_REQUEST_SIZE=5000\nSAGEMAKER_MAX_PAYLOAD_IN_MB=6", "",
         "--max-body-bytes 6291456", 0},
        {"SAGEMAKER_MAX_REQUEST_SIZE=7000\nSAGEMAKER_MAX_PAYLOAD_IN_MB=6", "",
         "--max-body-bytes 7000", 0},
        {"SAGEMAKER_MAX_PAYLOAD_IN_MB=x", "",
         "SAGEMAKER_MAX_PAYLOAD_IN_MB=x is invalid: give a number", 0},
        {"", "", "--chunk-timeout 120", 0}, /* statement 29: a silent stream has a time-out */
        {"", "chunked_read_timeout=9", "--chunk-timeout 9", 0},
        /* Statement 27: the variable sets the status of a full queue. */
        {"SERVING_THROTTLE_ERROR_HTTP_CODE=429", "", "--invocations-statuses throttle_error=429",
         0},
        {"", "", "!--invocations-statuses", 0},
        /* Statement 53: the option enables TGI's form of answers. */
        {"OPTION_ROLLING_BATCH=vllm\nOPTION_TGI_COMPAT=true", "", "--invocations tgi", 0},
        {"OPTION_ROLLING_BATCH=auto\nOPTION_TGI_COMPAT=true", "", "--invocations async", 0},
        /* Statement 45: disable means static batches. */
        {"OPTION_ROLLING_BATCH=disable", "", "--invocations static", 0},
        {"OPTION_ROLLING_BATCH=disable\nOPTION_ASYNC_MODE=true", "", "--invocations async", 0},
        {"OPTION_ROLLING_BATCH=vllm", "batch_size=4", "--invocations static", 0},
        {"OPTION_ROLLING_BATCH=vllm", "batch_size=4", "turns rolling_batch off", 0},
        {"OPTION_ROLLING_BATCH=vllm\nSERVING_BATCH_SIZE=1", "", "--invocations rolling", 0},
    };
    check_settings(cases, sizeof cases / sizeof *cases);
}

static void test_variables_of_vllm(void **state)
{
    static const struct settings_case cases[] = {
        {"VLLM_MAX_NUM_SEQS=16", "", "--max-num-seqs 16", 0},
        {"OPTION_ROLLING_BATCH=vllm\nVLLM_MAX_NUM_SEQS=16", "", "--max-num-seqs 16", 0},
        {"VLLM_MAX_NUM_SEQS=16\nOPTION_MAX_NUM_SEQS=16", "", "!no effect", 0},
        {"VLLM_MAX_NUM_SEQS=16", "option.max_num_seqs=4", "--max-num-seqs 4", 0},
        {"VLLM_MAX_MODEL_LEN=100", "", "--max-model-len 100", 0},
        {"VLLM_MAX_NUM_BATCHED_TOKENS=64", "", "--max-num-batched-tokens 64", 0},
        {"VLLM_GPU_MEMORY_UTILIZATION=0.5", "", "--gpu-memory-utilization 0.5", 0},
    };
    check_settings(cases, sizeof cases / sizeof *cases);
}

/* DJL's `max_batch_delay` waits before a static batch begins. This server does not wait, so it
 * warns. */
static void test_batch_delay_is_warned_of(void **state)
{
    char got[JOINED_BYTES];
    read_settings("SERVING_MAX_BATCH_DELAY=50", "batch_size=4", 0, got);
    assert_non_null(strstr(got, "max_batch_delay has no effect"));
    read_settings("", "batch_size=4\nmax_batch_delay=50", 0, got);
    assert_non_null(strstr(got, "max_batch_delay has no effect"));
    read_settings("", "batch_size=4", 0, got);
    assert_null(strstr(got, "max_batch_delay"));
}

static void test_settings_in_the_log(void **state)
{
    char *env[] = {(char[]){"HF_TOKEN=hf_secret"},
                   (char[]){"OPTION_MAX_NUM_BATCHED_TOKENS=16"},
                   (char[]){"VLLM_MAX_NUM_SEQS=16"},
                   (char[]){"AWS_SECRET=SAGEMAKER"},
                   (char[]){"SAGEMAKER_REGION=a\nb"},
                   (char[]){"SAGEMAKER_API_KEY=k"},
                   NULL};
    const struct sagemaker_input in = {
        .environ_ = env,
        .properties = STR("# x\noption.dtype=fp16\r\n\noption.hf_token=geheim\n"
                          "  option.api_key = geheim\noption.hf_token: geheim\r\n\t! note\n"
                          "option.a.password:geheim=1\n"),
        .has_weights = true};
    struct sagemaker_output o;
    struct arena arena;
    struct error err;
    struct strbuf b;
    arena_init(&arena, 0);
    strbuf_init(&b, 0);
    assert_int_equal(sagemaker_read(&in, &arena, &o, &err), STATUS_OK);
    sagemaker_settings(&in, &o, &b);
    assert_string_equal(strbuf_str(&b).ptr, "[INFO ] ModelServer -\n"
                                            "Inference address: http://0.0.0.0:8080\n"
                                            "Management address: http://0.0.0.0:8080\n"
                                            "Default job_queue_size: 1000\n"
                                            "Default batch_size: 1\n"
                                            "Default max_batch_delay: 100\n"
                                            "Default max_idle_time: 60\n"
                                            "Model Store: /opt/ml/model\n"
                                            "Initial Models: ALL\n"
                                            "Netty threads: 0\n"
                                            "Maximum Request Size: 67108864\n"
                                            "Environment variables:\n"
                                            "    HF_TOKEN: ***\n"
                                            "    OPTION_MAX_NUM_BATCHED_TOKENS: 16\n"
                                            "    SAGEMAKER_REGION: a?b\n"
                                            "    SAGEMAKER_API_KEY: ***\n");
    strbuf_reset(&b);
    sagemaker_model_settings(&in, &o, &b);
    assert_string_equal(strbuf_str(&b).ptr,
                        "[INFO ] ModelInfo - M-0001: Apply per model settings:\n"
                        "    job_queue_size: 1000\n"
                        "    max_dynamic_batch_size: 1\n"
                        "    max_batch_delay: 100\n"
                        "    max_idle_time: 60\n"
                        "    load_on_devices: *\n"
                        "    option.max_num_batched_tokens: 16\n"
                        "    option.dtype=fp16\n"
                        "    option.hf_token=***\n"
                        "    option.api_key=***\n"
                        "    option.hf_token=***\n"
                        "    option.a.password=***\n");
    strbuf_reset(&b);
    const struct sagemaker_model m = {"m", "llama", "rolling", "0.0.0.0", 8080, 2, 2, 4, "set\n"};
    sagemaker_loading(&m, &b);
    sagemaker_ready(&m, &b);
    assert_string_equal(
        strbuf_str(&b).ptr,
        "[INFO ] LmiUtils - Detected mpi_mode: null, rolling_batch: rolling, "
        "tensor_parallel_degree: 2, for modelType: llama\n"
        "set\n"
        "[INFO ] WorkLoadManager - Model [m] initialized.\n"
        "[INFO ] WorkerThread - Starting worker thread WT-0001 for model m (M-0001, READY) on "
        "device gpu(0)\n"
        "[INFO ] WorkerThread - Starting worker thread WT-0002 for model m (M-0001, READY) on "
        "device gpu(2)\n"
        "[INFO ] ModelServer - Initialize BOTH server.\n"
        "[INFO ] ModelServer - BOTH API bind to: http://0.0.0.0:8080\n");
    strbuf_fini(&b);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed_000), cmocka_unit_test(test_settings),
        cmocka_unit_test(test_variables_of_vllm), cmocka_unit_test(test_batch_delay_is_warned_of),
        cmocka_unit_test(test_settings_in_the_log)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
