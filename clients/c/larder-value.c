/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stores, prints and removes values of a Larder store: an example of the client.
 *
 *   larder-value SOCKET put KEY < file
 *   larder-value SOCKET get KEY > file
 *   larder-value SOCKET remove KEY
 *   larder-value SOCKET sync
 *
 * Build it with: cc -std=c99 -o larder-value larder-value.c larder.c
 * Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 the key has no value.
 */
#include "larder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static char buffer[256 << 10];

static int failed(const larder *store, const char *what) {
    int error = errno;
    const char *problem = store != NULL ? larder_problem(store) : "";
    fprintf(stderr, "larder-value: %s: %s%s%s\n", what, strerror(error), problem[0] != '\0' ? ": " : "", problem);
    return error == ENOENT && store != NULL ? 3 : 1;
}

static int put(larder *store, const char *key) {
    larder_value *value = larder_create(store, key, strlen(key), LARDER_LENGTH_UNKNOWN);
    if (value == NULL)
        return failed(store, "cannot open the value");
    for (size_t count; (count = fread(buffer, 1, sizeof buffer, stdin)) > 0;)
        if (larder_write(value, buffer, count) < 0) {
            int code = failed(store, "cannot write");
            larder_abandon(value);
            return code;
        }
    /* A file that was read only in part must not become a value. */
    if (ferror(stdin)) {
        int code = failed(NULL, "cannot read standard input");
        larder_abandon(value);
        return code;
    }
    return larder_close(value) == 0 ? 0 : failed(store, "cannot store the value");
}

static int get(larder *store, const char *key) {
    larder_value *value = larder_open(store, key, strlen(key));
    if (value == NULL)
        return failed(store, "cannot open the value");
    int code = 0;
    for (;;) {
        ssize_t count = larder_read(value, buffer, sizeof buffer);
        if (count < 0)
            code = failed(store, "cannot read");
        else if (count > 0 && fwrite(buffer, 1, (size_t)count, stdout) != (size_t)count)
            code = failed(NULL, "cannot write standard output");
        if (count <= 0 || code != 0)
            break;
    }
    larder_close(value);
    if (code == 0 && fflush(stdout) != 0)
        code = failed(NULL, "cannot write standard output");
    return code;
}

int main(int count, char **arguments) {
    const char *verb = count > 2 ? arguments[2] : "", *key = count > 3 ? arguments[3] : NULL;
    int is_sync = count == 3 && strcmp(verb, "sync") == 0;
    int has_key = count == 4 && (strcmp(verb, "put") == 0 || strcmp(verb, "get") == 0 || strcmp(verb, "remove") == 0);
    if (!is_sync && !has_key) {
        fputs("usage: larder-value SOCKET put|get|remove KEY, or larder-value SOCKET sync\n", stderr);
        return 2;
    }
    larder *store = larder_connect(arguments[1]);
    if (store == NULL)
        return failed(NULL, arguments[1]);
    int code;
    if (is_sync)
        code = larder_sync(store) == 0 ? 0 : failed(store, "cannot sync");
    else if (verb[0] == 'p')
        code = put(store, key);
    else if (verb[0] == 'g')
        code = get(store, key);
    else
        code = larder_remove(store, key, strlen(key)) == 0 ? 0 : failed(store, "cannot remove the value");
    larder_disconnect(store);
    return code;
}
