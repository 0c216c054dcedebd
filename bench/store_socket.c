/*
 * Several processes that write and then read values of a Larder store through the C client.
 *
 *   store_socket SOCKET PROCESSES VALUES BYTES SECONDS put|get
 *
 * put: each process writes its share of VALUES values of BYTES bytes once. get: each process reads values at random for
 * SECONDS, whole, and compares their first and last bytes. Prints one line:
 *
 *   processes, values a second, MB a second, values that were not found
 *
 * Exit codes: 0 done, 1 an error or wrong bytes, 2 wrong arguments.
 */
#define _POSIX_C_SOURCE 200809L

#include "larder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct job {
    const char *socket;
    unsigned long processes, values, bytes, seconds;
    int writes;
};

/* What a process has done. */
struct work {
    unsigned long done, missing;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int failed(const larder *store, const char *what) {
    fprintf(stderr, "store_socket: %s: %s: %s\n", what, strerror(errno), store != NULL ? larder_problem(store) : "");
    return -1;
}

static unsigned char mark(unsigned long number) {
    return (unsigned char)(number * 31 + 7);
}

static int put(larder *store, const char *key, unsigned char *bytes, const struct job *job, unsigned long number) {
    bytes[0] = bytes[job->bytes - 1] = mark(number);
    larder_value *value = larder_create(store, key, strlen(key), job->bytes);
    if (value == NULL)
        return failed(store, "cannot open a value");
    if (larder_write(value, bytes, job->bytes) < 0) {
        larder_abandon(value);
        return failed(store, "cannot write");
    }
    return larder_close(value) == 0 ? 0 : failed(store, "cannot store a value");
}

/* Returns 1 if the value is there, 0 if not, and -1 after an error. */
static int get(larder *store, const char *key, unsigned char *bytes, const struct job *job, unsigned long number) {
    larder_value *value = larder_open(store, key, strlen(key));
    if (value == NULL)
        return errno == ENOENT ? 0 : failed(store, "cannot open a value");
    size_t at = 0;
    while (at < job->bytes) {
        ssize_t count = larder_read(value, bytes + at, job->bytes - at);
        if (count <= 0) {
            int is_gone = count < 0 && errno == ESTALE;
            larder_close(value);
            return is_gone ? 0 : failed(store, "cannot read");
        }
        at += (size_t)count;
    }
    larder_close(value);
    if (bytes[0] != mark(number) || bytes[job->bytes - 1] != mark(number)) {
        fprintf(stderr, "store_socket: other bytes for %s: %u and %u instead of %u\n", key, bytes[0],
                bytes[job->bytes - 1], mark(number));
        return -1;
    }
    return 1;
}

static int run(const struct job *job, unsigned long process, struct work *work) {
    larder *store = larder_connect(job->socket);
    unsigned char *bytes = malloc(job->bytes);
    if (store == NULL || bytes == NULL)
        return failed(NULL, job->socket);
    memset(bytes, 'v', job->bytes);
    unsigned long long random = 88172645463325252ULL + process * 7919;
    double end = now() + (double)job->seconds;
    for (unsigned long step = process; job->writes ? step < job->values : now() < end; step += job->processes) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        unsigned long number = job->writes ? step : (unsigned long)(random % job->values);
        char key[32];
        snprintf(key, sizeof key, "value-%lu", number);
        int outcome = job->writes ? put(store, key, bytes, job, number) : get(store, key, bytes, job, number);
        if (outcome < 0)
            return -1;
        work->done += 1;
        work->missing += (unsigned long)(!job->writes && outcome == 0);
    }
    free(bytes);
    larder_disconnect(store);
    return 0;
}

/* Runs all processes. Returns 0 if all of them succeeded. */
static int run_all(const struct job *job, struct work *all) {
    int ends[2], code = 0;
    if (pipe(ends) != 0)
        return failed(NULL, "pipe");
    for (unsigned long process = 0; process < job->processes; process++) {
        pid_t child = fork();
        if (child < 0)
            return failed(NULL, "fork");
        if (child == 0) {
            struct work work = {0, 0};
            int outcome = run(job, process, &work);
            _exit(outcome == 0 && write(ends[1], &work, sizeof work) == (ssize_t)sizeof work ? 0 : 1);
        }
    }
    close(ends[1]);
    /* A write of these few bytes to a pipe is never divided. */
    for (struct work work; read(ends[0], &work, sizeof work) == (ssize_t)sizeof work;) {
        all->done += work.done;
        all->missing += work.missing;
    }
    for (int status; wait(&status) > 0;)
        code |= status;
    close(ends[0]);
    return code == 0 ? 0 : -1;
}

int main(int count, char **arguments) {
    struct job job = {0};
    if (count == 7) {
        job.socket = arguments[1];
        job.processes = strtoul(arguments[2], NULL, 10);
        job.values = strtoul(arguments[3], NULL, 10);
        job.bytes = strtoul(arguments[4], NULL, 10);
        job.seconds = strtoul(arguments[5], NULL, 10);
        job.writes = strcmp(arguments[6], "put") == 0;
    }
    if (job.processes == 0 || job.values == 0 || job.bytes == 0 || (!job.writes && strcmp(arguments[6], "get") != 0)) {
        fputs("usage: store_socket SOCKET PROCESSES VALUES BYTES SECONDS put|get\n", stderr);
        return 2;
    }
    struct work all = {0, 0};
    double begun = now();
    if (run_all(&job, &all) != 0)
        return 1;
    double took = now() - begun;
    printf("%lu %.0f %.1f %lu\n", job.processes, (double)all.done / took,
           (double)(all.done - all.missing) * (double)job.bytes / took / 1e6, all.missing);
    return 0;
}
