/* Implements `cox flags --environment`, which prints docs/reference/environment.md.
 *
 * Data flow: the page has two sources. The option tables of all commands give the variables of
 * other programs that set an option (option_spec.env). `variables` below gives the variables that
 * a program reads only by name. environment_write_markdown appends a table for the first source
 * and one table per section for the second. COX_<OPTION> has no rows, because it follows from the
 * option's name; the page's first section describes it.
 *
 * Invariants: each variable that a program reads by name, except COX_<OPTION>, is on the page, and
 * each row has a reader (tests/scripts/environment_test.py). The first row has a section.
 * find_foreign lists at most NAMES_MAX names, each once, in the order of the commands. */
#include "cli/commands/documents/environment.h"

#include <string.h>

#include "common/config/lookup.h"

enum { NAMES_MAX = 128 };

struct variable {
    /* title of the section that begins with this row; NULL = the row belongs to the previous
     * section */
    const char *section;
    const char *name, *reader, *meaning;
};

static const struct variable variables[] = {
    {"The system's variables", "HOME", "all",
     "Home folder. The cache is in `.cache/coxswain` below it."},
    {NULL, "XDG_STATE_HOME", "`cox up`, `cox run`, `cox chat`",
     "Folder of logs, runs and the chat history. Default: `~/.local/state`."},
    {NULL, "XDG_CACHE_HOME", "`cox pull`",
     "Folder that has `huggingface/hub`, if `HF_HOME` is not set. Default: `~/.cache`."},
    {NULL, "TMPDIR", "`cox up`, `cox ps`, `cox run-batch`, `cox plan`, `cox worker`",
     "Folder of throw-away keys, sockets and other temporary files. Default: `/tmp`."},
    {NULL, "PATH", "`cox-worker`",
     "Folders of Python environments in which the CUDA libraries are searched for."},
    {NULL, "TERM", "`cox up`, `cox status`",
     "`dumb` turns off colours in `cox status` and updates in place in `cox up`."},
    {NULL, "NO_COLOR", "`cox chat`, `cox status`",
     "A value that is not empty turns off colours (<https://no-color.org>)."},
    {NULL, "CUDA_VISIBLE_DEVICES", "`cox-worker`, `cox serve`",
     "GPUs that a process may use. `--gpu` counts within them."},
    {NULL, "KUBERNETES_SERVICE_HOST", "`cox scale`",
     "Set in a pod. `cox scale` then prints the `kubectl` command that changes the number of "
     "workers."},

    {"Configuration of Coxswain", "COX_CONFIG", "all", "YAML file with options, as `--config`."},
    {NULL, "COX_RUN_ID", "`cox run create`", "ID of a run. `cox run` sets it in the run."},
    {NULL, "COX_RUN_ENV", "`cox run create`",
     "Names of the run's own variables. A run that is started from within a run does not inherit "
     "them."},
    {NULL, "COX_RUN_ROOT", "programs of a run", "Folder of the run. `cox run` sets it."},
    {NULL, "COX_RUNS", "`cox-head`",
     "Path of the program `cox`, for the page of runs. `cox run` sets it."},
    {NULL, "COX_KV_LAYOUT", "`cox-worker`",
     "Layout of the KV cache in memory, for measurements: `block` or `layer`. The results are "
     "equal."},

    {"Hugging Face", "HF_HOME", "`cox pull`",
     "Folder of the Hugging Face cache; the models are in `hub` below it."},

    {"AWS, for models in S3", "AWS_PROFILE", "`cox pull`",
     "Profile in the credentials and config files. Default: `AWS_DEFAULT_PROFILE`, or `default`."},
    {NULL, "AWS_DEFAULT_PROFILE", "`cox pull`", "Profile, if `AWS_PROFILE` is not set."},
    {NULL, "AWS_SHARED_CREDENTIALS_FILE", "`cox pull`",
     "Credentials file. Default: `~/.aws/credentials`."},
    {NULL, "AWS_CONFIG_FILE", "`cox pull`", "Config file. Default: `~/.aws/config`."},
    {NULL, "AWS_ROLE_ARN", "`cox pull`", "Role to assume with a web identity."},
    {NULL, "AWS_WEB_IDENTITY_TOKEN_FILE", "`cox pull`", "File with the token of a web identity."},
    {NULL, "AWS_ROLE_SESSION_NAME", "`cox pull`", "Name of the session with that role."},
    {NULL, "AWS_ENDPOINT_URL_STS", "`cox pull`",
     "Address of the security token service. Default: `AWS_ENDPOINT_URL`, or the region's."},
    {NULL, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "`cox pull`",
     "Path of the container's credentials at the ECS endpoint."},
    {NULL, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "`cox pull`",
     "Address of the container's credentials, for example on EKS."},
    {NULL, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "`cox pull`", "Token for that address."},
    {NULL, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "`cox pull`",
     "File with the token for that address."},
    {NULL, "AWS_EC2_METADATA_DISABLED", "`cox pull`",
     "`true` = do not ask the EC2 metadata service for credentials."},
    {NULL, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "`cox pull`",
     "Address of the EC2 metadata service."},
    {NULL, "AWS_METADATA_SERVICE_TIMEOUT", "`cox pull`",
     "Seconds to wait for the EC2 metadata service."},

    {"SageMaker and DJL Serving", "SAGEMAKER_BIND_TO_PORT", "`cox serve`",
     "HTTP port. Default: 8080. Any variable that begins with `SAGEMAKER_` turns on the mode."},
    {NULL, "SAGEMAKER_SAFE_PORT_RANGE", "`cox serve`",
     "First and last port for the models of a multi-model endpoint."},
    {NULL, "SAGEMAKER_MULTI_MODEL", "`cox serve`", "`true` = serve a multi-model endpoint."},
    {NULL, "SAGEMAKER_STARTUP_TIMEOUT", "`cox serve`",
     "Seconds until the model must be loaded (`--startup-timeout`)."},
    {NULL, "SAGEMAKER_MAX_REQUEST_SIZE", "`cox serve`",
     "Maximum bytes of a request body (`--max-body-bytes`)."},
    {NULL, "SAGEMAKER_MAX_PAYLOAD_IN_MB", "`cox serve`",
     "The same in MiB, if `SAGEMAKER_MAX_REQUEST_SIZE` is not set. 0 = no change."},
    {NULL, "SAGEMAKER_BATCH_STRATEGY", "`cox serve`",
     "Strategy of a batch transform job. `MULTI_RECORD` causes a warning."},
    {NULL, "SERVING_MODEL_STORE", "`cox serve`",
     "Folder of the mounted model. Default: `/opt/ml/model`."},
    {NULL, "HF_MODEL_ID", "`cox serve`", "Model to serve, as `OPTION_MODEL_ID`."},
    {NULL, "HF_REVISION", "`cox serve`", "Revision of that model."},
    {NULL, "HF_MODEL_QUANTIZE", "`cox serve`", "`fp8` = `--quantization fp8`."},
    {NULL, "TENSOR_PARALLEL_DEGREE", "`cox serve`",
     "Tensor parallel size; `max` = all GPUs. Default: `SM_NUM_GPUS`, or `max`."},
    {NULL, "SM_NUM_GPUS", "`cox serve`", "Tensor parallel size, if no other variable sets it."},
    {NULL, "PIPELINE_PARALLEL_DEGREE", "`cox serve`", "Pipeline parallel size."},
    {NULL, "MAX_BATCH_SIZE", "`cox serve`", "Maximum number of sequences (`--max-num-seqs`)."},
    {NULL, "MAX_BATCH_PREFILL_TOKENS", "`cox serve`",
     "Maximum number of tokens of a step (`--max-num-batched-tokens`)."},
    {NULL, "MAX_CONCURRENT_REQUESTS", "`cox serve`",
     "Maximum number of waiting requests (`--max-waiting`)."},
    {NULL, "MODEL_LOADING_TIMEOUT", "`cox serve`",
     "Seconds until the model must be loaded (`--startup-timeout`)."},
    {NULL, "CUDA_MEMORY_FRACTION", "`cox serve`",
     "Fraction of the GPU memory (`--gpu-memory-utilization`)."},
    {NULL, "VLLM_MAX_NUM_SEQS", "`cox serve`", "`--max-num-seqs`, if no variable of DJL sets it."},
    {NULL, "VLLM_MAX_NUM_BATCHED_TOKENS", "`cox serve`",
     "`--max-num-batched-tokens`, if no variable of DJL sets it."},
    {NULL, "VLLM_MAX_MODEL_LEN", "`cox serve`",
     "`--max-model-len`, if no variable of DJL sets it."},
    {NULL, "VLLM_GPU_MEMORY_UTILIZATION", "`cox serve`",
     "`--gpu-memory-utilization`, if no variable of DJL sets it."},
};
enum { N_VARIABLES = sizeof variables / sizeof *variables };

static const char beginning[] =
    "# Environment variables\n\n"
    "This page is for readers who configure Coxswain by its environment, for example in a "
    "container. "
    "It lists every variable that a program reads.\n`cox flags --environment` prints it.\n\n"
    "## Options\n\n"
    "Each option of [Flags](flags.md) has a variable: `COX_` and the option's name in capitals, "
    "with underscores. `COX_MAX_NUM_SEQS=64` is\n`--max-num-seqs 64`. A switch is `true` or "
    "`false`. A list is separated by commas. The command line wins over the environment, and the "
    "environment over\nthe `--config` file. Aliases count too: `COX_TENSOR_PARALLEL_SIZE` is "
    "`COX_TP`. A program ignores the variables of other programs' options.\nCommands that download "
    "a model read the variables of `cox pull`.\n\n"
    "## Other names of options\n\n"
    "These variables belong to other programs and standards. `COX_<OPTION>` wins over them, and "
    "the first name of an option over its next one.\n\n"
    "| variable | option | commands |\n|---|---|---|\n";

/* `foreign` holds another program's variable, and the option that the variable sets. */
struct foreign {
    struct str name;
    const struct option_spec *option;
};

static bool is_known(const struct foreign *all, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(all[i].name, name))
            return true;
    return false;
}

static size_t find_foreign(const struct command_table *t, struct foreign out[NAMES_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; t->rows[i].specs && k < *t->rows[i].n_specs; k++) {
            const struct option_spec *s = &t->rows[i].specs[k];
            const char *rest = s->env ? s->env : "";
            for (struct str name; config_next_item(&rest, &name);)
                if (n < NAMES_MAX && !is_known(out, n, name))
                    out[n++] = (struct foreign){name, s};
        }
    return n;
}

static bool has_name(const struct option_spec *s, struct str name)
{
    const char *rest = s->env ? s->env : "";
    for (struct str one; config_next_item(&rest, &one);)
        if (str_eq(one, name))
            return true;
    return false;
}

/* Writes the names of the commands that have an option with this variable: "`cox up`, `cox
 * gateway`". */
static void write_commands(const struct command_table *t, struct str name, struct strbuf *b)
{
    const char *sep = "";
    for (size_t i = 0; i < t->n; i++) {
        bool has = false;
        for (size_t k = 0; t->rows[i].specs && k < *t->rows[i].n_specs; k++)
            has = has || has_name(&t->rows[i].specs[k], name);
        if (!has || !t->rows[i].help || strcmp(t->rows[i].name, "serve") == 0)
            continue;
        strbuf_printf(b, "%s`cox %s`", sep, t->rows[i].name);
        sep = ", ";
    }
}

void environment_write_markdown(const struct command_table *t, struct strbuf *out)
{
    struct foreign all[NAMES_MAX];
    size_t n = find_foreign(t, all);
    strbuf_append_c(out, beginning);
    for (size_t i = 0; i < n; i++) {
        strbuf_printf(out, "| `" STR_FMT "` | `--%s` | ", STR_ARG(all[i].name),
                      all[i].option->name);
        write_commands(t, all[i].name, out);
        strbuf_append_c(out, " |\n");
    }
    for (size_t i = 0; i < N_VARIABLES; i++) {
        const struct variable *v = &variables[i];
        if (v->section)
            strbuf_printf(out, "\n## %s\n\n| variable | read by | meaning |\n|---|---|---|\n",
                          v->section);
        strbuf_printf(out, "| `%s` | %s | %s |\n", v->name, v->reader, v->meaning);
    }
    strbuf_append_c(out, "\nDJL's other settings are `OPTION_<NAME>` for `option.<name>` in "
                         "serving.properties, and `SERVING_<NAME>` for the server's own settings.\n"
                         "[SageMaker](sagemaker.md#settings) lists them.\n");
}
