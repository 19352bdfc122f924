#pragma once
/* The words of a child's command line: how one is written, and those that several programs take
 * alike. A child's words live on the builder's arena, or are the options' own. */
#include "cli/up/plan/options.h"
#include "cli/up/plan/types.h"
#include "common/base/arena.h"
#include "common/base/str.h"

/* The one plan whose children are written. Everything is borrowed. */
struct up_builder {
    const struct up_options *o;
    const char *model;
    const struct up_place *place;
    struct arena *arena;
    int64_t n_workers;
};

const char *up_text(struct up_builder *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void up_arg(struct up_child *c, const char *a);
/* value NULL: nothing is written. */
void up_flag(struct up_child *c, const char *name, const char *value);
void up_flag_int(struct up_builder *b, struct up_child *c, const char *name, int64_t value);
/* 0 in cox up's table: the program's own default. */
void up_flag_if(struct up_builder *b, struct up_child *c, const char *name, int64_t value);
/* As one value: a command line has room for so many words. */
void up_flag_of_list(struct up_builder *b, struct up_child *c, const char *name,
                     const struct option_list *l);
/* of: which of the child's listeners, "'s admin API"; "" for the child itself. Port 0: any port,
 * which meets nobody's. */
void up_listens(struct up_builder *b, struct up_child *c, const char *of, const char *flag_name,
                const char *host, int64_t port);
/* The program and the flags of every child. */
void up_common(struct up_builder *b, struct up_child *c, const char *program);
void up_flags_of_adapters(struct up_builder *b, struct up_child *c);
void up_flags_of_names(struct up_builder *b, struct up_child *c);
/* The address at which peers find the head; with a standby, both addresses. */
const char *up_heads(struct up_builder *b);

/* "[::1]" for an address that has colons of its own. */
const char *up_host_port(struct up_builder *b, const char *host, int64_t port);
/* The address to reach a listener at that listens everywhere. */
const char *up_reachable_host(const char *host);
/* HOST:PORT at which this machine reaches a listener of its own: loopback for a wildcard, brackets
 * around an IPv6 address. On the arena. */
const char *up_reachable(struct arena *arena, const char *host, int64_t port);
