/* Fuzzes key texts from users and files. The bytes are read as an authorized file, as a PEM file
 * and as a join token. An accepted token must be the encoding of its content. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/keys/authorized.h"
#include "common/keys/join_token.h"
#include "common/keys/key_files.h"
#include "common/keys/pem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_authorized(const uint8_t *data, size_t size)
{
    char path[64];
    struct authorized a;
    struct error err;
    int fd = memfd_create("authorized", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (authorized_load(path, &a, &err) == STATUS_OK)
        for (uint32_t i = 0; i < a.n_entries; i++)
            if (a.entries[i].role == ROLE_HEAD || a.entries[i].role == ROLE_NONE ||
                strlen(a.entries[i].public_key) != 40)
                abort();
    authorized_fini(&a);
    close(fd);
}

/* Reads the text as PEM. Accepted text must be PEM, with as many keys as were requested. */
static void read_pem(struct str text)
{
    uint8_t keys[2][PEM_KEY_BYTES];
    uint32_t n;
    struct error err = {0};
    if (key_pem_publics(text, "pub", keys, 2, &n, &err) == STATUS_OK &&
        (n == 0 || n > 2 || !key_pem_is(text)))
        abort();
    if (key_pem_secret(text, "key", keys[0], &err) == STATUS_OK && !key_pem_is(text))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct join_token t;
    struct error err;
    char again[2048], *text = malloc(size + 1);
    if (!text)
        return 0;
    read_authorized(data, size);
    read_pem((struct str){(const char *)data, size});
    memcpy(text, data, size);
    text[size] = '\0';
    if (join_token_decode(text, &t, &err) == STATUS_OK &&
        (join_token_encode(&t, again, sizeof again, &err) != STATUS_OK || !strstr(text, again)))
        abort();
    free(text);
    return 0;
}
