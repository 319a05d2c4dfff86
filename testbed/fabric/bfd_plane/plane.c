/* The data plane of BFD for one network namespace, behind bfdd's socket for distributed BFD (--dplaneaddr).
 *
 * For: packets, state machine, timers and poll sequences of single-hop sessions over IPv4. Not for:
 * configuration, which stays with bfdd, and not for IPv6, multihop, echo, demand mode or authentication.
 * Source: RFC 5880 sections 4.1, 6.8.3 to 6.8.7; RFC 5881 sections 4 and 5. Rules of this file:
 *
 * 1. A wake-up first sends what is due, then reads every packet that waits, and only then judges silence.
 * 2. Packets count from the kernel's time stamp, so reading late is not silence.
 * 3. When nothing ran here for longer than the floor, the silence of that time proves nothing: it is added to
 *    each deadline, by at most one detection time, so that a dead peer is not hidden for longer than that.
 * 4. Two threads on two CPUs do the same work under one lock, so that one CPU that stands still is no silence
 *    for the peer. Neither waits for the lock: whoever comes second has nothing to do.
 *
 * plane BFDD-SOCKET JOURNAL TELL-SOCKET PRIORITY FLOOR-US
 * JOURNAL gets a line of JSON for each freeze and each change of state. TELL-SOCKET ("-": none) is a listening
 * SOCK_SEQPACKET; it gets a struct told for each change. PRIORITY 0 means an ordinary process.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 3784, FIRST_SOURCE_PORT = 49152, TTL = 255, CLASS = 0xC0, MOST = 1024, BATCH = 64 };
enum { ADMIN_DOWN, DOWN, INIT, UP };
enum { NO_DIAG, EXPIRED, NEIGHBOUR_DOWN = 3, SHUT = 7 };
enum { ECHO_ASK, ECHO_ANSWER, ADD, DELETE, CHANGE, COUNTERS_ASK, COUNTERS }; /* types of bfdd's messages */
enum { HEADER = 8, ECHO_SIZE = 24, SESSION_SIZE = 140, CHANGE_SIZE = 36, ASK_SIZE = 12, COUNTERS_SIZE = 80 };
enum { MULTIHOP = 1, IPV6 = 16, PASSIVE = 32, SHUTDOWN = 64 }; /* flags of a session */
enum { POLL = 0x20, FINAL = 0x10, INDEPENDENT = 0x08, AUTHENTICATED = 0x04, DEMAND = 0x02, MULTIPOINT = 0x01 };

static const int64_t SECOND = 1000000000;
static const uint32_t SLOW_US = 1000000; /* RFC 5880 section 6.8.3: before Up, packets come a second apart */
static const int64_t AGAIN_NS = 200000000; /* between attempts to connect, and between repetitions of all states */
static const int64_t IDLE_TICK_NS = 20000000, LEAST_TICK_NS = 1000000, MOST_TICK_NS = 5000000;

struct packet { uint8_t version_diag, state_flags, multiplier, length; uint32_t mine, yours, tx, rx, echo; };
struct told { int64_t at_ns; uint32_t peer; uint8_t state, remote_state, diag, zero; };

struct session {
    uint32_t id, remote_id, local, peer; /* addresses in network order */
    uint32_t flags, tx_us, rx_us, old_tx_us, old_rx_us, remote_tx_us, remote_rx_us;
    uint8_t multiplier, remote_multiplier, state, remote_state, diag, remote_diag, remote_flags;
    int poll, unreported, spared, socket;
    int64_t next_ns, heard_ns, credit_ns;
    uint64_t in, out;
    char device[16];
};

static struct session sessions[MOST];
static int count, receiving = -1, bfdd = -1, teller = -1;
static int64_t bfdd_again_ns, repeat_ns, ran_ns, floor_ns;
static uint8_t input[1 << 16];
static size_t buffered;
static uint64_t seed;
static FILE *journal;
static const char *bfdd_path, *tell_path;
static volatile sig_atomic_t ending;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t clock_ns(clockid_t which) {
    struct timespec now;
    return clock_gettime(which, &now), now.tv_sec * SECOND + now.tv_nsec;
}

static const char *text(uint32_t address) { return inet_ntoa((struct in_addr){address}); }
static uint32_t larger(uint32_t one, uint32_t other) { return one > other ? one : other; }
static uint32_t desired_us(const struct session *s) { return s->state == UP ? s->tx_us : larger(s->tx_us, SLOW_US); }

static int64_t detection_ns(const struct session *s) {
    return (int64_t)s->remote_multiplier * larger(larger(s->rx_us, s->old_rx_us), s->remote_tx_us) * 1000;
}

static int64_t interval_ns(const struct session *s) {
    uint32_t own = desired_us(s);
    if (s->poll && s->old_tx_us && s->old_tx_us < own) own = s->old_tx_us; /* section 6.8.3, first rule */
    return (int64_t)larger(own, s->remote_rx_us) * 1000;
}

/* Section 6.8.7: 0 to 25 % sooner, with a multiplier of 1 at least 10 % sooner. */
static int64_t jittered(const struct session *s) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    int64_t least = s->multiplier == 1 ? 100 : 0;
    return interval_ns(s) * (1000 - least - (int64_t)(seed % (uint64_t)(251 - least))) / 1000;
}

static void transmit(struct session *s, uint8_t flag) {
    struct packet p = {
        .version_diag = (uint8_t)(1 << 5 | s->diag),
        .state_flags = (uint8_t)(s->state << 6 | INDEPENDENT | (flag ? flag : s->poll ? POLL : 0)),
        .multiplier = s->multiplier, .length = sizeof p, .mine = htonl(s->id), .yours = htonl(s->remote_id),
        .tx = htonl(desired_us(s)), .rx = htonl(s->rx_us),
    };
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = s->peer};
    if (sendto(s->socket, &p, sizeof p, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to) == sizeof p) s->out++;
}

static void lose_bfdd(const char *why) {
    fprintf(journal, "{\"what\":\"bfdd lost\",\"at_ns\":%lld,\"why\":\"%s\"}\n", (long long)clock_ns(CLOCK_MONOTONIC), why);
    close(bfdd);
    bfdd = -1;
}

static void report(struct session *s) {
    uint8_t m[CHANGE_SIZE] = {1, 0, 0, CHANGE, 0, 0, 0, CHANGE_SIZE};
    uint32_t flags = (s->remote_flags & INDEPENDENT ? 1 : 0) | (s->remote_flags & DEMAND ? 2 : 0);
    uint32_t words[6] = {htonl(s->id), htonl(s->remote_id), htonl(flags), htonl(s->remote_tx_us), htonl(s->remote_rx_us)};
    memcpy(m + HEADER, words, sizeof words);
    m[32] = s->state, m[33] = s->diag == EXPIRED ? EXPIRED : s->remote_diag, m[34] = s->remote_multiplier;
    if (bfdd < 0) return;
    ssize_t sent = send(bfdd, m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL);
    s->unreported = sent < 0 && errno == EAGAIN;
    if (sent != sizeof m && !s->unreported) lose_bfdd("bfdd does not take a report");
}

static void tell(const struct session *s) {
    struct told t = {clock_ns(CLOCK_MONOTONIC), s->peer, s->state, s->remote_state, s->diag, 0};
    if (teller >= 0 && send(teller, &t, sizeof t, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof t) close(teller), teller = -1;
}

static void become(struct session *s, uint8_t state, uint8_t diag, int64_t now) {
    uint8_t old = s->state;
    if (old == state) return;
    s->state = state, s->diag = diag;
    if (old == UP && diag == EXPIRED) s->remote_id = 0; /* section 6.8.1, bfd.RemoteDiscr */
    s->poll = state == UP; /* Section 6.8.3: the intervals change with Up. */
    s->next_ns = now;      /* The peer learns of it at once, not at the next slow packet. */
    tell(s);
    report(s);
    fprintf(journal,
            "{\"what\":\"state\",\"at_ns\":%lld,\"peer\":\"%s\",\"from\":%d,\"to\":%d,\"diag\":%d,\"silent_ns\":%lld,"
            "\"credit_ns\":%lld}\n",
            (long long)now, text(s->peer), old, state, diag, (long long)(s->heard_ns ? now - s->heard_ns : 0),
            (long long)s->credit_ns);
}

/* The table of section 6.8.6, for a packet whose fields are in the session already. */
static void step(struct session *s, int64_t now) {
    if (s->state == ADMIN_DOWN) return;
    if (s->remote_state == ADMIN_DOWN && s->state != DOWN) become(s, DOWN, NEIGHBOUR_DOWN, now);
    else if (s->state == DOWN && s->remote_state == DOWN) become(s, INIT, NO_DIAG, now);
    else if (s->state == DOWN && s->remote_state == INIT) become(s, UP, NO_DIAG, now);
    else if (s->state == INIT && s->remote_state > DOWN) become(s, UP, NO_DIAG, now);
    else if (s->state == UP && s->remote_state == DOWN) become(s, DOWN, NEIGHBOUR_DOWN, now);
}

/* Section 6.3: by our discriminator, or by the addresses if the peer does not know it yet (id 0). */
static struct session *find(uint32_t id, uint32_t local, uint32_t peer) {
    for (struct session *s = sessions; s < sessions + count; s++)
        if (id ? s->id == id : s->peer == peer && s->local == local) return s;
    return NULL;
}

static void receive(const struct packet *p, size_t size, uint32_t from, uint32_t to, int64_t at, int64_t now) {
    uint8_t state = p->state_flags >> 6;
    if (size < sizeof *p || p->version_diag >> 5 != 1 || p->length < sizeof *p || p->length > size || !p->multiplier ||
        !p->mine || p->state_flags & (MULTIPOINT | AUTHENTICATED) || (!p->yours && state > DOWN))
        return;
    struct session *s = find(ntohl(p->yours), to, from);
    if (s == NULL || s->peer != from || s->local != to) return;
    s->in++;
    s->remote_id = ntohl(p->mine), s->remote_state = state, s->remote_diag = p->version_diag & 31;
    s->remote_flags = p->state_flags & 63, s->remote_multiplier = p->multiplier;
    s->remote_tx_us = ntohl(p->tx), s->remote_rx_us = ntohl(p->rx);
    if (at > s->heard_ns) s->heard_ns = at;
    s->credit_ns = s->spared = 0;
    if (s->poll && p->state_flags & FINAL) s->poll = 0, s->old_tx_us = s->old_rx_us = 0;
    step(s, now);
    if (p->state_flags & POLL) transmit(s, FINAL);
    int64_t latest = now + interval_ns(s);
    if (s->next_ns > latest) s->next_ns = latest;
}

static void drain(int64_t now) {
    static struct packet packets[BATCH];
    static struct sockaddr_in from[BATCH];
    static uint8_t control[BATCH][256];
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    int64_t offset = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    for (int got = BATCH; got == BATCH;) {
        for (int i = 0; i < BATCH; i++) {
            parts[i] = (struct iovec){&packets[i], sizeof packets[i]};
            messages[i].msg_hdr = (struct msghdr){&from[i], sizeof from[i], &parts[i], 1, control[i], sizeof control[i], 0};
        }
        got = recvmmsg(receiving, messages, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < got; i++) {
            int ttl = 0;
            uint32_t to = 0;
            int64_t at = now;
            for (struct cmsghdr *c = CMSG_FIRSTHDR(&messages[i].msg_hdr); c; c = CMSG_NXTHDR(&messages[i].msg_hdr, c)) {
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
                    struct timespec stamp;
                    memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
                    at = stamp.tv_sec * SECOND + stamp.tv_nsec - offset;
                } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) {
                    memcpy(&ttl, CMSG_DATA(c), sizeof ttl);
                } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
                    to = ((struct in_pktinfo *)CMSG_DATA(c))->ipi_addr.s_addr;
                }
            }
            /* A clock that was set in between must not make a packet come from the future. */
            if (ttl == TTL) receive(&packets[i], messages[i].msg_len, from[i].sin_addr.s_addr, to, at < now ? at : now, now);
        }
    }
}

static void judge(int64_t now) {
    for (int i = 0; i < count; i++) {
        struct session *s = &sessions[i];
        int64_t late = now - s->heard_ns - detection_ns(s);
        if (s->state < INIT || late < 0) continue;
        if (late >= s->credit_ns) {
            become(s, DOWN, EXPIRED, now);
        } else if (!s->spared) {
            s->spared = 1;
            fprintf(journal, "{\"what\":\"spared\",\"at_ns\":%lld,\"peer\":\"%s\",\"credit_ns\":%lld}\n", (long long)now,
                    text(s->peer), (long long)s->credit_ns);
        }
    }
}

/* Add the part of a freeze since which a peer was not heard to its deadline. */
static void excuse(int64_t begin, int64_t end) {
    fprintf(journal, "{\"what\":\"freeze\",\"begin_ns\":%lld,\"end_ns\":%lld}\n", (long long)begin, (long long)end);
    for (int i = 0; i < count; i++) {
        struct session *s = &sessions[i];
        int64_t unheard = end - (begin > s->heard_ns ? begin : s->heard_ns), most = detection_ns(s);
        if (s->state >= INIT && unheard > 0) s->credit_ns += unheard < most ? unheard : most;
    }
}

static void forget(struct session *s) { close(s->socket), *s = sessions[--count]; }

static int sender(const struct session *s) {
    int made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), ttl = TTL, class = CLASS;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = s->local};
    setsockopt(made, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
    setsockopt(made, IPPROTO_IP, IP_TOS, &class, sizeof class);
    if (s->device[0]) setsockopt(made, SOL_SOCKET, SO_BINDTODEVICE, s->device, (socklen_t)strlen(s->device));
    for (int i = 0; i < 65536 - FIRST_SOURCE_PORT; i++) { /* RFC 5881 section 4: a port of its own */
        own.sin_port = htons((uint16_t)(FIRST_SOURCE_PORT + (s->id + (uint32_t)i) % (65536 - FIRST_SOURCE_PORT)));
        if (bind(made, (struct sockaddr *)&own, sizeof own) == 0 || errno != EADDRINUSE) break;
    }
    return made;
}

static uint32_t word(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

static void configure(const uint8_t *body, int64_t now) {
    uint32_t flags = word(body), id = word(body + 36), tx = word(body + 40), rx = word(body + 44);
    struct session *s = find(id, 0, 0);
    if (flags & (IPV6 | MULTIHOP) || !body[61] || !id || (s == NULL && count == MOST)) {
        fprintf(journal, "{\"what\":\"refused\",\"at_ns\":%lld,\"id\":%u,\"flags\":%u}\n", (long long)now, id, flags);
        return;
    }
    if (s == NULL) {
        s = &sessions[count++];
        *s = (struct session){.id = id, .state = flags & SHUTDOWN ? ADMIN_DOWN : DOWN, .next_ns = now};
        memcpy(&s->local, body + 4, 4), memcpy(&s->peer, body + 20, 4);
        memcpy(s->device, body + 68, sizeof s->device - 1);
        s->socket = sender(s);
        fprintf(journal, "{\"what\":\"session\",\"at_ns\":%lld,\"peer\":\"%s\",\"id\":%u,\"tx_us\":%u,\"multiplier\":%u}\n",
                (long long)now, text(s->peer), id, tx, body[61]);
    } else if (s->tx_us != tx || s->rx_us != rx) {
        s->old_tx_us = s->tx_us, s->old_rx_us = s->rx_us, s->poll = s->state == UP;
    }
    s->flags = flags, s->tx_us = tx, s->rx_us = rx, s->multiplier = body[61];
    if (flags & SHUTDOWN) become(s, ADMIN_DOWN, SHUT, now);
    else if (s->state == ADMIN_DOWN) become(s, DOWN, NO_DIAG, now);
}

static void answer(const uint8_t *message, uint16_t type, int64_t now) {
    uint8_t out[COUNTERS_SIZE] = {1};
    struct session *s;
    if (type == ADD) {
        configure(message + HEADER, now);
    } else if (type == DELETE && (s = find(word(message + HEADER + 36), 0, 0)) != NULL) {
        become(s, ADMIN_DOWN, SHUT, now);
        transmit(s, 0);
        forget(s);
    } else if (type == ECHO_ASK || (type == COUNTERS_ASK && (s = find(word(message + HEADER), 0, 0)) != NULL)) {
        size_t size = type == ECHO_ASK ? ECHO_SIZE : COUNTERS_SIZE;
        memcpy(out + 4, message + 4, size == ECHO_SIZE ? ECHO_SIZE - 4 : 8); /* the number of the question, and its body */
        out[3] = type == ECHO_ASK ? ECHO_ANSWER : COUNTERS, out[6] = 0, out[7] = (uint8_t)size;
        if (type == COUNTERS_ASK) {
            uint64_t counters[4] = {htobe64(s->in * sizeof(struct packet)), htobe64(s->in),
                                    htobe64(s->out * sizeof(struct packet)), htobe64(s->out)};
            memcpy(out + 16, counters, sizeof counters);
        }
        if (send(bfdd, out, size, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size) lose_bfdd("bfdd does not take an answer");
    }
}

/* Read bfdd's messages. A message that cannot be right ends the connection; an unknown one is skipped. */
static void obey(int64_t now) {
    static const uint16_t sizes[] = {[ECHO_ASK] = ECHO_SIZE, [ADD] = SESSION_SIZE, [DELETE] = SESSION_SIZE, [COUNTERS_ASK] = ASK_SIZE};
    while (bfdd >= 0) {
        ssize_t got = recv(bfdd, input + buffered, sizeof input - buffered, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) return lose_bfdd("bfdd closed the connection");
        buffered += (size_t)got;
        size_t done = 0;
        while (bfdd >= 0 && buffered - done >= HEADER) {
            const uint8_t *m = input + done;
            uint16_t type = (uint16_t)(m[2] << 8 | m[3]), size = (uint16_t)(m[6] << 8 | m[7]);
            uint16_t right = type < sizeof sizes / sizeof *sizes ? sizes[type] : 0;
            if (m[0] != 1 || size < HEADER || (right && size != right)) return lose_bfdd("a message of a wrong length or version");
            if (buffered - done < size) break;
            answer(m, type, now);
            done += size;
        }
        memmove(input, input + done, buffered -= done);
    }
}

static int connected(const char *path, int kind, int64_t now, int64_t *again) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (now < *again || strlen(path) >= sizeof to.sun_path) return -1;
    *again = now + AGAIN_NS;
    strcpy(to.sun_path, path);
    int made = socket(AF_UNIX, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(made, (struct sockaddr *)&to, sizeof to) == 0) return made;
    close(made);
    return -1;
}

static void connect_all(int64_t now) {
    if (bfdd < 0 && (bfdd = connected(bfdd_path, SOCK_STREAM, now, &bfdd_again_ns)) >= 0) {
        /* bfdd knows nothing of these sessions' states and will add its own again. */
        while (count) forget(&sessions[count - 1]);
        buffered = 0;
    }
    if (now < repeat_ns) return;
    if (teller < 0 && *tell_path != '-') teller = connected(tell_path, SOCK_SEQPACKET, now, &repeat_ns);
    for (int i = 0; i < count; i++) tell(&sessions[i]);
    repeat_ns = now + AGAIN_NS;
}

static int64_t tick_ns(void) {
    int64_t tick = count ? MOST_TICK_NS : IDLE_TICK_NS;
    for (int i = 0; i < count; i++)
        if ((int64_t)sessions[i].tx_us * 200 < tick) tick = (int64_t)sessions[i].tx_us * 200;
    return tick > LEAST_TICK_NS ? tick : LEAST_TICK_NS;
}

/* Do everything that is due. Returns when to come back, CLOCK_MONOTONIC. */
static int64_t work(void) {
    int64_t now = clock_ns(CLOCK_MONOTONIC), begin = ran_ns, tick = tick_ns();
    for (int i = 0; i < count; i++) {
        struct session *s = &sessions[i];
        if (s->unreported) report(s);
        if (s->next_ns > now) continue;
        s->next_ns = now + jittered(s);
        if (s->remote_id ? s->remote_rx_us : !(s->flags & PASSIVE)) transmit(s, 0);
    }
    now = clock_ns(CLOCK_MONOTONIC);
    drain(now);
    /* A tick may be late by the floor; beyond that this process did not run. */
    if (now - begin > tick + floor_ns) excuse(begin, now);
    judge(now);
    obey(now);
    connect_all(now);
    ran_ns = clock_ns(CLOCK_MONOTONIC);
    int64_t next = ran_ns + tick_ns();
    for (int i = 0; i < count; i++)
        if (sessions[i].next_ns < next) next = sessions[i].next_ns;
    return next;
}

static void on_end(int number) { ending = number; }

static void *run(void *argument) {
    int64_t number = (int64_t)(intptr_t)argument, next = 0;
    cpu_set_t all, one = {0};
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0, left = (int)((number + getpid()) % CPU_COUNT(&all)); cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && left-- == 0) CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    while (!ending) {
        if (pthread_mutex_trylock(&lock) == 0) {
            /* The second thread leaves the work to the first one, unless that is late. */
            if (number == 0 || clock_ns(CLOCK_MONOTONIC) - ran_ns > tick_ns() * 3 / 2) next = work();
            pthread_mutex_unlock(&lock);
        }
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        if (next <= now || number) next = now + LEAST_TICK_NS * (number ? 3 : 1);
        struct timespec until = {next / SECOND, next % SECOND};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    return NULL;
}

static int live(int priority) {
    int on = 1, room = 4 << 20;
    struct sched_param urgent = {.sched_priority = priority};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    pthread_t second;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    receiving = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(receiving, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt(receiving, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(receiving, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    setsockopt(receiving, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    if (bind(receiving, (struct sockaddr *)&any, sizeof any)) return perror("BFD's port 3784"), 2;
    int urgent_now = priority && !sched_setscheduler(0, SCHED_FIFO, &urgent), locked = !mlockall(MCL_CURRENT | MCL_FUTURE);
    prctl(PR_SET_TIMERSLACK, 1);
    fprintf(journal, "{\"what\":\"start\",\"at_ns\":%lld,\"pid\":%d,\"real_time\":%s,\"locked\":%s}\n",
            (long long)clock_ns(CLOCK_MONOTONIC), getpid(), urgent_now ? "true" : "false", locked ? "true" : "false");
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed || !seed) seed = 1;
    ran_ns = clock_ns(CLOCK_MONOTONIC);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) pthread_create(&second, NULL, run, (void *)1);
    run((void *)0);
    pthread_mutex_lock(&lock); /* for good */
    for (int i = 0; i < count; i++) sessions[i].state = ADMIN_DOWN, sessions[i].diag = SHUT, transmit(&sessions[i], 0);
    _exit(fflush(journal));
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "use: plane BFDD-SOCKET JOURNAL TELL-SOCKET PRIORITY FLOOR-US\n"), 2;
    bfdd_path = argv[1], tell_path = argv[3], floor_ns = atoll(argv[5]) * 1000;
    if ((journal = fopen(argv[2], "ae")) == NULL || setvbuf(journal, NULL, _IOLBF, 0)) return perror(argv[2]), 2;
    struct sigaction end = {.sa_handler = on_end};
    sigaction(SIGTERM, &end, NULL), sigaction(SIGINT, &end, NULL);
    /* The first process only waits, and starts the working one again if that dies. */
    while (!ending) {
        pid_t worker = fork();
        if (worker == 0) return live(atoi(argv[4]));
        int status = 0;
        while (waitpid(worker, &status, 0) < 0 && errno == EINTR)
            if (ending) kill(worker, SIGTERM);
        if (WIFEXITED(status)) return WEXITSTATUS(status);
        usleep(50000);
    }
    return 0;
}
