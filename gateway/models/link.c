#include "gateway/models/link.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/keys/key_files.h"

enum {
    CREDIT_BYTES = 16 << 20,
    BUS_HWM = 10000,
    ADDRESS_MAX = 1024,      /* most bytes of the --head option, which can name several heads */
    GOODBYE_LINGER_MS = 200, /* milliseconds for the goodbye to reach the head */
};

/* ---- the socket ---- */

static enum status bus_send_frame(void *ctx, struct str frame)
{
    struct gateway_link *l = ctx;
    if (l->reconnect_wanted)
        return STATUS_AGAIN;
    return bus_send(l->bus, (struct bus_peer){0}, frame);
}

static void want_reconnect(void *ctx)
{
    struct gateway_link *l = ctx;
    l->reconnect_wanted = true;
    due_add(l->due);
}

static void on_frame(void *ctx, struct bus_peer from, enum peer_role role, const char *key,
                     struct str frame)
{
    struct gateway_link *l = ctx;
    if (!l->reconnect_wanted)
        engine_client_on_frame(&l->engine, frame, clock_mono_ns());
}

static void on_connection(void *ctx, bool up, const char *why)
{
    struct gateway_link *l = ctx;
    engine_client_on_connection(&l->engine, up, why ? why : "", clock_mono_ns());
}

/* ---- start and stop ---- */

enum status gateway_link_start(struct gateway_link *l, const struct link_options *lo,
                               struct error *err)
{
    const struct gateway_config *c = lo->config;
    char endpoint[ADDRESS_MAX + 16], head_key[41] = "";
    struct bus_options o = {.endpoint = endpoint,
                            .insecure = c->insecure,
                            .allow_remote_insecure = c->allow_remote_insecure,
                            .server_public_key = head_key,
                            .keys_dir = c->keys_dir,
                            .keys_role = ROLE_GATEWAY,
                            .max_frame_bytes = FRAME_MAX_BYTES,
                            .hwm = BUS_HWM};
    struct bus_handlers h = {.ctx = l, .on_frame = on_frame, .on_link = on_connection};
    if (!c->insecure && !c->keys_dir)
        return error_set(err, STATUS_INVALID,
                         "--keys-dir is missing: the link to the head is encrypted and needs keys. "
                         "`cox up` creates keys; --insecure turns encryption off.");
    if (!c->insecure) {
        TRY(keys_load(c->keys_dir, ROLE_GATEWAY, &o.keys, err));
        TRY(keys_load_public(c->keys_dir, ROLE_HEAD, head_key, err));
    }
    snprintf(endpoint, sizeof endpoint, "tcp://%.*s", ADDRESS_MAX, c->head);
    struct engine_options eo = {.node = lo->node,
                                .model = lo->model,
                                .vocabulary = lo->vocabulary,
                                .instance = random_secure_u64(),
                                .credit_bytes = CREDIT_BYTES};
    struct engine_io io = {.ctx = l, .send = bus_send_frame, .reconnect = want_reconnect};
    TRY(bus_connect(lo->loop, &o, &h, &l->bus, err));
    engine_client_init(&l->engine, &eo, &io, &lo->events, clock_mono_ns());
    l->has_engine = true;
    l->engine.o.several = bus_n_addresses(l->bus) > 1;
    return STATUS_OK;
}

void gateway_link_turn_end(struct gateway_link *l)
{
    struct error err = {0};
    if (!l->reconnect_wanted || !l->bus)
        return;
    l->reconnect_wanted = false;
    if (bus_reconnect(l->bus, &err) != STATUS_OK)
        log_error("reconnect_failed", "why=%s", log_quote(err.text));
}

void gateway_link_goodbye(struct gateway_link *l, const char *why)
{
    if (!l->has_engine)
        return;
    engine_client_goodbye(&l->engine, why);
    if (l->bus)
        bus_linger(l->bus, GOODBYE_LINGER_MS);
}

void gateway_link_close(struct gateway_link *l)
{
    bus_close(l->bus);
    if (l->has_engine)
        engine_client_fini(&l->engine);
}
