#pragma once
/* Between tls.c and tls_server.c. */
#include <openssl/ssl.h>

#include "common/tls/tls.h"

SSL_CTX *tls_server_context(const struct tls_server *s); /* borrowed */
