/* Fuzzes what `cox version --verify` reads: a list of sums, a public key and a signature of
 * minisign. The paths of an accepted list stay below their folder. A signature that is accepted
 * must have the signature bytes of one of the two signatures that the key made. */
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify/minisign.h"
#include "cli/verify/sums.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT "Coxswain signs this text.\n"
static const char key_text[] = "untrusted comment: minisign public key 7499551B1133D6D4\n"
                               "RWTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H/\n";

static void read_list(struct str text)
{
    struct sums s;
    struct error err;
    if (sums_parse(text, &s, &err) != STATUS_OK)
        return;
    for (size_t i = 0; i < s.n_items; i++) {
        struct str p = s.items[i].path;
        if (p.len == 0 || p.ptr[0] == '/' || str_starts(p, STR("../")) || !sums_printable(p) ||
            s.items[i].hex.len != SUM_HEX || sums_find(&s, p) != &s.items[i])
            abort();
        for (size_t k = 0; k + 4 <= p.len; k++)
            if (memcmp(p.ptr + k, "/../", 4) == 0)
                abort();
    }
    sums_fini(&s);
}

static void read_signature(struct str text)
{
    struct minisign_key k;
    struct minisign_signature s;
    struct error err;
    if (minisign_read_key(str_from(key_text), "key", &k, &err) != STATUS_OK)
        abort();
    if (minisign_read_signature(text, "signature", &s, &err) != STATUS_OK)
        return;
    if (s.comment.ptr < text.ptr || s.comment.ptr + s.comment.len > text.ptr + text.len)
        abort();
    if (minisign_check(&k, &s, STR(TEXT), &err) == STATUS_OK &&
        (!str_eq(s.comment, STR("coxswain 1.2.3 x86_64 cpu")) ||
         s.of_content[0] != (s.is_hashed ? 0xc1 : 0x47)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    struct minisign_key k;
    struct error err;
    if (sodium_init() < 0)
        abort();
    read_list(text);
    read_signature(text);
    if (minisign_read_key(text, "key", &k, &err) == STATUS_OK && size < 56)
        abort();
    return 0;
}
