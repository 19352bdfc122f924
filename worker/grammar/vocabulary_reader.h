#pragma once
/* Reads the model's tokenizer once, on a niced thread of its own, and keeps a sketch of its tokens:
 * the head compares it with what gateways say (docs/develop/protocol.md, "Vocabularies"). Nothing
 * waits for it: neither the worker's Hello nor its first step. */
#include "proto/messages.h"

struct vocabulary_reader;
/* Strings are copied. tokenizer_path NULL: there is none, as on the null device, and NULL is given
 * back. */
struct vocabulary_reader *vocabulary_reader_start(const char *tokenizer_path,
                                                  const char *cache_dir);
/* Adds the sketch to a heartbeat, once it is there: to the first of a session and to every eighth,
 * since a heartbeat may be dropped where the socket is full. Never where the tokenizer cannot be
 * read, which the log says once. The loop's thread. NULL is fine, here and below. */
void vocabulary_reader_say(struct vocabulary_reader *r, struct msg_heartbeat *h);
void vocabulary_reader_on_open(struct vocabulary_reader *r); /* a session begins */
/* Does not wait for the thread. */
void vocabulary_reader_stop(struct vocabulary_reader *r);
