#pragma once
/* Limits the contents of one message in both directions. Decoding refuses a message that exceeds
 * a limit (the peer is at fault), and so does encoding (this process is at fault).
 * FRAME_MAX_BYTES bounds the whole frame. A sender whose sizes come from users (the gateway)
 * checks them against these limits first. */

#define FRAME_HEADER_BYTES 32u
#define FRAME_MAX_BYTES    (64u << 20)

#define PROTO_MAX_IDS      (1u << 24) /* token ids or block ids in one span */
#define PROTO_MAX_ITEMS    (1u << 16) /* sequences in one plan, result or tokens message */
#define PROTO_MAX_COPIES   (1u << 20)
#define PROTO_MAX_LOGPROBS (1u << 20) /* log-probabilities of one row: at most a vocabulary */
/* rows of log-probabilities of one item: at most a prompt */
#define PROTO_MAX_ROWS        (1u << 20)
#define PROTO_MAX_EOS_IDS     64u
#define PROTO_MAX_STOP_IDS    4096u
#define PROTO_MAX_BAD_WORDS   (1u << 16)
#define PROTO_MAX_ALLOWED_IDS (1u << 20)
#define PROTO_MAX_LOGIT_BIAS  (1u << 16)
#define PROTO_MAX_KV_GROUPS   8u
#define PROTO_MAX_DRAFT       16u        /* draft tokens of one sequence in one step */
#define PROTO_MAX_RANKS       1024u      /* ranks of a replica: tp * pp */
#define PROTO_MAX_VECTOR      (1u << 16) /* floats of a pooled prompt: the hidden size */

#define PROTO_MAX_ADAPTERS        64u
#define PROTO_MAX_ELASTIC         16u        /* smaller TPs of one worker */
#define PROTO_MAX_TRANSFER_BLOCKS (1u << 16) /* blocks of one KV transfer */

#define PROTO_MAX_NAME_BYTES    256u /* bytes of a host, zone, device or version name */
#define PROTO_MAX_ADDRESS_BYTES 512u
#define PROTO_MAX_MODEL_BYTES   1024u /* bytes of a model or adapter name */
#define PROTO_MAX_PATH_BYTES    4096u
#define PROTO_MAX_SALT_BYTES    1024u
/* Encoding cuts texts for humans to PROTO_MAX_TEXT_BYTES instead of refusing them. */
#define PROTO_MAX_TEXT_BYTES    4096u
#define PROTO_MAX_COMM_ID_BYTES 4096u
#define PROTO_MAX_GRAMMAR_BYTES (1u << 20)
/* These limits are for the grammars that a rank keeps for its head at once: their number, and
 * the bytes of their sources. */
#define PROTO_MAX_GRAMMARS       512u
#define PROTO_MAX_GRAMMARS_BYTES (64u << 20)
#define PROTO_MAX_BLOCK_TOKENS   (1u << 20)

/* Decoding a body of n bytes may use at most PROTO_DECODE_FACTOR * n bytes of the arena,
 * whatever counts the body claims. */
#define PROTO_DECODE_FACTOR     128u
#define PROTO_DECODE_BASE_BYTES (64u << 10)
