#include "common/http/client/roots.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* The places that Go's crypto/x509 knows (root_linux.go), in its order. */
static const char *const places[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL 6 and later */
    "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
    "/etc/pki/tls/cacert.pem",                           /* OpenELEC */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* RHEL 7 and later */
    "/etc/ssl/cert.pem",                                 /* Alpine */
};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char found[ROOTS_PATH_MAX];

const char *roots_find(const char *root, char path[ROOTS_PATH_MAX])
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int n = snprintf(path, ROOTS_PATH_MAX, "%s%s", root, places[i]);
        if (n > 0 && n < ROOTS_PATH_MAX && access(path, R_OK) == 0)
            return path;
    }
    return NULL;
}

static void look(void)
{
    const curl_version_info_data *v = curl_version_info(CURLVERSION_NOW);
    const bool knows = v->age >= CURLVERSION_SEVENTH && (v->cainfo || v->capath);
    if (knows || !roots_find("", found))
        found[0] = '\0';
}

const char *roots_for_curl(void)
{
    (void)pthread_once(&once, look);
    return found[0] ? found : NULL;
}
