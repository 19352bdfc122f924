#pragma once
/* Sorts the tables in an answer of GET /api/status for display: nodes by name, replicas by id,
 * workers by node and ordinal, gateways by node. Digits in names count as numbers. */
#include <jansson.h>
#include <stdbool.h>

enum status_order {
    STATUS_BY_NAME,
    STATUS_BY_STATE,
    STATUS_BY_REPLICA,
    STATUS_BY_STEP,
    STATUS_BY_GPU,
    STATUS_BY_MEMORY,
    STATUS_ORDER_COUNT
};

/* Sorts the tables, with the slowest, busiest or fullest workers first. Workers with equal
 * values are sorted by name. */
void status_sort(json_t *status, enum status_order workers_by, bool reversed);
const char *status_order_name(enum status_order by);
