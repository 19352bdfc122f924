/* Fuzzes the reader of CPU lists, from /sys or from a user. An accepted list must be read as the
 * same list after it was printed. Words of a user are refused, or give only CPUs that are
 * allowed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/host/numa.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void bind_by(const char *node, const char *cpus)
{
    static struct numa n = {.n_nodes = 2, .ids = {0, 7}};
    struct numa_binding b;
    struct error err;
    cpu_set_t allowed, both;
    CPU_ZERO(&allowed);
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++) {
        n.node_of[i] = i < 24 ? (int16_t)(i < 16 ? 0 : 7) : -1;
        if (i % 4 != 0 && i < 30)
            CPU_SET(i, &allowed);
    }
    const struct numa_words w = {"-n", node, "-c", cpus};
    if (numa_bind_to(&n, &allowed, &w, &b, &err) != STATUS_OK) {
        check(strstr(err.text, "-n") || strstr(err.text, "-c"));
        return;
    }
    CPU_AND(&both, &allowed, &b.cpus);
    check(CPU_COUNT(&b.cpus) > 0 && CPU_EQUAL(&both, &b.cpus));
    check(b.node < 0 || numa_node_of(&n, &b.cpus) == b.node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cpu_set_t set, again;
    struct error err;
    char printed[8192], text[256];
    struct str s = {(const char *)data, size};
    if (size > 0 && numa_list_parse(s, NUMA_MAX_CPUS, &set, &err) == STATUS_OK &&
        CPU_COUNT(&set) > 0) {
        numa_list_print(&set, printed, sizeof printed);
        check(numa_list_parse(str_from(printed), NUMA_MAX_CPUS, &again, &err) == STATUS_OK);
        check(CPU_EQUAL(&set, &again));
    }
    size_t n = size < sizeof text ? size : sizeof text - 1;
    if (n > 0)
        memcpy(text, data, n);
    text[n] = '\0';
    bind_by(NULL, text);
    bind_by(text, NULL);
    char *list = strchr(text, ' ');
    if (list) {
        *list = '\0';
        bind_by(text, list + 1);
    }
    return 0;
}
