/* Runs the kernels of attention.c on small odd shapes, for sanitizers; compiled by
   test_sanitizers.py. Every buffer has exactly the size it needs. Results of all instruction sets
   must agree, and the widest is BEST where it is defined. With -DSHORT a buffer is a float too
   short; with -DRACE two threads write one result. */

#include "attention.c"

#include <math.h>
#include <stdio.h>

static int best; /* set */

static float *numbers(int64_t count) {
    static uint32_t state = 1;
    float *found = malloc((size_t)count * sizeof *found);
    for (int64_t i = 0; found && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        found[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
    return found;
}

static int differ(const float *a, const float *b, int64_t count, float most) {
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= most)) return 1;
    return 0;
}

static void *check_run(void *job) {
    sg_attention(job, 0, 1);
    return NULL;
}

static int check_plain(int64_t B, int64_t H, int64_t T, int64_t S, int64_t D, int64_t E, int masked) {
    int64_t short_by = 0;
#ifdef SHORT
    short_by = 1;
#endif
    int64_t count = B * T * H * E;
    float *q = numbers(B * T * H * D), *k = numbers(B * S * H * D);
    float *v = numbers(B * S * H * E - short_by), *mask = numbers(T * S);
    float *first = NULL;
    int wrong = 0;
    for (int set = 0; set <= best; set++) {
        float *out = malloc((size_t)count * sizeof *out);
        struct sg_attention job = {q, k, v, masked ? mask : NULL, out, B, H, T, S, D, E,
                                   {0, 0, S, 1}, 0.3f};
        wrong |= sg_attention(&job, set, 3);
#ifdef RACE
        pthread_t other;
        pthread_create(&other, NULL, check_run, &job);
        check_run(&job);
        pthread_join(other, NULL);
#else
        (void)check_run;
#endif
        if (first) {
            wrong |= differ(first, out, count, 1e-4f);
            free(out);
        } else {
            first = out;
        }
    }
    free(first), free(q), free(k), free(v), free(mask);
    return wrong;
}

static int check_rotated(int64_t N, int64_t T, int64_t frames, int64_t R, int64_t W, int64_t plain,
                         int64_t pooled, int64_t C, int64_t E, int rounded) {
    int64_t D = 16, count = N * T * E;
    int64_t S = pooled * (R / 2) * (W / 2) + frames * R * W + plain;
    float *q = numbers(N * T * D), *k = numbers(N * S * C), *v = numbers(N * S * E);
    float *weight = numbers(D * C), *bias = numbers(D), *mask = numbers(S), *first = NULL;
    float *tables[4], *halves[4], *centres[2];
    for (int i = 0; i < 4; i++) tables[i] = numbers(((i < 2 ? W : R) + 1) / 2 * D / 4);
    for (int i = 0; i < 4; i++) halves[i] = numbers(((i < 2 ? W : R) / 2 + 1) / 2 * D / 4);
    for (int i = 0; i < 2; i++) centres[i] = numbers(2 * D / 4);
    int wrong = 0;
    for (int set = 0; set <= best; set++) {
        if (set >= SG_BF16 && !rounded) continue; /* as the set before */
        float *out = malloc((size_t)count * sizeof *out);
        struct sg_memory job = {
            .q = q, .k = k, .v = v, .weight = weight, .bias = bias, .out = out,
            .mask = pooled ? mask : NULL,
            .parts = {{pooled, R / 2, W / 2, {halves[0], halves[1], halves[2], halves[3]}},
                      {frames, R, W, {tables[0], tables[1], tables[2], tables[3]}}},
            .batch = N, .queries = T, .plain = plain,
            .width = D, .channels = C, .value_width = E,
            .centres = {centres[0], centres[1]}, .scale = 0.25f, .rounded = rounded,
        };
        wrong |= sg_memory_attention(&job, set, 3);
        if (first) {
            wrong |= differ(first, out, count, set >= SG_BF16 ? 2e-2f : 1e-4f);
            free(out);
        } else {
            first = out;
        }
    }
    for (int i = 0; i < 4; i++) free(tables[i]), free(halves[i]);
    for (int i = 0; i < 2; i++) free(centres[i]);
    free(first), free(q), free(k), free(v), free(weight), free(bias), free(mask);
    return wrong;
}

int main(void) {
    best = sg_best();
    int wrong = check_plain(1, 1, 1, 1, 1, 1, 0);
    wrong |= check_plain(2, 3, 50, 67, 5, 7, 1) | check_plain(1, 2, 97, 130, 16, 8, 0);
    for (int rounded = 0; rounded < 2; rounded++) {
        wrong |= check_rotated(2, 53, 2, 4, 6, 5, 0, 8, 8, rounded);
        wrong |= check_rotated(1, 1, 1, 3, 5, 0, 0, 8, 8, rounded);
        wrong |= check_rotated(1, 17, 0, 4, 4, 3, 0, 8, 8, rounded);
        wrong |= check_rotated(2, 49, 1, 4, 6, 5, 3, 8, 8, rounded);
        wrong |= check_rotated(2, 5, 20, 2, 9, 130, 0, 33, 17, rounded); /* more than a tile of each */
        wrong |= check_rotated(1, 3, 8, 2, 4, 0, 0, 8, 8, rounded); /* a tile goes beyond the last key */
        wrong |= check_rotated(1, 49, 130, 2, 2, 1, 17, 64, 1, rounded);
    }
#ifdef BEST
    wrong |= best != BEST;
#endif
    printf(wrong ? "results differ\n" : "ok\n");
    return wrong;
}
