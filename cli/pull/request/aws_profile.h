#pragma once
/* The files of the AWS command line: ~/.aws/credentials, whose sections are profiles, and
 * ~/.aws/config, where they are called "profile NAME" (the default one "default", too). Pure. */
#include "common/base/str.h"

enum aws_file { AWS_FILE_CREDENTIALS, AWS_FILE_CONFIG };

/* Is there such a profile? */
bool aws_profile_is_there(struct str text, enum aws_file file, const char *profile);
/* The value of a key, the last one counts; for mem_free. NULL: it has none. Settings that are
 * indented belong to another setting ("s3 =") and are passed over. */
char *aws_profile_get(struct str text, enum aws_file file, const char *profile, const char *key);
