/* Fuzzes chat templates. A template and a context, separated by the first NUL, are compiled and
 * rendered with little fuel. As in text_model_fuzz.c there must be no panic and no fault, and
 * the rendering must end. */
#include "text/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char plain[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    char err[TEXT_ERR_MAX], *out = NULL;
    const char *source = (const char *)data, *context = plain;
    size_t n_source = size, n_context = sizeof plain - 1, len = 0;
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    if (nul) {
        n_source = (size_t)(nul - data);
        context = (const char *)nul + 1;
        n_context = size - n_source - 1;
    }
    struct text_template *t = NULL;
    int rc = text_template_new(source, n_source, &t, err);
    if (rc == TEXT_OK) {
        rc = text_template_render(t, context, n_context, 1721995200, 10000, &out, &len, err);
        text_template_free(t);
    }
    if (rc == TEXT_INTERNAL)
        abort();
    if (rc == TEXT_OK)
        text_free(out);
    return 0;
}
