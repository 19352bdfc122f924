#include "proto/messages.h"

#define BIT(role) (1u << (role))

/* A row describes one type: its name in logs, the roles that may send it, and the minor version
 * that introduced it. A peer of an older minor version is not sent the type. ROLE_NONE is a peer
 * whose Hello has not been accepted yet. */
static const struct {
    const char *name;
    unsigned from, since_minor;
} types[] = {
    [MSG_NONE] = {"none", 0, 0},
    [MSG_HELLO] = {"hello",
                   BIT(ROLE_NONE) | BIT(ROLE_GATEWAY) | BIT(ROLE_WORKER) | BIT(ROLE_OPERATOR), 0},
    [MSG_WELCOME] = {"welcome", BIT(ROLE_HEAD), 0},
    [MSG_REFUSED] = {"refused", BIT(ROLE_HEAD), 0},
    [MSG_HEARTBEAT] = {"heartbeat",
                       BIT(ROLE_GATEWAY) | BIT(ROLE_WORKER) | BIT(ROLE_OPERATOR) | BIT(ROLE_HEAD),
                       0},
    [MSG_CREDIT] = {"credit",
                    BIT(ROLE_GATEWAY) | BIT(ROLE_WORKER) | BIT(ROLE_OPERATOR) | BIT(ROLE_HEAD), 0},
    [MSG_GOODBYE] = {"goodbye",
                     BIT(ROLE_GATEWAY) | BIT(ROLE_WORKER) | BIT(ROLE_OPERATOR) | BIT(ROLE_HEAD), 0},
    [MSG_SUBMIT] = {"submit", BIT(ROLE_GATEWAY), 0},
    [MSG_CANCEL] = {"cancel", BIT(ROLE_GATEWAY), 0},
    [MSG_FINISH] = {"finish", BIT(ROLE_GATEWAY), 0},
    [MSG_TOKENS] = {"tokens", BIT(ROLE_HEAD), 0},
    [MSG_CLUSTER] = {"cluster", BIT(ROLE_HEAD), 0},
    [MSG_FORM] = {"form", BIT(ROLE_HEAD), 0},
    [MSG_JOIN] = {"join", BIT(ROLE_HEAD), 0},
    [MSG_ABORT] = {"abort", BIT(ROLE_HEAD), 0},
    [MSG_RESET] = {"reset", BIT(ROLE_HEAD), 0},
    [MSG_PLAN] = {"plan", BIT(ROLE_HEAD), 0},
    [MSG_DRAIN] = {"drain", BIT(ROLE_HEAD), 0},
    [MSG_COMM_ID] = {"comm_id", BIT(ROLE_WORKER), 0},
    [MSG_FORMED] = {"formed", BIT(ROLE_WORKER), 0},
    [MSG_ABORTED] = {"aborted", BIT(ROLE_WORKER), 0},
    [MSG_RESULT] = {"result", BIT(ROLE_WORKER), 0},
    [MSG_GAP] = {"gap", BIT(ROLE_WORKER), 0},
    [MSG_COMM_ERROR] = {"comm_error", BIT(ROLE_WORKER), 0},
    [MSG_DRAIN_WISH] = {"drain_wish", BIT(ROLE_WORKER), 0},
    [MSG_ADAPTER] = {"adapter", BIT(ROLE_HEAD), 0},
    [MSG_ADAPTER_DONE] = {"adapter_done", BIT(ROLE_WORKER), 0},
    [MSG_ADAPTERS] = {"adapters", BIT(ROLE_HEAD), 0},
    [MSG_ADAPTER_ORDER] = {"adapter_order", BIT(ROLE_GATEWAY), 0},
    [MSG_ADAPTER_ANSWER] = {"adapter_answer", BIT(ROLE_HEAD), 0},
    [MSG_KV_TRANSFER] = {"kv_transfer", BIT(ROLE_HEAD), 1},
    [MSG_KV_TRANSFERRED] = {"kv_transferred", BIT(ROLE_WORKER), 1},
    [MSG_GRAMMAR] = {"grammar", BIT(ROLE_HEAD), 4},
    [MSG_GRAMMAR_DONE] = {"grammar_done", BIT(ROLE_WORKER), 4},
    [MSG_SLEEP] = {"sleep", BIT(ROLE_HEAD), 5},
    [MSG_SLEPT] = {"slept", BIT(ROLE_WORKER), 5},
};
_Static_assert(sizeof types / sizeof *types == MSG_TYPE_COUNT, "a message type has no row");

static const char *const roles[] = {[ROLE_NONE] = "none",
                                    [ROLE_GATEWAY] = "gateway",
                                    [ROLE_WORKER] = "worker",
                                    [ROLE_OPERATOR] = "operator",
                                    [ROLE_HEAD] = "head"};
_Static_assert(sizeof roles / sizeof *roles == ROLE_COUNT, "a role has no name");

/* The names of finish reasons are OpenAI's words where it has one, else vLLM's. */
static const char *const reasons[] = {
    [FINISH_NONE] = "none",       [FINISH_STOP] = "stop",   [FINISH_LENGTH] = "length",
    [FINISH_CANCELLED] = "abort", [FINISH_ERROR] = "error", [FINISH_TIMEOUT] = "timeout"};
_Static_assert(sizeof reasons / sizeof *reasons == FINISH_REASON_COUNT, "a reason has no name");

const char *msg_type_name(enum msg_type t)
{
    return (unsigned)t < MSG_TYPE_COUNT ? types[t].name : "unknown";
}

const char *peer_role_name(enum peer_role r)
{
    return (unsigned)r < ROLE_COUNT ? roles[r] : "unknown";
}

const char *finish_reason_name(enum finish_reason f)
{
    return (unsigned)f < FINISH_REASON_COUNT ? reasons[f] : "unknown";
}

bool msg_allowed_from(enum msg_type t, enum peer_role from)
{
    return (unsigned)t < MSG_TYPE_COUNT && (unsigned)from < ROLE_COUNT &&
           (types[t].from & BIT(from)) != 0;
}

unsigned msg_since_minor(enum msg_type t)
{
    return (unsigned)t < MSG_TYPE_COUNT ? types[t].since_minor : UINT32_MAX;
}
