/*
 * Writes, reads and removes values in a random order, and checks every byte that it reads. Several of these run at once.
 *
 *   stress SOCKET SEED OPERATIONS
 *
 * A value says by its first 16 bytes which key it belongs to and which seed made it, so that a reader knows all its
 * bytes, whoever wrote it. Exit codes: 0 every byte was right, 1 something was not.
 */
#include "larder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_COUNT = 24, HEADER_BYTES = 16, LENGTH_MAX = 3 << 20 };

static uint64_t state;
static unsigned long found, written, gone;
static unsigned char bytes[LENGTH_MAX];

/* SplitMix64 */
static uint64_t mixed(uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

static uint64_t random_number(uint64_t below) {
    return mixed(state += 0x9e3779b97f4a7c15u) % below;
}

static unsigned char byte_at(uint64_t key, uint64_t seed, uint64_t at) {
    uint64_t number = at < 8 ? key : at < HEADER_BYTES ? seed : mixed(seed + mixed(key) + at / 8);
    return (unsigned char)(number >> (8 * (at % 8)));
}

/* Most values are short, some have several chunks. */
static uint64_t length_of(uint64_t seed) {
    uint64_t lengths[] = {0, 100, 20000, 300000, 1 << 20, LENGTH_MAX - HEADER_BYTES};
    return HEADER_BYTES + mixed(seed) % (lengths[seed % 6] + 1);
}

static int wrong(larder *store, const char *what, uint64_t key) {
    fprintf(stderr, "key %lu: %s: %s: %s\n", (unsigned long)key, what, strerror(errno), larder_problem(store));
    return 1;
}

static int write_value(larder *store, uint64_t key, const char *name) {
    uint64_t seed = random_number(UINT64_MAX), length = length_of(seed);
    uint64_t declared = seed & 1 ? length : LARDER_LENGTH_UNKNOWN;
    larder_value *value = larder_create(store, name, strlen(name), declared);
    if (value == NULL)
        return wrong(store, "cannot open it to write", key);
    for (uint64_t at = 0; at < length; at++)
        bytes[at] = byte_at(key, seed, at);
    int is_abandoned = seed % 8 == 0;
    uint64_t count = is_abandoned ? length / 2 : length;
    for (uint64_t at = 0; at < count;) {
        uint64_t now = 1 + random_number(400000);
        now = now < count - at ? now : count - at;
        if (larder_write(value, bytes + at, (size_t)now) != (ssize_t)now)
            return wrong(store, "cannot write", key);
        at += now;
    }
    if (is_abandoned)
        return larder_abandon(value) == 0 ? 0 : wrong(store, "cannot abandon it", key);
    written++;
    return larder_close(value) == 0 ? 0 : wrong(store, "cannot store it", key);
}

static int check(larder *store, larder_value *value, uint64_t key, uint64_t seed, uint64_t from) {
    if (larder_seek(value, (int64_t)from, SEEK_SET) != (int64_t)from)
        return wrong(store, "cannot seek", key);
    uint64_t end = from + 1 + random_number(500000);
    end = end < larder_length(value) ? end : larder_length(value);
    while (from < end) {
        ssize_t count = larder_read(value, bytes, (size_t)(end - from));
        if (count < 0 && errno == ESTALE) {
            gone++;
            return 0;
        }
        if (count <= 0)
            return wrong(store, "cannot read", key);
        for (ssize_t at = 0; at < count; at++)
            if (bytes[at] != byte_at(key, seed, from + (uint64_t)at))
                return wrong(store, "another byte than was written", key);
        from += (uint64_t)count;
    }
    return 0;
}

static int read_value(larder *store, uint64_t key, const char *name) {
    larder_value *value = larder_open(store, name, strlen(name));
    if (value == NULL)
        return errno == ENOENT ? 0 : wrong(store, "cannot open it to read", key);
    unsigned char header[HEADER_BYTES];
    size_t have = 0;
    while (have < HEADER_BYTES) {
        ssize_t count = larder_read(value, header + have, HEADER_BYTES - have);
        if (count < 0 && errno == ESTALE) {
            gone++;
            return larder_close(value) == 0 ? 0 : wrong(store, "cannot close it", key);
        }
        if (count <= 0)
            return wrong(store, "it has no header", key);
        have += (size_t)count;
    }
    uint64_t its_key = 0, seed = 0;
    for (int at = 7; at >= 0; at--) {
        its_key = its_key << 8 | header[at];
        seed = seed << 8 | header[8 + at];
    }
    if (its_key != key || length_of(seed) != larder_length(value))
        return wrong(store, "the value of another key, or of another length", key);
    found++;
    for (int round = 0; round < 3; round++)
        if (check(store, value, key, seed, round == 0 ? 0 : random_number(larder_length(value))) != 0)
            return 1;
    return larder_close(value) == 0 ? 0 : wrong(store, "cannot close it", key);
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    state = mixed(strtoull(arguments[2], NULL, 10));
    unsigned long operations = strtoul(arguments[3], NULL, 10);
    larder *store = larder_connect(arguments[1]);
    if (store == NULL) {
        perror("cannot connect");
        return 1;
    }
    for (unsigned long number = 0; number < operations; number++) {
        char name[32];
        uint64_t key = random_number(KEY_COUNT), choice = random_number(20);
        snprintf(name, sizeof name, "key %lu", (unsigned long)key);
        int failed;
        if (choice == 0)
            failed = larder_remove(store, name, strlen(name)) == 0 ? 0 : wrong(store, "cannot remove it", key);
        else
            failed = choice < 8 ? write_value(store, key, name) : read_value(store, key, name);
        if (failed)
            return 1;
    }
    larder_disconnect(store);
    printf("%lu found, %lu written, %lu gone\n", found, written, gone);
    return 0;
}
