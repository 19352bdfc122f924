#pragma once
/* Defines the borrowed arrays of messages. It is a part of messages.h. */
#include <stdint.h>

struct u32_span {
    const uint32_t *ptr;
    uint32_t n;
};
struct f32_span {
    const float *ptr;
    uint32_t n;
};
struct bytes {
    const uint8_t *ptr;
    uint32_t n;
};
