#pragma once
/* The gateway's certificate: from its options, and again when the files change. */
#include "common/base/status.h"

struct gateway;
/* Without --ssl-certfile there is none, and any other option of TLS is STATUS_INVALID. */
MUST_USE enum status gateway_tls_init(struct gateway *g, struct error *err);
void gateway_tls_watch(struct gateway *g); /* from when its loop runs */
