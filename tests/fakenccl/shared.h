#pragma once
/* Declares the memory that the ranks of one of fakenccl's communicators share. The memory starts
 * as zeros. */
#include <atomic>
#include <cstddef>
#include <cstdint>

constexpr int MAX_RANKS = 8;
constexpr size_t SLOT_BYTES = 256 << 10, MAIL_BYTES = 64 << 10;

/* `mailbox` carries data from one rank to another; it is full when sent is taken + 1 */
struct mailbox {
    std::atomic<uint64_t> sent, taken;
    size_t n_bytes, n_taken; /* sender and receiver may cut their data at different places */
    uint8_t data[MAIL_BYTES];
};

struct shared {
    struct header {
        int kind, root;
        size_t n_bytes;
        bool captured;
    };
    struct split {
        int color, key;
    };
    std::atomic<uint32_t> n_attached;
    std::atomic<int> pids[MAX_RANKS];
    std::atomic<uint64_t> posted[MAX_RANKS], done[MAX_RANKS]; /* numbers of the last turn */
    std::atomic<uint64_t> split_turns[MAX_RANKS];
    split splits[2][MAX_RANKS]; /* indexed by turn modulo 2, since no rank is two turns ahead */
    header headers[MAX_RANKS];
    mailbox mail[MAX_RANKS][MAX_RANKS];
    alignas(64) uint8_t slots[MAX_RANKS][SLOT_BYTES];
};
