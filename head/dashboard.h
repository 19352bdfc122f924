#pragma once
/* head/dashboard.html as bytes; CMake makes the .c from it. */
#include <stddef.h>

extern const char dashboard_html[];
extern const size_t dashboard_len;
