/* Moves the date for the processes that are started with it (LD_PRELOAD), and nobody else's: what is asked of
   CLOCK_REALTIME is shifted by the number of seconds in the file CLOCK_STEP, which may change at any time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *step;
static int (*kernel_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    kernel_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_STEP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED)
        step = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!kernel_clock)
        begin();
    int failed = kernel_clock(clock, at);
    if (!failed && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *step;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (!failed) {
        at->tv_sec = now.tv_sec;
        at->tv_usec = now.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *kept) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    if (kept)
        *kept = now.tv_sec;
    return now.tv_sec;
}
