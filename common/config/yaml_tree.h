#pragma once
/* Parses a YAML document into a tree that has the place of each of its parts. The tree is for
 * files that are more than a flat table of options (config.h reads those). Only plain values are
 * allowed. Anchors, aliases, tags, a second document, a repeated key, and a tree beyond the
 * bounds below are refused. All nodes are on the caller's arena. Only one thread calls these
 * functions. */
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/str.h"

enum { YAML_TREE_DEPTH_MAX = 16, YAML_TREE_NODES_MAX = 8192 };

enum yaml_kind { YAML_KIND_TEXT, YAML_KIND_LIST, YAML_KIND_MAP };

struct yaml_mark {
    uint32_t line, column; /* place in the text; line and column count from 1 */
};

struct yaml_node {
    enum yaml_kind kind;
    struct yaml_mark at;
    bool is_plain;    /* TEXT: the text was written without quotes */
    const char *text; /* TEXT: NUL-terminated; contains no other NUL */
    /* LIST, MAP: `first` is the first child. `next` is the next child of the same parent, and
     * `key` of a MAP's child is a TEXT. */
    struct yaml_node *first, *next, *key;
    uint32_t n;
};

/* Parses `text`. Sets *root to NULL for an empty file. On failure *at is the place of the fault. */
MUST_USE enum status yaml_tree_parse(struct str text, struct arena *arena, struct yaml_node **root,
                                     struct yaml_mark *at, struct error *err);
/* Returns true for a null value: "", ~ or null, without quotes. */
bool yaml_node_is_null(const struct yaml_node *n);
/* Appends the node as JSON, which is also valid YAML. A number, true, false or null without
 * quotes stays unchanged. */
void yaml_node_append_json(const struct yaml_node *n, struct strbuf *out);
