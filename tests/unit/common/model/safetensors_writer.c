/* Writes small safetensors files, valid or not, from the text of their header. The tests include
 * this file. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/str.h"

/* Writes `header` with ' replaced by ", and n_data bytes of data. `length` is the header length
 * that the file claims; 0 = the true one. */
static void put_safetensors(struct strbuf *b, const char *header, uint64_t length, size_t n_data)
{
    uint64_t n = length ? length : strlen(header);
    bool ok = strbuf_append(b, &n, sizeof n);
    for (const char *p = header; *p; p++)
        ok &= strbuf_append(b, *p == '\'' ? "\"" : p, 1);
    for (size_t i = 0; i < n_data; i++) {
        char c = (char)(i * 7 + 1);
        ok &= strbuf_append(b, &c, 1);
    }
    if (!ok)
        __builtin_trap();
}
