/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Client of a Larder store. larder.h describes the functions, docs/reference/store-socket.md the protocol.
 *
 * Every length from the server is checked before it is used. After a message that could not be sent or received as a
 * whole, the connection is broken for good: a later response could belong to an earlier request.
 */
#define _POSIX_C_SOURCE 200809L

#include "larder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    VERSION = 1,
    HELLO_BYTES = 8,
    LIMITS_BYTES = 16,
    KEY_BYTES_MAX = 4096,
    DATA_BYTES_MAX = 1 << 20,
    TEXT_BYTES_MAX = 1024,
    /* Bytes that are read ahead, and bytes of small writes that are sent together. */
    BUFFER_BYTES = 256 << 10,
    TIMEOUT_SECONDS = 60
};

enum operation { OPEN_TO_READ = 1, OPEN_TO_WRITE, READ, WRITE, CLOSE, ABANDON, REMOVE, SYNC };

struct larder {
    int socket;
    bool is_broken;
    larder_value *values;
    char problem[TEXT_BYTES_MAX + 1];
};

struct larder_value {
    larder *store;
    larder_value *next, **link;
    uint32_t handle;
    bool is_written;
    /* Whether bytes to be written were lost, so that the value must not be stored. */
    bool is_broken;
    /* The length of a value to read; the bytes that a value to write was given. */
    uint64_t length;
    uint64_t position;
    /* Bytes read ahead from `buffer_start`, or bytes to be sent. */
    unsigned char *buffer;
    size_t buffered;
    uint64_t buffer_start;
};

/* A request: the length, the operation and up to three fields, then bytes of the caller. */
struct request {
    unsigned char front[32];
    size_t front_length;
    const void *bytes;
    size_t byte_count;
};

static void put_number(struct request *request, uint64_t number, size_t byte_count) {
    for (size_t at = 0; at < byte_count; at++)
        request->front[request->front_length++] = (unsigned char)(number >> (8 * at));
}

static uint64_t number_at(const unsigned char *bytes, size_t byte_count) {
    uint64_t number = 0;
    for (size_t at = byte_count; at > 0; at--)
        number = number << 8 | bytes[at - 1];
    return number;
}

/* Begins a request. Its length is filled in when it is sent. */
static struct request new_request(enum operation operation) {
    struct request request = {.front_length = 4};
    put_number(&request, operation, 1);
    return request;
}

static int broken(larder *store, int error) {
    store->is_broken = true;
    errno = error;
    return -1;
}

static int send_all(larder *store, const void *bytes, size_t count) {
    const unsigned char *next = bytes;
    while (count > 0) {
        ssize_t sent = send(store->socket, next, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return broken(store, errno == EAGAIN || errno == EWOULDBLOCK ? ETIMEDOUT : errno);
        next += sent;
        count -= (size_t)sent;
    }
    return 0;
}

static int receive_all(larder *store, void *bytes, size_t count) {
    unsigned char *next = bytes;
    while (count > 0) {
        ssize_t received = recv(store->socket, next, count, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received < 0)
            return broken(store, errno == EAGAIN || errno == EWOULDBLOCK ? ETIMEDOUT : errno);
        if (received == 0)
            return broken(store, EPIPE);
        next += received;
        count -= (size_t)received;
    }
    return 0;
}

static int error_of(unsigned status) {
    static const int errors[] = {0,      ENOENT, EINVAL, EBADF, EMFILE,   EFBIG,
                                 EMSGSIZE, ESTALE, ENOSPC, EIO,   ESHUTDOWN};
    return status < sizeof errors / sizeof errors[0] ? errors[status] : EPROTO;
}

/* Reads the text of a refusal, and returns -1. */
static int refused(larder *store, unsigned status, size_t length) {
    if (length > TEXT_BYTES_MAX)
        return broken(store, EPROTO);
    if (receive_all(store, store->problem, length) != 0)
        return -1;
    store->problem[length] = '\0';
    errno = error_of(status);
    return -1;
}

/* Receives a response of at most `room` bytes. Returns their number. */
static ssize_t receive(larder *store, void *content, size_t room) {
    unsigned char front[5];
    if (receive_all(store, front, sizeof front) != 0)
        return -1;
    uint64_t length = number_at(front, 4);
    if (length == 0)
        return broken(store, EPROTO);
    length -= 1;
    if (front[4] != 0)
        return refused(store, front[4], length);
    if (length > room)
        return broken(store, EPROTO);
    if (receive_all(store, content, length) != 0)
        return -1;
    return (ssize_t)length;
}

/* Sends a request, and receives the response of at most `room` bytes. Returns their number. */
static ssize_t ask(larder *store, struct request request, void *content, size_t room) {
    if (store->is_broken) {
        errno = EPIPE;
        return -1;
    }
    store->problem[0] = '\0';
    uint64_t length = request.front_length - 4 + request.byte_count;
    for (size_t at = 0; at < 4; at++)
        request.front[at] = (unsigned char)(length >> (8 * at));
    if (send_all(store, request.front, request.front_length) != 0 ||
        send_all(store, request.bytes, request.byte_count) != 0)
        return -1;
    return receive(store, content, room);
}

/* As ask, for a response that has exactly `count` bytes. */
static int ask_for(larder *store, struct request request, void *content, size_t count) {
    ssize_t received = ask(store, request, content, count);
    if (received < 0)
        return -1;
    return (size_t)received == count ? 0 : broken(store, EPROTO);
}

static int set_key(struct request *request, const void *key, size_t key_length) {
    if (key == NULL || key_length == 0 || key_length > KEY_BYTES_MAX) {
        errno = EINVAL;
        return -1;
    }
    request->bytes = key;
    request->byte_count = key_length;
    return 0;
}

static int open_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || path[0] == '\0' || strlen(path) >= sizeof address.sun_path) {
        errno = path != NULL && path[0] != '\0' ? ENAMETOOLONG : EINVAL;
        return -1;
    }
    strcpy(address.sun_path, path);
    int opened = socket(AF_UNIX, SOCK_STREAM, 0);
    if (opened < 0)
        return -1;
    if (fcntl(opened, F_SETFD, FD_CLOEXEC) != 0 || connect(opened, (struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;
        close(opened);
        errno = error;
        return -1;
    }
    return opened;
}

/* Exchanges the first messages. */
static int greet(larder *store) {
    unsigned char hello[HELLO_BYTES] = {'L', 'A', 'R', 'D', 'E', 'R', VERSION, 0};
    unsigned char theirs[HELLO_BYTES], limits[LIMITS_BYTES];
    /* A server that refuses the connection may have closed it already. Its reason can still be received. */
    int sent = send_all(store, hello, sizeof hello), error = errno;
    if (receive_all(store, theirs, sizeof theirs) != 0) {
        errno = sent != 0 ? error : errno;
        return -1;
    }
    if (memcmp(theirs, hello, 6) != 0)
        return broken(store, EPROTO);
    store->is_broken = false;
    ssize_t received = receive(store, limits, sizeof limits);
    if (received < 0)
        return -1;
    return sent == 0 && received == LIMITS_BYTES && memcmp(theirs, hello, HELLO_BYTES) == 0 ? 0 : broken(store, EPROTO);
}

larder *larder_connect(const char *path) {
    larder *store = calloc(1, sizeof *store);
    if (store == NULL)
        return NULL;
    store->socket = open_socket(path);
    if (store->socket < 0) {
        int error = errno;
        free(store);
        errno = error;
        return NULL;
    }
    if (larder_set_timeout(store, TIMEOUT_SECONDS) != 0 || greet(store) != 0) {
        int error = errno;
        larder_disconnect(store);
        errno = error;
        return NULL;
    }
    return store;
}

static void free_value(larder_value *value) {
    *value->link = value->next;
    if (value->next != NULL)
        value->next->link = value->link;
    free(value->buffer);
    free(value);
}

void larder_disconnect(larder *store) {
    if (store == NULL)
        return;
    while (store->values != NULL)
        free_value(store->values);
    close(store->socket);
    free(store);
}

int larder_set_timeout(larder *store, unsigned seconds) {
    struct timeval time = {.tv_sec = (time_t)seconds};
    if (setsockopt(store->socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) != 0)
        return -1;
    return setsockopt(store->socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

const char *larder_problem(const larder *store) {
    return store->problem;
}

/* Returns a value without a handle. */
static larder_value *new_value(larder *store) {
    larder_value *value = calloc(1, sizeof *value);
    if (value == NULL)
        return NULL;
    value->store = store;
    value->next = store->values;
    value->link = &store->values;
    if (value->next != NULL)
        value->next->link = &value->next;
    store->values = value;
    return value;
}

static larder_value *unopened(larder_value *value) {
    int error = errno;
    free_value(value);
    errno = error;
    return NULL;
}

larder_value *larder_open(larder *store, const void *key, size_t key_length) {
    struct request request = new_request(OPEN_TO_READ);
    unsigned char fields[12];
    if (set_key(&request, key, key_length) != 0)
        return NULL;
    larder_value *value = new_value(store);
    if (value == NULL)
        return NULL;
    if (ask_for(store, request, fields, sizeof fields) != 0)
        return unopened(value);
    value->handle = (uint32_t)number_at(fields, 4);
    value->length = number_at(fields + 4, 8);
    /* Positions are signed. No store is that long. */
    if (value->length > INT64_MAX) {
        broken(store, EPROTO);
        return unopened(value);
    }
    return value;
}

larder_value *larder_create(larder *store, const void *key, size_t key_length, uint64_t length) {
    struct request request = new_request(OPEN_TO_WRITE);
    unsigned char fields[4];
    put_number(&request, length, 8);
    if (set_key(&request, key, key_length) != 0)
        return NULL;
    larder_value *value = new_value(store);
    if (value == NULL)
        return NULL;
    value->is_written = true;
    if (ask_for(store, request, fields, sizeof fields) != 0)
        return unopened(value);
    value->handle = (uint32_t)number_at(fields, 4);
    return value;
}

uint64_t larder_length(const larder_value *value) {
    return value->length;
}

/* Reads bytes of a value at its position, without the buffer. */
static ssize_t read_directly(larder_value *value, void *bytes, size_t count) {
    struct request request = new_request(READ);
    uint64_t rest = value->position < value->length ? value->length - value->position : 0;
    if (count > DATA_BYTES_MAX)
        count = DATA_BYTES_MAX;
    if (count > rest)
        count = (size_t)rest;
    if (count == 0)
        return 0;
    put_number(&request, value->handle, 4);
    put_number(&request, value->position, 8);
    put_number(&request, count, 4);
    ssize_t received = ask(value->store, request, bytes, count);
    /* The end is known, so a response without bytes would let a caller wait for ever. */
    return received != 0 ? received : broken(value->store, EPROTO);
}

ssize_t larder_read(larder_value *value, void *bytes, size_t count) {
    if (value->is_written) {
        errno = EBADF;
        return -1;
    }
    bool is_buffered = value->position >= value->buffer_start && value->position - value->buffer_start < value->buffered;
    if (!is_buffered && (count >= BUFFER_BYTES || count == 0)) {
        ssize_t received = read_directly(value, bytes, count);
        value->position += received > 0 ? (uint64_t)received : 0;
        return received;
    }
    if (!is_buffered) {
        if (value->buffer == NULL && (value->buffer = malloc(BUFFER_BYTES)) == NULL)
            return -1;
        value->buffered = 0;
        ssize_t received = read_directly(value, value->buffer, BUFFER_BYTES);
        if (received <= 0)
            return received;
        value->buffer_start = value->position;
        value->buffered = (size_t)received;
    }
    size_t from = (size_t)(value->position - value->buffer_start);
    size_t taken = value->buffered - from < count ? value->buffered - from : count;
    memcpy(bytes, value->buffer + from, taken);
    value->position += taken;
    return (ssize_t)taken;
}

static int write_directly(larder_value *value, const unsigned char *bytes, size_t count) {
    while (count > 0) {
        struct request request = new_request(WRITE);
        size_t now = count < DATA_BYTES_MAX ? count : DATA_BYTES_MAX;
        put_number(&request, value->handle, 4);
        request.bytes = bytes;
        request.byte_count = now;
        if (ask_for(value->store, request, NULL, 0) != 0) {
            value->is_broken = true;
            return -1;
        }
        bytes += now;
        count -= now;
    }
    return 0;
}

/* Sends the gathered bytes. They are gone even if that fails. */
static int flush(larder_value *value) {
    size_t count = value->buffered;
    value->buffered = 0;
    return count == 0 ? 0 : write_directly(value, value->buffer, count);
}

ssize_t larder_write(larder_value *value, const void *bytes, size_t count) {
    if (!value->is_written || value->is_broken) {
        errno = value->is_written ? EIO : EBADF;
        return -1;
    }
    if (count > SSIZE_MAX) {
        errno = EINVAL;
        return -1;
    }
    bool is_gathered = count < BUFFER_BYTES - value->buffered;
    if (is_gathered && value->buffer == NULL && (value->buffer = malloc(BUFFER_BYTES)) == NULL)
        return -1;
    if (is_gathered) {
        if (count > 0)
            memcpy(value->buffer + value->buffered, bytes, count);
        value->buffered += count;
    } else if (flush(value) != 0 || write_directly(value, bytes, count) != 0) {
        return -1;
    }
    value->length += count;
    return (ssize_t)count;
}

int64_t larder_seek(larder_value *value, int64_t offset, int whence) {
    if (value->is_written) {
        errno = ESPIPE;
        return -1;
    }
    int64_t start = whence == SEEK_CUR ? (int64_t)value->position : whence == SEEK_END ? (int64_t)value->length : 0;
    bool is_known = whence == SEEK_SET || whence == SEEK_CUR || whence == SEEK_END;
    if (!is_known || offset < -start || (offset > 0 && start > INT64_MAX - offset)) {
        errno = EINVAL;
        return -1;
    }
    value->position = (uint64_t)(start + offset);
    return start + offset;
}

/* Ends a value by an operation, and frees it. */
static int end(larder_value *value, enum operation operation) {
    struct request request = new_request(operation);
    put_number(&request, value->handle, 4);
    int ended = ask_for(value->store, request, NULL, 0), error = errno;
    free_value(value);
    errno = error;
    return ended;
}

int larder_close(larder_value *value) {
    bool was_broken = value->is_broken;
    if (value->is_written && (was_broken || flush(value) != 0)) {
        int error = was_broken ? EIO : errno;
        larder_abandon(value);
        errno = error;
        return -1;
    }
    return end(value, CLOSE);
}

int larder_abandon(larder_value *value) {
    return end(value, ABANDON);
}

int larder_remove(larder *store, const void *key, size_t key_length) {
    struct request request = new_request(REMOVE);
    if (set_key(&request, key, key_length) != 0)
        return -1;
    return ask_for(store, request, NULL, 0);
}

int larder_sync(larder *store) {
    return ask_for(store, new_request(SYNC), NULL, 0);
}
