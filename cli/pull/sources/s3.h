#pragma once
/* Lists the files of a model in a bucket with ListObjectsV2. The server is S3, or a server with
 * its API (--aws-endpoint-url, with the bucket in the path). The files lie directly below the
 * prefix and have the names of a hub. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "common/model/info/ref.h"

/* Lists the files. `endpoint` NULL means Amazon's own servers. */
MUST_USE enum status pull_s3_list(const struct pull_source *source, const struct model_ref *r,
                                  const char *endpoint, const char *region, struct pull_list *l,
                                  struct error *err);
