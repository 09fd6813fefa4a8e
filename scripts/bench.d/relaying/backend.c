/* The server behind a relay under test: does what the first request of a connection asks for.
 * Prints its port and serves on 127.0.0.1 until it is killed. */
#include "common.h"

struct connection {
    char kind; /* 0: the request has not come whole */
    char asked[REQUEST_BYTES];
    int asked_bytes;
    uint64_t left;
    uint64_t period_ns, due_ns;
    int stream_at;
};

static struct connection *connections;
static int *streams, stream_count;
static int epoll;
static char chunk[CHUNK_BYTES];

static void end(int fd) {
    struct connection *c = &connections[fd];
    if (c->kind == STREAM || c->kind == STEP) {
        int last = streams[--stream_count];
        streams[c->stream_at] = last;
        connections[last].stream_at = c->stream_at;
    }
    c->kind = 0;
    close(fd);
}

static void send_bulk(int fd) {
    struct connection *c = &connections[fd];
    while (c->left) {
        ssize_t sent = send(fd, chunk, c->left < CHUNK_BYTES ? c->left : CHUNK_BYTES, 0);
        if (sent < 0) {
            if (errno != EAGAIN) end(fd);
            return;
        }
        c->left -= (uint64_t)sent;
    }
    end(fd);
}

static void take_bulk(int fd) {
    struct connection *c = &connections[fd];
    while (c->left) {
        ssize_t got = recv(fd, chunk, CHUNK_BYTES, 0);
        if (got <= 0) {
            if (!got || errno != EAGAIN) end(fd);
            return;
        }
        c->left -= (uint64_t)got;
    }
    if (send(fd, chunk, REQUEST_BYTES, 0) < 0) end(fd);
    c->kind = ANSWER;
}

static void begin(int fd) {
    struct connection *c = &connections[fd];
    struct request request;
    memcpy(&request, c->asked, sizeof request);
    c->kind = request.kind;
    c->left = request.amount;
    if (c->kind == DOWNLOAD) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.fd = fd};
        epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
        send_bulk(fd);
    } else if (c->kind == UPLOAD) {
        take_bulk(fd);
    } else if (c->kind == STREAM || c->kind == STEP) {
        c->period_ns = request.amount * 1000u;
        c->due_ns = now_ns() + c->period_ns;
        if (c->kind == STEP) c->due_ns -= c->due_ns % c->period_ns;
        else c->due_ns -= (uint64_t)rand() % c->period_ns;
        c->stream_at = stream_count;
        streams[stream_count++] = fd;
    } else if (send(fd, chunk, REQUEST_BYTES, 0) < 0) {
        end(fd);
    }
}

static void on_readable(int fd) {
    struct connection *c = &connections[fd];
    ssize_t got;
    if (!c->kind) {
        got = recv(fd, c->asked + c->asked_bytes, (size_t)(REQUEST_BYTES - c->asked_bytes), 0);
        if (got <= 0) {
            if (!got || errno != EAGAIN) end(fd);
            return;
        }
        c->asked_bytes += (int)got;
        if (c->asked_bytes == REQUEST_BYTES) begin(fd);
        return;
    }
    if (c->kind == UPLOAD) {
        take_bulk(fd);
        return;
    }
    got = recv(fd, chunk, CHUNK_BYTES, 0);
    if (!got || (got < 0 && errno != EAGAIN)) {
        end(fd);
    } else if (got > 0 && c->kind == ECHO && send(fd, chunk, (size_t)got, 0) < 0) {
        end(fd);
    }
}

/* Sends the tokens that are due; tells when the next one is. */
static uint64_t send_tokens(void) {
    uint64_t now = now_ns(), next = now + 1000000000u;
    struct token token = {0};
    for (int at = 0; at < stream_count; at++) {
        struct connection *c = &connections[streams[at]];
        if (c->due_ns <= now) {
            token.sent_ns = now_ns();
            send(streams[at], &token, sizeof token, MSG_DONTWAIT);
            while (c->due_ns <= now) c->due_ns += c->period_ns;
        }
        if (c->due_ns < next) next = c->due_ns;
    }
    return next;
}

static void take_clients(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        send_at_once(fd);
        memset(&connections[fd], 0, sizeof connections[fd]);
        watch(epoll, fd, EPOLLIN);
    }
}

int main(void) {
    allow_many_descriptors();
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    connections = calloc(limit.rlim_cur, sizeof *connections);
    streams = calloc(limit.rlim_cur, sizeof *streams);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) die("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    watch(epoll, listener, EPOLLIN);
    struct epoll_event events[256];
    for (;;) {
        struct timespec wait = {1, 0};
        if (stream_count) {
            uint64_t next = send_tokens(), now = now_ns();
            uint64_t left = next > now ? next - now : 0;
            wait = (struct timespec){(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        }
        int count = epoll_pwait2(epoll, events, 256, &wait, NULL);
        for (int at = 0; at < count; at++) {
            int fd = events[at].data.fd;
            if (fd == listener) take_clients(listener);
            else if (connections[fd].kind == DOWNLOAD) send_bulk(fd);
            else on_readable(fd);
        }
    }
}
