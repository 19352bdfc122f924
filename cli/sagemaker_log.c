/* The lines with which DJL Serving begins, as its users search for them. */
#include <ctype.h>
#include <string.h>

#include "cli/sagemaker.h"

/* Those that say how it was set up; VLLM_ and the rest of the environment are nobody's business. */
static bool is_shown(const char *variable)
{
    static const char *const begins[] = {"SERVING",
                                         "PYTHON",
                                         "DJL_",
                                         "HF_",
                                         "OPTION_",
                                         "TENSOR_PARALLEL_DEGREE=",
                                         "PIPELINE_PARALLEL_DEGREE=",
                                         "OMP_NUM_THREADS=",
                                         "CUDA_VISIBLE_DEVICES="};
    const char *end = strchr(variable, '='), *found = strstr(variable, "SAGEMAKER");
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
            return true;
    return end && found && found < end;
}

/* HF_TOKEN, and whatever else ends so; ..._TOKENS is a number. */
static bool is_secret(struct str name)
{
    static const char *const ends[] = {"TOKEN", "SECRET", "PASSWORD", "KEY"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        if (name.len >= n && memcmp(name.ptr + name.len - n, ends[i], n) == 0)
            return true;
    }
    return false;
}

static void append_variable(struct strbuf *out, const char *variable)
{
    const char *end = strchr(variable, '=');
    struct str name = {variable, (size_t)(end - variable)};
    strbuf_append_c(out, "    ");
    strbuf_append_str(out, name);
    strbuf_append_c(out, ": ");
    for (const char *c = is_secret(name) ? "***" : end + 1; *c; c++)
        strbuf_append(out, iscntrl((unsigned char)*c) ? "?" : c, 1); /* one line each */
    strbuf_append_c(out, "\n");
}

static const char *value_of(const struct sagemaker_output *o, const char *flag)
{
    for (uint32_t i = 0; i + 1 < o->n_args; i++)
        if (strcmp(o->args[i], flag) == 0)
            return o->args[i + 1];
    return "";
}

void sagemaker_settings(const struct sagemaker_input *in, const struct sagemaker_output *o,
                        struct strbuf *out)
{
    const char *host = value_of(o, "--host"), *port = value_of(o, "--port");
    strbuf_printf(out,
                  "Inference address: http://%s:%s\n"
                  "Management address: http://%s:%s\n"
                  "Default job_queue_size: %s\n"
                  "Default batch_size: 1\n"
                  "Model Store: %s\n"
                  "Initial Models: ALL\n"
                  "Environment variables:\n",
                  host, port, host, port, value_of(o, "--max-waiting"),
                  sagemaker_model_store(in->environ_));
    for (char *const *v = in->environ_; *v; v++)
        if (strchr(*v, '=') && is_shown(*v))
            append_variable(out, *v);
}
