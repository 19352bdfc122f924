#pragma once
/* Writes the words of a child's command line, and the options that several programs share. The
 * strings live on the builder's arena, or belong to the options. */
#include "cli/up/plan/options.h"
#include "cli/up/plan/types.h"
#include "common/base/arena.h"
#include "common/base/str.h"

/* `up_builder` holds the plan whose command lines are being written. All pointers are borrowed. */
struct up_builder {
    const struct up_options *o;
    const char *model;
    const struct up_place *place;
    struct arena *arena;
    int64_t n_workers;
};

const char *up_text(struct up_builder *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void up_arg(struct up_child *c, const char *a);
/* Writes the option `--name value`. With `value` NULL it writes nothing. */
void up_flag(struct up_child *c, const char *name, const char *value);
void up_flag_int(struct up_builder *b, struct up_child *c, const char *name, int64_t value);
/* Writes the option when `value` is above 0. In the options of `cox up`, 0 means the program's
 * own default. */
void up_flag_if(struct up_builder *b, struct up_child *c, const char *name, int64_t value);
/* Writes the list as one word with commas, because the number of words in a command line is
 * limited. */
void up_flag_of_list(struct up_builder *b, struct up_child *c, const char *name,
                     const struct option_list *l);
/* Adds a listener of the child. `of` is the text behind the child's name in messages: "'s admin
 * API", or "" for the child's main listener. Port 0 means any free port, which needs no check. */
void up_listens(struct up_builder *b, struct up_child *c, const char *of, const char *flag_name,
                const char *host, int64_t port);
/* Writes the program's path and the options of every child. */
void up_common(struct up_builder *b, struct up_child *c, const char *program);
void up_flags_of_adapters(struct up_builder *b, struct up_child *c);
void up_flags_of_names(struct up_builder *b, struct up_child *c);
/* Returns the address of the head for peers. With a standby, the result has both addresses. */
const char *up_heads(struct up_builder *b);

/* Returns HOST:PORT, with brackets "[::1]" around an IPv6 address. */
const char *up_host_port(struct up_builder *b, const char *host, int64_t port);
/* Returns the address at which this machine reaches a listener: loopback for a wildcard address. */
const char *up_reachable_host(const char *host);
/* Returns the HOST:PORT at which this machine reaches a listener, allocated on the arena. The
 * host is loopback for a wildcard address. An IPv6 address has brackets. */
const char *up_reachable(struct arena *arena, const char *host, int64_t port);
