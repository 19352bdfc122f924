#pragma once
/* `due_list` holds the objects that have work at the end of a loop turn, so that a turn costs
 * nothing for the others. An object embeds a `struct due`. The list's owner takes them one after
 * the other at the end of the turn, and then puts those back that have more to do. Only the loop
 * thread uses the list. */
#include <stdbool.h>
#include <stddef.h>

struct due {
    struct due_list *list; /* NULL = nobody does this work */
    struct due *next;
    void *owner; /* the object */
    bool is_in;
};

struct due_list {
    struct due *first;
};

/* Adds the object to its list. `d` may be NULL. */
static inline void due_add(struct due *d)
{
    if (!d || !d->list || d->is_in)
        return;
    d->is_in = true;
    d->next = d->list->first;
    d->list->first = d;
}

/* Takes an object from the list; NULL = the list is empty. */
static inline struct due *due_pop(struct due_list *l)
{
    struct due *d = l->first;
    if (d) {
        l->first = d->next;
        d->is_in = false;
    }
    return d;
}
