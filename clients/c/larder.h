/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Client of a Larder store: values of any length under keys of up to 4,096 bytes, shared by the programs of a machine.
 *
 * Start the server with `larder store serve DIRECTORY`. Compile larder.c into your program; it needs nothing but the
 * C library (C99, POSIX.1-2008). The protocol is described in docs/reference/store-socket.md.
 *
 * Functions that fail return NULL or -1 and set errno:
 *
 *   ENOENT     the key has no value
 *   ESTALE     a part of the value was evicted while it was open: get the value from its source again
 *   ENOSPC     the store has no room now
 *   EFBIG      the value is longer than the store permits
 *   EMSGSIZE   the value does not have the length that was declared
 *   EMFILE     too many values are open, or too many programs are connected
 *   EINVAL     an argument is wrong, or the server speaks another version of the protocol
 *   EBADF      the value cannot be read (it is being written), or cannot be written
 *   EIO        the store or its device failed
 *   ESHUTDOWN  the server is stopping
 *   EPROTO     the server sent something that is not of this protocol
 *   ETIMEDOUT  the server did not respond in time
 *   EPIPE      the connection has ended; also other errors of connect(2), send(2) and recv(2)
 *
 * After EPROTO, ETIMEDOUT and EPIPE the connection is of no further use: disconnect, and connect again.
 *
 * A connection and its values are for one thread at a time, and for one process: do not use them after fork(2) in both.
 */
#ifndef LARDER_H
#define LARDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The length for larder_create if it is not known yet. */
#define LARDER_LENGTH_UNKNOWN UINT64_MAX

/* A connection to a server. */
typedef struct larder larder;

/* An open value. */
typedef struct larder_value larder_value;

/* Connects to the server at the path of a socket. */
larder *larder_connect(const char *path);

/*
 * Ends the connection and frees all values that are still open. Values that were being written are not stored.
 */
void larder_disconnect(larder *store);

/* Sets the time to wait for a response; 0 is without a limit. At first it is 60 seconds. */
int larder_set_timeout(larder *store, unsigned seconds);

/* Returns the server's description of its last refusal, or an empty string. */
const char *larder_problem(const larder *store);

/*
 * Opens the value of a key to read it. The value stays as it was found, even if it is replaced or removed; if a part of
 * it is evicted, reading it fails with ESTALE.
 */
larder_value *larder_open(larder *store, const void *key, size_t key_length);

/*
 * Opens a new value of a key to write it. It becomes visible when larder_close succeeds, and replaces the older one. If
 * the length is declared, a value with another length is not stored.
 */
larder_value *larder_create(larder *store, const void *key, size_t key_length, uint64_t length);

/* Returns the length of a value to read, or the bytes written so far. */
uint64_t larder_length(const larder_value *value);

/*
 * Reads up to `count` bytes from the current position, and moves it. Returns the number of bytes, which may be less than
 * `count`, as of read(2). It is 0 only at the end, or if `count` is 0.
 */
ssize_t larder_read(larder_value *value, void *buffer, size_t count);

/*
 * Appends bytes. Returns `count`. Small writes are gathered, so an error may be reported by a later write or by
 * larder_close. After an error the value cannot be stored any more.
 */
ssize_t larder_write(larder_value *value, const void *bytes, size_t count);

/*
 * Sets the position of a value to read, as lseek(2) with SEEK_SET, SEEK_CUR or SEEK_END. Returns the new position. A
 * value to write has no position (ESPIPE): bytes are only appended.
 */
int64_t larder_seek(larder_value *value, int64_t offset, int whence);

/*
 * Closes a value and frees it, also if it fails. A value to write is stored only if this returns 0. It survives a kill
 * of the server once larder_sync has returned, and with most policies a second later.
 */
int larder_close(larder_value *value);

/* Closes a value and frees it. A value to write is not stored; the key keeps its older value. */
int larder_abandon(larder_value *value);

/* Removes the value of a key. It is no error if there is none. */
int larder_remove(larder *store, const void *key, size_t key_length);

/* Waits until everything stored so far survives a power loss. */
int larder_sync(larder *store);

#ifdef __cplusplus
}
#endif

#endif
