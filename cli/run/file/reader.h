#pragma once
/* Reads the parts of a run file by tables of keys. Only cli/run/file includes this header. The
 * function of a key receives the value's node. An error is added to the problems, and the reader
 * continues. */
#include "cli/run/file/problems.h"
#include "cli/run/file/types.h"
#include "common/base/arena.h"
#include "common/config/yaml_tree.h"

struct run_reader {
    struct arena *arena;
    struct run_file *f;
    struct run_problems *p;
};

struct run_key {
    const char *name;
    void (*read)(struct run_reader *r, const struct yaml_node *v, void *ctx);
};

/* Calls the function of each key in a mapping. An unknown key is a problem. The problem's text
 * names the nearest known key. */
void run_read_map(struct run_reader *r, const struct yaml_node *map, const char *what,
                  const struct run_key *keys, size_t n_keys, void *ctx);
#define RUN_READ_MAP(r, map, what, keys, ctx)                                                      \
    run_read_map(r, map, what, keys, sizeof(keys) / sizeof(keys)[0], ctx)

/* Returns the text of a node. For a list, a mapping or a missing value, it returns NULL and adds
 * a problem. `what` names the value: "`name`". */
const char *run_read_text(struct run_reader *r, const struct yaml_node *v, const char *what);
bool run_read_int(struct run_reader *r, const struct yaml_node *v, const char *what, int64_t min,
                  int64_t max, int64_t *out);
/* Appends a zeroed item to a RUN_LIST and returns it. */
void *run_list_add(struct arena *arena, void *items, size_t *n, size_t *cap, size_t size);
#define RUN_ADD(r, list)                                                                           \
    run_list_add((r)->arena, (void *)&(list).items, &(list).n, &(list).cap, sizeof *(list).items)
/* Formats a string on the arena. */
const char *run_print(struct run_reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
