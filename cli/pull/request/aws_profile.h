#pragma once
/* Reads the files of the AWS command line: ~/.aws/credentials, whose sections are profile names,
 * and ~/.aws/config, whose sections are "profile NAME" ("default" is also accepted alone). The
 * functions are pure and may run on any thread. */
#include "common/base/str.h"

enum aws_file { AWS_FILE_CREDENTIALS, AWS_FILE_CONFIG };

/* Returns true when the file has the profile. */
bool aws_profile_is_there(struct str text, enum aws_file file, const char *profile);
/* Returns the value of a key. The last value counts. Returns NULL when the profile has no such
 * key. Indented lines are settings of another key ("s3 =") and are skipped. The caller frees the
 * value with `mem_free`. */
char *aws_profile_get(struct str text, enum aws_file file, const char *profile, const char *key);
