/* A machine whose clock is LATER seconds ahead, and so are the times of its files: LD_PRELOAD=later.so LATER=34560000.
   libfaketime leaves the times of files as they are where Python reads them (stat64), so what was written now looks old. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

static time_t later(void) {
  static time_t seconds = -1;
  if (seconds < 0) seconds = getenv("LATER") ? atol(getenv("LATER")) : 0;
  return seconds;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*next)(clockid_t, struct timespec *);
  if (!next) next = NEXT(clock_gettime);
  int result = next(clock, now);
  if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += later();
  return result;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

/* The times of files, which the kernel keeps by its own clock. */
#define MOVE(status) (status)->st_atim.tv_sec += later(), (status)->st_mtim.tv_sec += later(), (status)->st_ctim.tv_sec += later()
#define STAT(name, type, parameters, arguments) \
  int name parameters { \
    static int (*next) parameters; \
    if (!next) next = NEXT(name); \
    int result = next arguments; \
    if (!result) MOVE(status); \
    return result; \
  }
STAT(stat, stat, (const char *restrict path, struct stat *restrict status), (path, status))
STAT(lstat, stat, (const char *restrict path, struct stat *restrict status), (path, status))
STAT(fstat, stat, (int file, struct stat *status), (file, status))
STAT(fstatat, stat, (int at, const char *restrict path, struct stat *restrict status, int flags), (at, path, status, flags))
STAT(stat64, stat64, (const char *restrict path, struct stat64 *restrict status), (path, status))
STAT(lstat64, stat64, (const char *restrict path, struct stat64 *restrict status), (path, status))
STAT(fstat64, stat64, (int file, struct stat64 *status), (file, status))
STAT(fstatat64, stat64, (int at, const char *restrict path, struct stat64 *restrict status, int flags),
     (at, path, status, flags))

static const struct timespec *earlier(const struct timespec times[2], struct timespec moved[2]) {
  if (!times) return times;
  for (int i = 0; i < 2; i++) {
    moved[i] = times[i];
    if (times[i].tv_nsec != UTIME_NOW && times[i].tv_nsec != UTIME_OMIT) moved[i].tv_sec -= later();
  }
  return moved;
}

int utimensat(int at, const char *path, const struct timespec times[2], int flags) {
  struct timespec moved[2];
  return NEXT(utimensat)(at, path, earlier(times, moved), flags);
}

int futimens(int file, const struct timespec times[2]) {
  struct timespec moved[2];
  return NEXT(futimens)(file, earlier(times, moved));
}

/* A wait until a time that came from the clock above; one that came from another clock is far before it. */
static const struct timespec *until(const struct timespec *time, struct timespec *moved) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (!time || time->tv_sec < now.tv_sec - later() / 2) return time;
  *moved = *time;
  moved->tv_sec -= later();
  return moved;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict time) {
  struct timespec moved;
  return NEXT(sem_timedwait)(semaphore, until(time, &moved));
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict lock,
                           const struct timespec *restrict time) {
  static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  struct timespec moved;
  if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!next) next = NEXT(pthread_cond_timedwait);
  return next(condition, lock, until(time, &moved));
}
