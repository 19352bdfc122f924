#include "gateway/request/table.h"

#include <stddef.h>

void request_table_add(struct api_request *r)
{
    struct serving *s = r->s;
    r->next = s->first;
    r->link = &s->first;
    if (s->first)
        s->first->link = &r->next;
    s->first = r;
    s->n_requests++;
    limits_open(r->key);
}

void request_table_remove(struct api_request *r)
{
    *r->link = r->next;
    if (r->next)
        r->next->link = r->link;
    r->s->n_requests--;
    limits_close(r->key);
    r->key = NULL; /* the key may be freed with its file, so late tokens are charged to no key */
}

void request_table_enter(struct api_request *r)
{
    r->by_id.key = r->id.lo;
    key_table_add(&r->s->by_id, &r->by_id);
    r->s->n_open_choices += r->n_choices;
    r->counted = true;
}

void request_table_leave(struct api_request *r)
{
    if (!r->counted)
        return;
    key_table_remove(&r->s->by_id, &r->by_id);
    r->s->n_open_choices -= r->n_choices;
    r->counted = false;
}

struct api_request *request_table_find(const struct serving *s, struct request_id id)
{
    struct key_node *node = key_table_find(&s->by_id, id.lo);
    if (!node)
        return NULL;
    struct api_request *r =
        (struct api_request *)((char *)node - offsetof(struct api_request, by_id));
    return r->id.hi == id.hi ? r : NULL;
}
