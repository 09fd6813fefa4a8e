/* The client before a relay under test.  Prints one JSON object.
 *
 * load PORT bulk down|up BYTES       one connection
 * load PORT echo COUNT               64 bytes there and back, one after another
 * load PORT stream STREAMS PERIOD S  a token of each connection every PERIOD us, for S seconds
 * load PORT step STREAMS PERIOD S    the same, the tokens of all connections at once
 * load PORT connect PARALLEL S       connect, ask, be answered, close
 * load PORT idle COUNT               open, print, wait for the end of standard input
 */
#include "common.h"

static int port;
static char chunk[CHUNK_BYTES];

static int dial(int flags) {
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0) die("socket");
    send_at_once(fd);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS)
        die("connect");
    return fd;
}

static void ask(int fd, char kind, uint64_t amount) {
    struct request request = {.kind = kind, .amount = amount};
    if (send(fd, &request, sizeof request, 0) != sizeof request) die("send");
}

static void take(int fd, size_t bytes) {
    while (bytes) {
        ssize_t got = recv(fd, chunk, bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES, 0);
        if (got <= 0) die("recv");
        bytes -= (size_t)got;
    }
}

static int compare(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static void print_latencies(uint32_t *ns, size_t count, const char *more) {
    qsort(ns, count, sizeof *ns, compare);
    printf("{\"count\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f%s}\n", count,
           count ? ns[count / 2] / 1e3 : 0, count ? ns[count * 99 / 100] / 1e3 : 0,
           count ? ns[count - 1] / 1e3 : 0, more);
}

static void bulk(int up, uint64_t bytes) {
    int fd = dial(0);
    uint64_t begin = now_ns();
    ask(fd, up ? UPLOAD : DOWNLOAD, bytes);
    if (up) {
        for (uint64_t left = bytes; left;) {
            ssize_t sent = send(fd, chunk, left < CHUNK_BYTES ? left : CHUNK_BYTES, 0);
            if (sent < 0) die("send");
            left -= (uint64_t)sent;
        }
        take(fd, REQUEST_BYTES);
    } else {
        for (uint64_t left = bytes; left;) {
            ssize_t got = recv(fd, chunk, CHUNK_BYTES, 0);
            if (got <= 0) die("recv");
            left -= (uint64_t)got;
        }
    }
    printf("{\"mb_per_s\": %.1f}\n", (double)bytes * 1e3 / (double)(now_ns() - begin));
}

static void echo(size_t count) {
    uint32_t *ns = calloc(count, sizeof *ns);
    int fd = dial(0);
    ask(fd, ECHO, 0);
    take(fd, REQUEST_BYTES);
    for (size_t at = 0; at < count; at++) {
        uint64_t begin = now_ns();
        if (send(fd, chunk, REQUEST_BYTES, 0) != REQUEST_BYTES) die("send");
        take(fd, REQUEST_BYTES);
        ns[at] = (uint32_t)(now_ns() - begin);
    }
    print_latencies(ns, count, "");
}

struct stream {
    struct token token;
    size_t have;
};

/* Counts tokens of one stream; the first `skip_until` is warm-up.  False at its end. */
static int take_tokens(int fd, struct stream *s, uint32_t *ns, size_t *count, uint64_t skip_until) {
    for (;;) {
        ssize_t got = recv(fd, (char *)&s->token + s->have, TOKEN_BYTES - s->have, 0);
        if (got <= 0) return got < 0 && errno == EAGAIN;
        s->have += (size_t)got;
        if (s->have == TOKEN_BYTES) {
            uint64_t now = now_ns();
            s->have = 0;
            if (s->token.sent_ns >= skip_until) ns[(*count)++] = (uint32_t)(now - s->token.sent_ns);
        }
    }
}

static void stream(char kind, int streams, uint64_t period_us, double seconds) {
    size_t most = (size_t)(streams * (seconds + 2) * 1e6 / (double)period_us) + 1000, count = 0;
    uint32_t *ns = calloc(most, sizeof *ns);
    struct stream *states = calloc((size_t)streams + 64, sizeof *states);
    int epoll = epoll_create1(EPOLL_CLOEXEC), lost = 0;
    for (int at = 0; at < streams; at++) {
        int fd = dial(0);
        ask(fd, kind, period_us);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        if (fd >= streams + 64) die("descriptor");
        watch(epoll, fd, EPOLLIN);
    }
    uint64_t begin = now_ns() + 500000000u, end = begin + (uint64_t)(seconds * 1e9);
    struct epoll_event events[256];
    while (now_ns() < end && count + 512 < most) {
        int ready = epoll_wait(epoll, events, 256, 100);
        for (int at = 0; at < ready; at++) {
            int fd = events[at].data.fd;
            if (!take_tokens(fd, &states[fd], ns, &count, begin)) {
                lost++;
                close(fd);
            }
        }
    }
    char more[64];
    snprintf(more, sizeof more, ", \"lost\": %d", lost);
    print_latencies(ns, count, more);
}

static void connect_often(int parallel, double seconds) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    uint64_t done = 0, failed = 0, begin = now_ns(), end = begin + (uint64_t)(seconds * 1e9);
    struct epoll_event events[256];
    for (int at = 0; at < parallel; at++) {
        int fd = dial(SOCK_NONBLOCK);
        watch(epoll, fd, EPOLLOUT | EPOLLIN | EPOLLET);
    }
    char *asked = calloc(1 << 20, 1);
    while (now_ns() < end) {
        int ready = epoll_wait(epoll, events, 256, 1000);
        for (int at = 0; at < ready; at++) {
            int fd = events[at].data.fd;
            if (!asked[fd] && events[at].events & EPOLLOUT) {
                struct request request = {.kind = ANSWER};
                asked[fd] = send(fd, &request, sizeof request, 0) == sizeof request;
                if (asked[fd]) continue;
            } else {
                ssize_t got = recv(fd, chunk, CHUNK_BYTES, 0);
                if (got < 0 && errno == EAGAIN) continue;
                if (got == REQUEST_BYTES) done++;
                else failed++;
            }
            asked[fd] = 0;
            close(fd);
            watch(epoll, dial(SOCK_NONBLOCK), EPOLLOUT | EPOLLIN | EPOLLET);
        }
    }
    printf("{\"per_s\": %.0f, \"failed\": %llu}\n", (double)done * 1e9 / (double)(now_ns() - begin),
           (unsigned long long)failed);
}

static void idle(int count) {
    for (int at = 0; at < count; at++) {
        int fd = dial(0);
        ask(fd, ECHO, 0);
        take(fd, REQUEST_BYTES);
    }
    printf("{\"open\": %d}\n", count);
    fflush(stdout);
    while (read(0, chunk, 1) > 0) {}
}

int main(int argc, char **argv) {
    allow_many_descriptors();
    if (argc < 4) return 2;
    port = atoi(argv[1]);
    const char *what = argv[2];
    if (!strcmp(what, "bulk") && argc == 5) bulk(argv[3][0] == 'u', strtoull(argv[4], NULL, 10));
    else if (!strcmp(what, "echo")) echo(strtoul(argv[3], NULL, 10));
    else if ((!strcmp(what, "stream") || !strcmp(what, "step")) && argc == 6)
        stream(what[2] == 'r' ? STREAM : STEP, atoi(argv[3]), strtoull(argv[4], NULL, 10), atof(argv[5]));
    else if (!strcmp(what, "connect") && argc == 5) connect_often(atoi(argv[3]), atof(argv[4]));
    else if (!strcmp(what, "idle")) idle(atoi(argv[3]));
    else return 2;
    return 0;
}
