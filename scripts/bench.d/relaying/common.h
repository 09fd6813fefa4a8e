/* What the back end and the load generator share. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A connection begins with one request of this size; the rest of it is padding. */
#define REQUEST_BYTES 64
#define TOKEN_BYTES 128
#define CHUNK_BYTES (256 * 1024)

enum kind {
    ECHO = 'E',     /* send back what comes */
    DOWNLOAD = 'D', /* send `amount` bytes, then close */
    UPLOAD = 'U',   /* take `amount` bytes, then send one request back */
    STREAM = 'S',   /* send a token every `amount` microseconds, with the time of its sending */
    STEP = 'B',     /* the same, all such connections at once, as a server that batches does */
    ANSWER = 'A',   /* send one request back, then wait for the client's close */
};

struct request {
    char kind;
    char padding[7];
    uint64_t amount;
    char rest[REQUEST_BYTES - 16];
};

struct token {
    uint64_t sent_ns;
    char rest[TOKEN_BYTES - 8];
};

static inline void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void send_at_once(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline void watch(int epoll, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static inline void allow_many_descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    signal(SIGPIPE, SIG_IGN);
}

#endif
