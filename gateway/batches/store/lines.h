#pragma once
/* The order in which lines of batches are taken (turns.c), and the files of their answers
 * (output.c). All of it inside a transaction. */
#include "gateway/batches/store/state.h"

/* A row in another state stays: then sqlite3_changes is 0. */
enum status state_move_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                            enum line_state from, enum line_state to, struct error *err);
/* Up to max waiting lines, which are taken then: *n of them were added to out, also when it fails.
 */
enum status state_take_in_turn(struct state_store *s, uint32_t max, struct taken_line *out,
                               uint32_t *n, struct error *err);
/* Every line of batch `no` goes to b's output file or its error file, in order; why: what becomes
 * of the batch. STATUS_LIMIT: they are too large. */
enum status state_write_outputs(struct state_store *s, struct stored_batch *b, int64_t no,
                                enum batch_state why, uint64_t now_s, struct error *err);
