/* Writes the first lines of a log in DJL Serving's form, which its users search for. */
#include "cli/sagemaker/log.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Returns true for variables that configure the server. VLLM_ variables and the rest of the
 * environment are not printed. */
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

/* Returns true for a name that ends like a secret's, such as HF_TOKEN. A name that ends in
 * _TOKENS is a number. */
static bool is_secret(struct str name)
{
    static const char *const ends[] = {"TOKEN", "SECRET", "PASSWORD", "KEY"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        if (name.len >= n && strncasecmp(name.ptr + name.len - n, ends[i], n) == 0)
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
        /* each variable stays on one line */
        strbuf_append(out, iscntrl((unsigned char)*c) ? "?" : c, 1);
    strbuf_append_c(out, "\n");
}

/* Appends the options from the environment, with the names that they have in serving.properties. */
static void append_option_variables(const struct sagemaker_input *in, struct strbuf *out)
{
    static const char prefix[] = "OPTION_";
    for (char *const *v = in->environ_; *v; v++) {
        const char *end = strchr(*v, '=');
        if (!end || !end[1] || strncmp(*v, prefix, sizeof prefix - 1) != 0)
            continue;
        const char *name = *v + sizeof prefix - 1;
        strbuf_append_c(out, "    option.");
        for (const char *c = name; c < end; c++)
            strbuf_append(out, (char[]){(char)tolower((unsigned char)*c)}, 1);
        strbuf_append_c(out, ": ");
        bool secret = is_secret((struct str){name, (size_t)(end - name)});
        for (const char *c = secret ? "***" : end + 1; *c; c++)
            strbuf_append(out, iscntrl((unsigned char)*c) ? "?" : c, 1);
        strbuf_append_c(out, "\n");
    }
}

/* Appends the options of serving.properties last, because they override the environment. */
static void append_options(const struct sagemaker_input *in, struct strbuf *out)
{
    struct str rest = in->properties;
    while (rest.len > 0) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        struct str line = {rest.ptr, end ? (size_t)(end - rest.ptr) : rest.len};
        struct str name, value;
        if (sagemaker_split_property(line, &name, &value)) {
            struct str shown = is_secret(name) ? name : str_trim(line, " \t");
            strbuf_append_c(out, "    ");
            for (size_t i = 0; i < shown.len; i++)
                if (!iscntrl((unsigned char)shown.ptr[i]))
                    strbuf_append(out, shown.ptr + i, 1);
            strbuf_append_c(out, is_secret(name) ? "=***\n" : "\n");
        }
        size_t n = line.len + (end != NULL);
        rest = (struct str){rest.ptr + n, rest.len - n};
    }
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
                  "[INFO ] ModelServer -\n"
                  "Inference address: http://%s:%s\n"
                  "Management address: http://%s:%s\n"
                  "Default job_queue_size: %s\n"
                  "Default batch_size: 1\n"
                  "Default max_batch_delay: 100\n"
                  "Default max_idle_time: 60\n"
                  "Model Store: %s\n"
                  "Initial Models: ALL\n"
                  "Netty threads: 0\n"
                  "Maximum Request Size: %s\n"
                  "Environment variables:\n",
                  host, port, host, port, value_of(o, "--max-waiting"),
                  sagemaker_model_store(in->environ_), value_of(o, "--max-body-bytes"));
    for (char *const *v = in->environ_; *v; v++)
        if (strchr(*v, '=') && is_shown(*v))
            append_variable(out, *v);
}

void sagemaker_model_settings(const struct sagemaker_input *in, const struct sagemaker_output *o,
                              struct strbuf *out)
{
    strbuf_printf(out,
                  "[INFO ] ModelInfo - M-0001: Apply per model settings:\n"
                  "    job_queue_size: %s\n"
                  "    max_dynamic_batch_size: 1\n"
                  "    max_batch_delay: 100\n"
                  "    max_idle_time: 60\n"
                  "    load_on_devices: *\n",
                  value_of(o, "--max-waiting"));
    append_option_variables(in, out);
    append_options(in, out);
}

void sagemaker_loading(const struct sagemaker_model *m, struct strbuf *out)
{
    strbuf_printf(out,
                  "[INFO ] LmiUtils - Detected mpi_mode: null, rolling_batch: %s, "
                  "tensor_parallel_degree: %u, for modelType: %s\n",
                  m->rolling_batch, m->tp, m->family ? m->family : "unknown");
    if (m->settings)
        strbuf_append_c(out, m->settings);
}

static void append_device(const struct sagemaker_model *m, uint32_t i, struct strbuf *out)
{
    if (m->n_gpus > 0)
        strbuf_printf(out, "gpu(%u)", i);
    else
        strbuf_append_c(out, "cpu()");
}

void sagemaker_ready(const struct sagemaker_model *m, struct strbuf *out)
{
    strbuf_printf(out, "[INFO ] WorkLoadManager - Model [%s] initialized.\n", m->name);
    for (uint32_t i = 0; i < m->dp; i++) {
        strbuf_printf(out,
                      "[INFO ] WorkerThread - Starting worker thread WT-%04u for model %s (M-0001, "
                      "READY) on device ",
                      i + 1, m->name);
        append_device(m, i * m->tp, out);
        strbuf_append_c(out, "\n");
    }
    strbuf_printf(out,
                  "[INFO ] ModelServer - Initialize BOTH server.\n"
                  "[INFO ] ModelServer - BOTH API bind to: http://%s:%u\n",
                  m->host, m->port);
}
