#pragma once
/* Takes lines of batches in a fair order (turns.c), and writes the files of their answers
 * (output.c). All functions must run within a transaction. */
#include "gateway/batches/store/state.h"

/* Moves a line from one state to another. A row that is not in state `from` is not changed.
 * sqlite3_changes is 0 then. */
enum status state_move_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                            enum line_state from, enum line_state to, struct error *err);
/* Takes at most `max` waiting lines. *n is the number of lines added to `out`, also after a
 * failure. */
enum status state_take_in_turn(struct state_store *s, uint32_t max, struct taken_line *out,
                               uint32_t *n, struct error *err);
/* Writes every line of batch `no`, in order, to the output file or the error file of `b`. `why`
 * is the new state of the batch. Returns STATUS_LIMIT when the files are too large. */
enum status state_write_outputs(struct state_store *s, struct stored_batch *b, int64_t no,
                                enum batch_state why, uint64_t now_s, struct error *err);
