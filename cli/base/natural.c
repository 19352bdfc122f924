#include "cli/base/natural.h"

#include <string.h>

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Compares two runs of digits as numbers of any length. *a and *b are moved behind their digits.
 * Leading zeros are skipped, so the number with more digits is the larger one. */
static int compare_numbers(const char **a, const char **b)
{
    while (**a == '0' && is_digit((*a)[1]))
        (*a)++;
    while (**b == '0' && is_digit((*b)[1]))
        (*b)++;
    size_t n = strspn(*a, "0123456789"), m = strspn(*b, "0123456789");
    int order = n != m ? (n < m ? -1 : 1) : memcmp(*a, *b, n);
    *a += n;
    *b += m;
    return order;
}

int natural_compare(const char *a, const char *b)
{
    const char *x = a, *y = b;
    while (*x && *y) {
        if (is_digit(*x) && is_digit(*y)) {
            int order = compare_numbers(&x, &y);
            if (order != 0)
                return order;
        } else if (*x != *y) {
            return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    if (*x != *y)
        return *x ? 1 : -1;
    return strcmp(a, b); /* "01" and "1" are equal as numbers; strcmp gives them a fixed order */
}
