#include "gateway/request/table.h"

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
    struct api_request **bucket = &r->s->buckets[r->id.lo % SERVING_BUCKETS];
    r->next_bucket = *bucket;
    r->link_bucket = bucket;
    if (*bucket)
        (*bucket)->link_bucket = &r->next_bucket;
    *bucket = r;
    r->s->n_open_choices += r->n_choices;
    r->counted = true;
}

void request_table_leave(struct api_request *r)
{
    if (!r->counted)
        return;
    *r->link_bucket = r->next_bucket;
    if (r->next_bucket)
        r->next_bucket->link_bucket = r->link_bucket;
    r->s->n_open_choices -= r->n_choices;
    r->counted = false;
}

struct api_request *request_table_find(const struct serving *s, struct request_id id)
{
    struct api_request *r = s->buckets[id.lo % SERVING_BUCKETS];
    while (r && (r->id.lo != id.lo || r->id.hi != id.hi))
        r = r->next_bucket;
    return r;
}
