/* Fuzzes the model files that text/ reads, tokenizer.json, tokenizer.model or GGUF. A file is
 * opened, a text encoded, and every id decoded. The library behind text.h is Rust and is not
 * instrumented, so inputs vary blindly around the corpus. There must be no panic (TEXT_INTERNAL)
 * and no fault. */
#include "text/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(struct text_tokenizer *t)
{
    static const char text[] = "Row, row \xC3\xA9\xF0\x9F\x91\x8D <s>123\n";
    char err[TEXT_ERR_MAX], *back = NULL;
    uint32_t *ids = NULL;
    size_t n = 0, len = 0;
    int rc = text_encode(t, text, sizeof text - 1, true, 1000, &ids, &n, err);
    if (rc == TEXT_INTERNAL)
        abort();
    if (rc != TEXT_OK)
        return;
    struct text_decoder *d = text_decoder_new(t, false, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        const char *delta;
        if (text_decoder_push(d, ids[i], &delta, &len, err) == TEXT_INTERNAL)
            abort();
        text_token_bytes(t, ids[i], &len);
    }
    text_decoder_free(d);
    if (text_decode(t, ids, n, true, &back, &len, err) == TEXT_OK)
        text_free(back);
    text_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[TEXT_ERR_MAX], path[64];
    struct text_tokenizer *t = NULL;
    struct text_template *chat = NULL;
    int fd = memfd_create("model", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = text_tokenizer_open(path, NULL, &t, err);
    if (rc == TEXT_INTERNAL)
        abort();
    if (rc == TEXT_OK) {
        use(t);
        text_tokenizer_free(t);
    }
    rc = text_template_open(path, NULL, NULL, &chat, err);
    if (rc == TEXT_INTERNAL)
        abort();
    if (rc == TEXT_OK)
        text_template_free(chat);
    close(fd);
    return 0;
}
