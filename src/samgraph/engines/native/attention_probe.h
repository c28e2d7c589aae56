/* Which instructions can be used: what the processor says, tried in a child process. Some machines
   announce what they then refuse. Part of attention.c. */

#if defined(__x86_64__) && !defined(_WIN32)

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if !defined(SG_PROBE_SECONDS)
#define SG_PROBE_SECONDS 10 /* until a child that does not answer is killed */
#endif

/* Two equal keys: the average of the values 1 and 2. */
static int sg_tries(int set) {
    float q[4] = {1, 2, 3, 4}, k[8] = {1, 1, 1, 1, 1, 1, 1, 1}, v[2] = {1, 2}, out = 0;
    struct sg_attention job = {.q = q, .k = k, .v = v, .out = &out, .batch = 1, .heads = 1,
                               .queries = 1, .keys = 2, .width = 4, .value_width = 1, .scale = 1};
    float weight[4] = {1, 1, 1, 1}, bias[4] = {0}, angles[2] = {0};
    struct sg_memory memory = {.q = q, .k = k, .v = v, .weight = weight, .bias = bias, .out = &out,
                               .centres = {angles, angles}, .batch = 1, .queries = 1, .plain = 2,
                               .width = 4, .channels = 1, .value_width = 1, .scale = 1, .rounded = 1};
    memory.parts[1] = (struct sg_frames){0, 1, 1, {angles, angles, angles, angles}};
    int status = set >= SG_BF16 ? sg_memory_attention(&memory, set, 1) : sg_attention(&job, set, 1);
    return status == 0 && out > 1.49f && out < 1.51f;
}

#if defined(SG_HAS_AMX)
static double sg_seconds(const struct sg_memory *job, int set) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (sg_memory_attention(job, set, 1)) return 1e9;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
}

/* Tiles are new, and were tried in emulation only: attention of a frame's queries to seven frames must
   have the numbers of plain C, and the least of several times must be that of the tiles. */
static int sg_tiles_agree(void) {
    enum { T = 96, D = 16, C = 64, F = 7, HIGH = 8, WIDE = 16, POINTERS = 5, RUNS = 5 };
    enum { S = F * HIGH * WIDE + POINTERS, TABLE = WIDE / 2 * D / 4 };
    enum { TOTAL = T * D + 2 * S * C + D * C + D + 2 * T * C + 4 * TABLE };
    float *numbers = malloc(TOTAL * sizeof *numbers);
    uint32_t state = 1;
    if (!numbers) return 0;
    for (int i = 0; i < TOTAL; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
    float *k = numbers + T * D, *v = k + S * C, *weight = v + S * C, *bias = weight + D * C;
    float *expected = bias + D, *out = expected + T * C, *angles = out + T * C;
    struct sg_memory job = {.q = numbers, .k = k, .v = v, .weight = weight, .bias = bias, .out = expected,
                            .centres = {angles, angles + TABLE}, .batch = 1, .queries = T, .plain = POINTERS,
                            .width = D, .channels = C, .value_width = C, .scale = 0.25f, .rounded = 1};
    job.parts[1] = (struct sg_frames){F, HIGH, WIDE, {angles, angles + TABLE, angles + 2 * TABLE, angles + 3 * TABLE}};
    if (sg_memory_attention(&job, SG_PLAIN, 1)) return 0;
    job.out = out;
    double least[2] = {1e9, 1e9};
    for (int run = 0; run < 2 * RUNS; run++) {
        double seconds = sg_seconds(&job, run % 2 ? SG_BF16 : SG_AMX);
        if (seconds < least[run % 2]) least[run % 2] = seconds;
        for (int i = 0; i < T * C; i++) {
            float off = out[i] - expected[i];
            if (!(off > -0.02f && off < 0.02f)) return 0; /* of values up to 1 */
        }
    }
#if defined(SG_TILES)
    return 1; /* emulation is slow */
#else
    return least[0] <= least[1];
#endif
}
#endif

static int sg_survives(int set) {
    pid_t child = fork();
    if (child < 0) return set < SG_AMX;
    if (child == 0) {
        const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
        sigset_t all;
        for (int i = 0; i < 5; i++) signal(signals[i], SIG_DFL);
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        alarm(SG_PROBE_SECONDS);
#if defined(SG_HAS_AMX)
        if (set == SG_AMX) _exit(!(amx_permitted() && sg_tries(set) && sg_tiles_agree()));
#endif
        _exit(!sg_tries(set));
    }
    int status = 1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return set < SG_AMX;
    return status == 0;
}

#elif defined(__x86_64__) /* what the processor says is taken where there are no child processes */
static int sg_survives(int set) {
    (void)set;
    return 1;
}
#endif

/* The widest set that can be used. */
SG_EXPORT int sg_best(void) {
    int set = sg_widest();
#if defined(SG_HAS_AMX)
    if (set == SG_AMX && !(sg_survives(set) && amx_permitted())) set--; /* the child's leave is its own */
    if (set == SG_AMX) return set;
#endif
#if defined(__x86_64__)
    while (set > SG_PLAIN && !sg_survives(set)) set--;
#endif
    return set;
}
