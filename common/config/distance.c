#include "common/config/distance.h"

size_t str_distance(struct str a, struct str b)
{
    size_t rows[3][STR_DISTANCE_MAX + 1], *two_up = rows[0], *up = rows[1], *row = rows[2];
    if (a.len > STR_DISTANCE_MAX || b.len > STR_DISTANCE_MAX)
        return SIZE_MAX;
    for (size_t i = 0; i <= a.len; i++) {
        size_t *oldest = two_up;
        for (size_t j = 0; j <= b.len; j++) {
            if (i == 0 || j == 0) {
                row[j] = i + j;
                continue;
            }
            size_t best = up[j - 1] + (a.ptr[i - 1] != b.ptr[j - 1]);
            best = up[j] + 1 < best ? up[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            bool swapped =
                i > 1 && j > 1 && a.ptr[i - 1] == b.ptr[j - 2] && a.ptr[i - 2] == b.ptr[j - 1];
            if (swapped && two_up[j - 2] + 1 < best)
                best = two_up[j - 2] + 1;
            row[j] = best;
        }
        two_up = up;
        up = row;
        row = oldest;
    }
    return up[b.len];
}
