#pragma once
/* Reads the model's tokenizer once, on a thread of its own with low priority, and makes a sketch
 * of its tokens. The head compares the sketch with those of the gateways
 * (docs/develop/protocol.md, "Vocabularies"). Neither the worker's Hello nor its first step
 * waits for the sketch. */
#include "proto/messages.h"

struct vocabulary_reader;
/* Starts the thread; the strings are copied. Returns NULL when tokenizer_path is NULL, as on the
 * null device. */
struct vocabulary_reader *vocabulary_reader_start(const char *tokenizer_path,
                                                  const char *cache_dir);
/* Adds the finished sketch to the first heartbeat of a session and to every eighth heartbeat
 * after it, since a heartbeat may be dropped when the socket is full. Adds nothing when the
 * tokenizer cannot be read; the failure is logged once. The function runs on the loop thread.
 * This function and those below do nothing when `r` is NULL. */
void vocabulary_reader_say(struct vocabulary_reader *r, struct msg_heartbeat *h);
void vocabulary_reader_on_open(struct vocabulary_reader *r); /* call it at the start of a session */
/* Releases the reader without waiting for the thread. */
void vocabulary_reader_stop(struct vocabulary_reader *r);
