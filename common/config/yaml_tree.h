#pragma once
/* A YAML document as a tree that knows where each part of it was written, for files that are more
 * than a flat table of options (config.h reads those). Plain values only: anchors, aliases and tags
 * are refused, as are a second document, a key twice, and more nodes or a deeper tree than the
 * bounds. All of it lives on the caller's arena; single thread. */
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/str.h"

enum { YAML_TREE_DEPTH_MAX = 16, YAML_TREE_NODES_MAX = 8192 };

enum yaml_kind { YAML_KIND_TEXT, YAML_KIND_LIST, YAML_KIND_MAP };

struct yaml_mark {
    uint32_t line, column; /* from 1 */
};

struct yaml_node {
    enum yaml_kind kind;
    struct yaml_mark at;
    bool is_plain;                        /* TEXT: without quotes */
    const char *text;                     /* TEXT: NUL-terminated; one of the file holds no NUL */
    struct yaml_node *first, *next, *key; /* LIST, MAP: children; key: of a MAP's child, a TEXT */
    uint32_t n;
};

/* *root NULL: an empty file. On failure *at is where. */
MUST_USE enum status yaml_tree_parse(struct str text, struct arena *arena, struct yaml_node **root,
                                     struct yaml_mark *at, struct error *err);
/* Nothing: "", ~ or null without quotes. */
bool yaml_node_is_null(const struct yaml_node *n);
/* The node as JSON, which is YAML as well: what stands without quotes and looks like a number,
 * true, false or null stays so. */
void yaml_node_append_json(const struct yaml_node *n, struct strbuf *out);
