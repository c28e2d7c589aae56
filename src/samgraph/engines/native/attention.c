/* Flash attention for the CPU, in plain C: scores are never stored beyond a block of keys.

   Queries stand side by side in the lanes of a vector ("lane blocks" of GROUPS vectors), so that a
   key is a broadcast scalar: keys and values are read as they lie in memory, the maximum and the
   sum of the softmax are vertical operations, and nothing is packed but the block of queries.

   Two forms:

     sg_attention         any lengths and widths, several heads, an additive mask
     sg_memory_attention  keys that are a narrow memory, projected and rotated by axial RoPE:
                          the rotation is moved to the queries (see there); with rounded
                          operands in attention_bf16.h and attention_amx.h

   The file includes itself once per instruction set: AVX-512, AVX2, NEON and what the compiler
   takes for granted. The caller chooses, after `sg_best`. A query whose keys are all masked by
   -inf takes the mean of their values, where operands are not rounded.
   Exported functions return 0, or -1 where memory ran out. */

#ifndef SG_INSIDE

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define SG_EXPORT __declspec(dllexport)
#else
#define SG_EXPORT __attribute__((visibility("default")))
#endif

enum { GROUPS = 3, KEYS = 64, LINE = 64 };

/* One attention: strides are in floats; `heads` lie side by side in the last axis. */
struct sg_attention {
    const float *q, *k, *v, *mask; /* [B, T, heads*D], [B, S, heads*D], [B, S, heads*E] */
    float *out;                    /* [B, T, heads*E] */
    int64_t batch, heads, queries, keys, width, value_width;
    int64_t mask_strides[4];       /* of B, head, query, key; 0 where it is broadcast */
    float scale;
};

/* Whole frames of `rows` x `columns` tokens. */
struct sg_frames {
    int64_t frames, rows, columns;
    const float *tables[4];        /* cosines and sines [half, D/4] of columns, then of rows */
};

/* Attention over a memory: pooled frames, then frames, then `plain` unrotated tokens. */
struct sg_memory {
    const float *q;                /* [N, T, D], rotated by the queries' own positions */
    const float *k, *v;            /* [N, S, C], [N, S, E]: the memory with and without position */
    const float *mask;             /* [S], added to the scores; or NULL */
    const float *weight, *bias;    /* [D, C], [D]: the projection of keys */
    float *out;                    /* [N, T, E] */
    const float *centres[2];       /* cosine and sine [2, D/4] of the grid's centre */
    struct sg_frames parts[2];
    int64_t batch, queries, plain, width, channels, value_width;
    float scale;
    int32_t rounded;               /* whether operands of products may be rounded to 8 bits */
};

typedef int (*sg_work)(const void *job, int64_t task, void *scratch);

struct sg_crew {
    sg_work work;
    const void *job;
    int64_t tasks;
    size_t scratch;
    atomic_llong next;
    atomic_int failed;
};

static void *sg_take_tasks(void *given) {
    struct sg_crew *crew = given;
    char *memory = malloc(crew->scratch + LINE);
    if (!memory) {
        atomic_store(&crew->failed, 1);
        return NULL;
    }
    void *scratch = memory + (LINE - (uintptr_t)memory % LINE);
    for (;;) {
        int64_t task = atomic_fetch_add(&crew->next, 1);
        if (task >= crew->tasks) break;
        crew->work(crew->job, task, scratch);
    }
    free(memory);
    return NULL;
}

/* Run every task on up to `threads` threads, the caller's being one of them. */
static int sg_run(sg_work work, const void *job, int64_t tasks, size_t scratch, int threads) {
    enum { MOST = 256 };
    pthread_t others[MOST];
    struct sg_crew crew = {.work = work, .job = job, .tasks = tasks, .scratch = scratch};
    if (threads > MOST) threads = MOST;
    if (threads > tasks) threads = (int)tasks;
    int started = 0;
    while (started < threads - 1 && !pthread_create(&others[started], NULL, sg_take_tasks, &crew))
        started++;
    sg_take_tasks(&crew);
    for (int i = 0; i < started; i++) pthread_join(others[i], NULL);
    /* a thread without memory took no task: the others did them all, unless none had any */
    return atomic_load(&crew.next) >= tasks ? 0 : -1;
}

static int64_t sg_tokens(const struct sg_frames *part) {
    return part->frames * part->rows * part->columns;
}

static int64_t sg_keys(const struct sg_memory *job) {
    return sg_tokens(&job->parts[0]) + sg_tokens(&job->parts[1]) + job->plain;
}

/* The memory in the order it is read: [row][column][frame][channel] of each part, then the
   unrotated tokens. A task is a row of a part, or the unrotated tokens. */
struct sg_sorting {
    const struct sg_memory *from;
    float *k, *v, *mask;
};

static int64_t sg_sorting_tasks(const struct sg_memory *job) {
    return job->parts[0].rows + job->parts[1].rows + 1;
}

static int sg_sort(const void *given, int64_t task, void *scratch) {
    const struct sg_sorting *to = given;
    const struct sg_memory *from = to->from;
    int64_t n = task / sg_sorting_tasks(from), keys = sg_keys(from);
    const int64_t widths[3] = {from->channels, from->value_width, 1};
    const float *sources[3] = {from->k, from->v, n ? NULL : from->mask};
    float *targets[3] = {to->k, to->v, to->mask};
    (void)scratch;
    for (int i = 0; i < 3; i++) {
        if (!sources[i]) continue;
        int64_t width = widths[i], row = task % sg_sorting_tasks(from);
        size_t size = (size_t)width * sizeof(float);
        const float *source = sources[i] + n * keys * width;
        float *target = targets[i] + n * keys * width;
        for (int p = 0; p < 2; p++) {
            const struct sg_frames *part = &from->parts[p];
            int64_t cells = part->rows * part->columns;
            for (int64_t f = 0; row >= 0 && row < part->rows && f < part->frames; f++)
                for (int64_t x = 0; x < part->columns; x++) {
                    int64_t cell = row * part->columns + x;
                    memcpy(target + (cell * part->frames + f) * width, source + (f * cells + cell) * width,
                           size);
                }
            row -= part->rows;
            source += sg_tokens(part) * width;
            target += sg_tokens(part) * width;
        }
        if (row == 0) memcpy(target, source, (size_t)from->plain * size);
    }
    return 0;
}

static inline int64_t sg_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t sg_most(int64_t a, int64_t b) { return a > b ? a : b; }

#define SG_INSIDE
#define EACH(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)
#define SG_JOIN_(a, b) a##_##b
#define SG_JOIN(a, b) SG_JOIN_(a, b)

#if defined(__x86_64__)
#include <cpuid.h>

#define ISA avx512
#define LANES 16
#define ROWS 8
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#include "attention.c"
#undef ISA
#undef LANES
#undef ROWS
#undef TARGET
#include "attention_bf16.h"
/* Tiles need Linux, which must be asked for them; SG_NO_AMX is for assemblers that do not know them. */
#if defined(__linux__) && !defined(SG_NO_AMX) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#define SG_HAS_AMX
#include "attention_amx.h"
#endif

#define ISA avx2
#define LANES 8
#define ROWS 4
#define TARGET __attribute__((target("avx2,fma")))
#include "attention.c"
#undef ISA
#undef LANES
#undef ROWS
#undef TARGET

#elif defined(__aarch64__)
#define ISA neon
#define LANES 4
#define ROWS 8 /* there are 32 registers */
#define TARGET
#include "attention.c"
#undef ISA
#undef LANES
#undef ROWS
#undef TARGET
#endif

#define ISA plain
#define LANES 4
#define ROWS 4
#define TARGET
#include "attention.c"

/* The instruction sets: of a processor of ours, or of one of ARM's. */
enum { SG_PLAIN = 0, SG_NEON = 1, SG_AVX2 = 1, SG_AVX512 = 2, SG_BF16 = 3, SG_AMX = 4 };

/* What a set is called. */
SG_EXPORT const char *sg_name(int set) {
#if defined(__aarch64__)
    return set == SG_NEON ? "neon" : "plain";
#else
    static const char *const names[] = {"plain", "avx2", "avx512", "avx512_bf16", "amx_bf16"};
    return names[set];
#endif
}

#if defined(__x86_64__)
static uint64_t sg_saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}
#endif

/* What the processor has and the operating system saves. */
static int sg_widest(void) {
#if defined(__x86_64__)
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX2 = 1 << 5, AMX = 1 << 22 | 1 << 24 }; /* BF16, TILE */
    const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & FMA) == 0 || (c & OSXSAVE) == 0) return SG_PLAIN;
    uint64_t saved = sg_saved_registers();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & AVX2) == 0 || (saved & 6) != 6) return SG_PLAIN;
    if ((b & avx512) != avx512 || (saved & 0xe0) != 0xe0) return SG_AVX2;
    int has_vnni = (c & 1 << 11) != 0, has_amx = (d & AMX) == AMX && (saved & 0x60000) == 0x60000;
    if (!has_vnni || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & 1 << 5) == 0) return SG_AVX512;
#if defined(SG_TILES) /* in C, for tests */
    has_amx = 1;
#endif
#if defined(SG_HAS_AMX)
    if (has_amx) return SG_AMX; /* leaf 0x1d is not asked: on some virtual machines it is empty */
#endif
    (void)has_amx;
    return SG_BF16;
#elif defined(__aarch64__)
    return SG_NEON;
#else
    return SG_PLAIN;
#endif
}

SG_EXPORT int sg_attention(const struct sg_attention *job, int set, int threads) {
#if defined(__x86_64__)
    if (set >= SG_AVX512) return attention_avx512(job, threads);
    if (set == SG_AVX2) return attention_avx2(job, threads);
#elif defined(__aarch64__)
    if (set == SG_NEON) return attention_neon(job, threads);
#endif
    return attention_plain(job, threads);
}

SG_EXPORT int sg_memory_attention(const struct sg_memory *job, int set, int threads) {
#if defined(__x86_64__)
    int rounded = job->rounded && job->channels <= MOST_CHANNELS;
#if defined(SG_HAS_AMX)
    if (set == SG_AMX && rounded && amx_permitted()) return amx_memory(job, threads);
#endif
    if (set >= SG_BF16 && rounded) return low_memory(job, threads);
    if (set >= SG_AVX512) return memory_avx512(job, threads);
    if (set == SG_AVX2) return memory_avx2(job, threads);
#elif defined(__aarch64__)
    if (set == SG_NEON) return memory_neon(job, threads);
#endif
    return memory_plain(job, threads);
}

#include "attention_probe.h"

#else /* ---------------------------------------------------- once for each instruction set */

#define BLOCK (LANES * GROUPS) /* queries of a lane block */
#define VF SG_JOIN(vf, ISA)
#define VI SG_JOIN(vi, ISA)
#define FN(name) SG_JOIN(name, ISA)
#define INLINE TARGET static inline __attribute__((always_inline))

typedef float VF __attribute__((vector_size(LANES * 4)));
typedef int32_t VI __attribute__((vector_size(LANES * 4)));

INLINE VF FN(all)(float x) { return x - (VF){0}; }
INLINE VF FN(at)(const float *p) { return *(const VF *)p; }

/* The greater of two; NaN where `a` is. */
INLINE VF FN(most)(VF a, VF b) {
    VI greater = b > a;
    return (VF)(((VI)b & greater) | ((VI)a & ~greater));
}

/* 2 to the power of x <= 0, relative error 2e-7. */
INLINE VF FN(power)(VF x) {
    x = FN(most)(x, FN(all)(-126.0f));
    VF shifted = x + 12582912.0f; /* 1.5 * 2^23: the whole part ends in the lowest bits */
    VF f = x - (shifted - 12582912.0f);
    VF y = f * 1.535336188319500e-4f + 1.339887440266574e-3f;
    y = y * f + 9.618437357674640e-3f;
    y = y * f + 5.550332471162809e-2f;
    y = y * f + 2.402264791363012e-1f;
    y = y * f + 6.931472028550421e-1f;
    y = y * f + 1.0f;
    return (VF)((VI)y + ((VI)shifted << 23));
}

/* scores[r][lanes] = start + sum over c of rows[r][c] * queries[c][lanes], for `count` rows.
   Here and below `count` is a constant where it is inlined, so that sums are registers. */
INLINE void FN(dot)(const int count, float *scores, const float *rows, int64_t stride,
                    const float *queries, int64_t width, const float *start) {
    VF sum[ROWS][GROUPS];
    EACH(r, count) EACH(g, GROUPS) sum[r][g] = start ? FN(at)(start + g * LANES) : FN(all)(0);
    for (int64_t c = 0; c < width; c++) {
        VF x[GROUPS];
        EACH(g, GROUPS) x[g] = FN(at)(queries + c * BLOCK + g * LANES);
        EACH(r, count) EACH(g, GROUPS) sum[r][g] += x[g] * rows[r * stride + c];
    }
    EACH(r, count) EACH(g, GROUPS) *(VF *)(scores + r * BLOCK + g * LANES) = sum[r][g];
}

TARGET static void FN(scores)(float *scores, const float *keys, int64_t stride, int64_t count,
                              const float *queries, int64_t width, const float *start) {
    int64_t r = 0;
    for (; r + ROWS <= count; r += ROWS)
        FN(dot)(ROWS, scores + r * BLOCK, keys + r * stride, stride, queries, width, start);
    for (; r < count; r++)
        FN(dot)(1, scores + r * BLOCK, keys + r * stride, stride, queries, width, start);
}

/* What is known of a lane block: running maximum and sum, and the sum of weighted values. */
struct FN(state) {
    VF most[GROUPS], sum[GROUPS];
    float *values; /* [value_width][BLOCK] */
};

/* Some channels of the values: out[r] = out[r] * factor + sum over keys of v[key][r] * p[key].
   The keys of a block are added up before, so that rounding does not grow with their number. */
INLINE void FN(gather)(const int channels, float *out, const VF *factor, const float *v,
                       int64_t stride, const float *p, int64_t count) {
    VF sum[ROWS][GROUPS];
    EACH(r, channels) EACH(g, GROUPS) sum[r][g] = FN(all)(0);
    for (int64_t i = 0; i < count; i++) {
        VF x[GROUPS];
        EACH(g, GROUPS) x[g] = FN(at)(p + i * BLOCK + g * LANES);
        EACH(r, channels) EACH(g, GROUPS) sum[r][g] += x[g] * v[i * stride + r];
    }
    EACH(r, channels) EACH(g, GROUPS) {
        VF *target = (VF *)(out + r * BLOCK + g * LANES);
        *target = *target * factor[g] + sum[r][g];
    }
}

/* Take `count` keys into the average: their scores become weights, their values are added. */
TARGET static void FN(absorb)(struct FN(state) *state, float *scores, int64_t count, const float *v,
                              int64_t stride, int64_t value_width) {
    VF factor[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        VF most = state->most[g], sum = FN(all)(0);
        for (int64_t i = 0; i < count; i++) most = FN(most)(most, FN(at)(scores + i * BLOCK + g * LANES));
        factor[g] = FN(power)(state->most[g] - most);
        for (int64_t i = 0; i < count; i++) {
            VF *p = (VF *)(scores + i * BLOCK + g * LANES);
            *p = FN(power)(*p - most);
            sum += *p;
        }
        state->most[g] = most;
        state->sum[g] = state->sum[g] * factor[g] + sum;
    }
    int64_t c = 0;
    for (; c + ROWS <= value_width; c += ROWS)
        FN(gather)(ROWS, state->values + c * BLOCK, factor, v + c, stride, scores, count);
    for (; c < value_width; c++)
        FN(gather)(1, state->values + c * BLOCK, factor, v + c, stride, scores, count);
}

TARGET static void FN(begin)(struct FN(state) *state, float *values, int64_t value_width) {
    for (int g = 0; g < GROUPS; g++) {
        state->most[g] = FN(all)(-1e30f);
        state->sum[g] = FN(all)(0);
    }
    state->values = values;
    memset(values, 0, (size_t)value_width * BLOCK * sizeof(float));
}

/* Queries [count][width] with a stride -> [width][BLOCK], scaled; lanes without a query are 0. */
TARGET static void FN(pack)(float *packed, const float *q, int64_t stride, int64_t count,
                            int64_t width, float scale) {
    for (int64_t c = 0; c < width; c++) {
        for (int64_t i = 0; i < count; i++) packed[c * BLOCK + i] = q[i * stride + c] * scale;
        for (int64_t i = count; i < BLOCK; i++) packed[c * BLOCK + i] = 0;
    }
}

TARGET static void FN(store)(float *out, int64_t stride, int64_t count, struct FN(state) *state,
                             int64_t value_width) {
    float sums[BLOCK];
    for (int g = 0; g < GROUPS; g++) memcpy(sums + g * LANES, &state->sum[g], sizeof(VF));
    for (int64_t i = 0; i < count; i++) {
        float share = 1.0f / sums[i];
        for (int64_t c = 0; c < value_width; c++) out[i * stride + c] = state->values[c * BLOCK + i] * share;
    }
}

/* ------------------------------------------------------------------ attention of any shape */

static const float FN(log2e) = 1.4426950408889634f;

static int64_t FN(blocks)(int64_t queries) { return (queries + BLOCK - 1) / BLOCK; }

TARGET static void FN(add_mask)(float *scores, const struct sg_attention *job, int64_t b, int64_t h,
                                int64_t first, int64_t lanes, int64_t key, int64_t count) {
    const int64_t *s = job->mask_strides;
    const float *mask = job->mask + b * s[0] + h * s[1] + first * s[2] + key * s[3];
    for (int64_t i = 0; i < count; i++)
        for (int64_t lane = 0; lane < lanes; lane++)
            scores[i * BLOCK + lane] += mask[lane * s[2] + i * s[3]] * FN(log2e);
}

TARGET static int FN(attend)(const void *given, int64_t task, void *scratch) {
    const struct sg_attention *job = given;
    int64_t D = job->width, E = job->value_width, blocks = FN(blocks)(job->queries);
    int64_t block = task % blocks, h = task / blocks % job->heads, b = task / blocks / job->heads;
    int64_t first = block * BLOCK, lanes = sg_least(BLOCK, job->queries - first);
    float *queries = scratch, *scores = queries + D * BLOCK, *values = scores + KEYS * BLOCK;
    struct FN(state) state;
    FN(begin)(&state, values, E);
    const float *q = job->q + ((b * job->queries + first) * job->heads + h) * D;
    const float *k = job->k + (b * job->keys * job->heads + h) * D;
    const float *v = job->v + (b * job->keys * job->heads + h) * E;
    FN(pack)(queries, q, job->heads * D, lanes, D, job->scale * FN(log2e));
    for (int64_t key = 0; key < job->keys; key += KEYS) {
        int64_t count = sg_least(KEYS, job->keys - key);
        FN(scores)(scores, k + key * job->heads * D, job->heads * D, count, queries, D, NULL);
        if (job->mask) FN(add_mask)(scores, job, b, h, first, lanes, key, count);
        FN(absorb)(&state, scores, count, v + key * job->heads * E, job->heads * E, E);
    }
    float *out = job->out + ((b * job->queries + first) * job->heads + h) * E;
    FN(store)(out, job->heads * E, lanes, &state, E);
    return 0;
}

static int FN(attention)(const struct sg_attention *job, int threads) {
    int64_t tasks = job->batch * job->heads * FN(blocks)(job->queries);
    size_t scratch = (size_t)(job->width + KEYS + job->value_width) * BLOCK * sizeof(float);
    return sg_run(FN(attend), job, tasks, scratch, threads);
}

/* ------------------------------------------------------------- attention over rotated memory

   A key is R(x, y) (W m + b): R rotates channel pairs of the first half of the channels by the
   column x and of the second half by the row y. So the score of a query with it is

       (u_x + v_y) . m + (s_x + t_y)

   with u, v of as many channels as m has, made once per query and column or row: 64 products per
   pair instead of 256, and the sum u_x + v_y is shared by the frames of the memory.

   With A_j = a_j W[2j] + b_j W[2j+1] and B_j = b_j W[2j] - a_j W[2j+1] of channel pair j of a
   query (a_j, b_j), rotated to the middle of the grid, and d the distance from the middle,

       u_d = sum_j cos(d s_j) A_j + sin(d s_j) B_j = C_d + S_d,       u_-d = C_d - S_d

   which halves the work again. The bias is one more channel of W whose m is 1. */

/* Vectors u [side][channels + 1][BLOCK] of one half of the channels; `axis` 0 columns, 1 rows. */
TARGET static void FN(spread)(float *out, const struct sg_memory *job, const struct sg_frames *part,
                              const float *queries, int axis, float *scratch) {
    int64_t pairs = job->width / 4, C = job->channels, side = axis ? part->rows : part->columns;
    int64_t half = (side + 1) / 2, first = axis * pairs * 2;
    float *centred = scratch, *A = centred + 2 * pairs * BLOCK, *B = A + pairs * BLOCK;
    float *even = B + pairs * BLOCK, *odd = even + half * BLOCK;
    for (int64_t j = 0; j < pairs; j++) {
        float cos = job->centres[0][axis * pairs + j], sin = job->centres[1][axis * pairs + j];
        for (int g = 0; g < GROUPS; g++) {
            VF a = FN(at)(queries + (first + 2 * j) * BLOCK + g * LANES);
            VF b = FN(at)(queries + (first + 2 * j + 1) * BLOCK + g * LANES);
            *(VF *)(centred + 2 * j * BLOCK + g * LANES) = a * cos + b * sin;
            *(VF *)(centred + (2 * j + 1) * BLOCK + g * LANES) = b * cos - a * sin;
        }
    }
    for (int64_t c = 0; c <= C; c++) {
        for (int64_t j = 0; j < pairs; j++) {
            int64_t row = first + 2 * j;
            float even_w = c < C ? job->weight[row * C + c] : job->bias[row];
            float odd_w = c < C ? job->weight[(row + 1) * C + c] : job->bias[row + 1];
            for (int g = 0; g < GROUPS; g++) {
                VF a = FN(at)(centred + 2 * j * BLOCK + g * LANES);
                VF b = FN(at)(centred + (2 * j + 1) * BLOCK + g * LANES);
                *(VF *)(A + j * BLOCK + g * LANES) = a * even_w + b * odd_w;
                *(VF *)(B + j * BLOCK + g * LANES) = b * even_w - a * odd_w;
            }
        }
        FN(scores)(even, part->tables[2 * axis], pairs, half, A, pairs, NULL);
        FN(scores)(odd, part->tables[2 * axis + 1], pairs, half, B, pairs, NULL);
        for (int64_t i = 0; i < half; i++) {
            /* table row i is the distance of position side - half + i from the middle */
            float *after = out + ((side - half + i) * (C + 1) + c) * BLOCK;
            float *before = out + ((half - 1 - i) * (C + 1) + c) * BLOCK;
            for (int g = 0; g < GROUPS; g++) {
                VF x = FN(at)(even + i * BLOCK + g * LANES), y = FN(at)(odd + i * BLOCK + g * LANES);
                *(VF *)(before + g * LANES) = x - y;
                *(VF *)(after + g * LANES) = x + y;
            }
        }
    }
}

/* Scores of one cell of the grid in some frames: (u + v) . m of each. */
INLINE void FN(cell)(const int frames, float *scores, const float *m, int64_t stride,
                     const float *u, const float *v, int64_t C) {
    VF sum[ROWS][GROUPS];
    EACH(g, GROUPS) {
        VF start = FN(at)(u + C * BLOCK + g * LANES) + FN(at)(v + C * BLOCK + g * LANES);
        EACH(f, frames) sum[f][g] = start;
    }
    for (int64_t c = 0; c < C; c++) {
        VF x[GROUPS];
        EACH(g, GROUPS) x[g] = FN(at)(u + c * BLOCK + g * LANES) + FN(at)(v + c * BLOCK + g * LANES);
        EACH(f, frames) EACH(g, GROUPS) sum[f][g] += x[g] * m[f * stride + c];
    }
    EACH(f, frames) EACH(g, GROUPS) *(VF *)(scores + f * BLOCK + g * LANES) = sum[f][g];
}

TARGET static void FN(cells)(float *scores, const float *m, int64_t stride, int64_t frames,
                             const float *u, const float *v, int64_t C) {
    for (; frames >= ROWS; frames -= ROWS, scores += ROWS * BLOCK, m += ROWS * stride)
        FN(cell)(ROWS, scores, m, stride, u, v, C);
    switch (frames) {
#if ROWS == 8
        case 7: FN(cell)(7, scores, m, stride, u, v, C); break;
        case 6: FN(cell)(6, scores, m, stride, u, v, C); break;
        case 5: FN(cell)(5, scores, m, stride, u, v, C); break;
        case 4: FN(cell)(4, scores, m, stride, u, v, C); break;
#endif
        case 3: FN(cell)(3, scores, m, stride, u, v, C); break;
        case 2: FN(cell)(2, scores, m, stride, u, v, C); break;
        case 1: FN(cell)(1, scores, m, stride, u, v, C); break;
    }
}

/* Floats of scratch, and where its parts begin. */
struct FN(layout) { int64_t queries, columns, rows, rest, scores, values, total; };

static struct FN(layout) FN(lay_out)(const struct sg_memory *job) {
    int64_t C = job->channels, pairs = job->width / 4, columns = 0, rows = 0, most = KEYS;
    for (int p = 0; p < 2; p++) {
        columns = sg_most(columns, job->parts[p].columns);
        rows = sg_most(rows, job->parts[p].rows);
        most = sg_most(most, job->parts[p].frames);
    }
    int64_t side = sg_most(rows, columns);
    struct FN(layout) at = {0};
    at.columns = at.queries + job->width * BLOCK;
    at.rows = at.columns + columns * (C + 1) * BLOCK;
    at.rest = at.rows + rows * (C + 1) * BLOCK;
    int64_t spread = 4 * pairs + (side + 1), plain = C + 1;
    at.scores = at.rest + sg_most(spread, plain) * BLOCK;
    at.values = at.scores + most * BLOCK;
    at.total = at.values + job->value_width * BLOCK;
    return at;
}

/* Add the mask of `count` keys. */
TARGET static void FN(shift)(float *scores, const float *mask, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        for (int g = 0; g < GROUPS; g++) *(VF *)(scores + i * BLOCK + g * LANES) += mask[i] * FN(log2e);
}

/* The vector w = W' q [channels + 1][BLOCK], for tokens that are not rotated. */
TARGET static void FN(project)(float *w, const struct sg_memory *job, const float *queries) {
    int64_t C = job->channels;
    memset(w, 0, (size_t)(C + 1) * BLOCK * sizeof(float));
    for (int64_t d = 0; d < job->width; d++)
        for (int64_t c = 0; c <= C; c++) {
            float y = c < C ? job->weight[d * C + c] : job->bias[d];
            for (int g = 0; g < GROUPS; g++)
                *(VF *)(w + c * BLOCK + g * LANES) += FN(at)(queries + d * BLOCK + g * LANES) * y;
        }
}

/* The unrotated tokens, from `key` on. */
TARGET static void FN(absorb_plain)(struct FN(state) *state, const struct sg_memory *job, int64_t n,
                                    int64_t key, const float *queries, float *w, float *scores) {
    int64_t C = job->channels, E = job->value_width, keys = sg_keys(job);
    FN(project)(w, job, queries);
    for (int64_t i = key; i < keys; i += KEYS) {
        int64_t count = sg_least(KEYS, keys - i);
        FN(scores)(scores, job->k + (n * keys + i) * C, C, count, w, C, w + C * BLOCK);
        if (job->mask) FN(shift)(scores, job->mask + i, count);
        FN(absorb)(state, scores, count, job->v + (n * keys + i) * E, E, E);
    }
}

/* The frames of one part, whose sorted tokens begin at `first`. */
TARGET static void FN(absorb_frames)(struct FN(state) *state, const struct sg_memory *job, int64_t n,
                                     int64_t first, const struct sg_frames *part, float *base,
                                     struct FN(layout) at) {
    int64_t C = job->channels, E = job->value_width, keys = sg_keys(job), F = part->frames;
    const float *k = job->k + n * keys * C, *v = job->v + n * keys * E;
    float *scores = base + at.scores, *columns = base + at.columns, *rows = base + at.rows;
    FN(spread)(columns, job, part, base + at.queries, 0, base + at.rest);
    FN(spread)(rows, job, part, base + at.queries, 1, base + at.rest);
    int64_t step = F >= KEYS ? 1 : KEYS / F;
    for (int64_t y = 0; y < part->rows; y++)
        for (int64_t x = 0; x < part->columns; x += step) {
            int64_t many = sg_least(step, part->columns - x);
            int64_t key = first + (y * part->columns + x) * F;
            for (int64_t i = 0; i < many; i++)
                FN(cells)(scores + i * F * BLOCK, k + (key + i * F) * C, C, F,
                          columns + (x + i) * (C + 1) * BLOCK, rows + y * (C + 1) * BLOCK, C);
            if (job->mask) FN(shift)(scores, job->mask + key, many * F);
            FN(absorb)(state, scores, many * F, v + key * E, E, E);
        }
}

TARGET static int FN(recall)(const void *given, int64_t task, void *scratch) {
    const struct sg_memory *job = given;
    int64_t E = job->value_width, blocks = FN(blocks)(job->queries);
    int64_t n = task / blocks, first = task % blocks * BLOCK, key = 0;
    int64_t lanes = sg_least(BLOCK, job->queries - first);
    struct FN(layout) at = FN(lay_out)(job);
    float *base = scratch;
    FN(pack)(base + at.queries, job->q + (n * job->queries + first) * job->width, job->width, lanes,
             job->width, job->scale * FN(log2e));
    struct FN(state) state;
    FN(begin)(&state, base + at.values, E);
    for (int p = 0; p < 2; key += sg_tokens(&job->parts[p]), p++)
        if (job->parts[p].frames) FN(absorb_frames)(&state, job, n, key, &job->parts[p], base, at);
    if (job->plain)
        FN(absorb_plain)(&state, job, n, key, base + at.queries, base + at.rest, base + at.scores);
    FN(store)(job->out + (n * job->queries + first) * E, E, lanes, &state, E);
    return 0;
}

static int FN(memory)(const struct sg_memory *job, int threads) {
    struct sg_memory sorted = *job;
    int64_t keys = sg_keys(job);
    struct sg_sorting to = {.from = job};
    to.k = malloc((size_t)(job->batch * keys * job->channels) * sizeof(float) + LINE);
    to.v = malloc((size_t)(job->batch * keys * job->value_width) * sizeof(float) + LINE);
    if (job->mask) to.mask = malloc((size_t)keys * sizeof(float) + LINE);
    int status = -1;
    if (to.k && to.v && (to.mask || !job->mask)) {
        sorted.k = to.k;
        sorted.v = to.v;
        sorted.mask = to.mask;
        status = sg_run(sg_sort, &to, job->batch * sg_sorting_tasks(job), 0, threads);
    }
    int64_t tasks = job->batch * FN(blocks)(job->queries);
    if (!status) status = sg_run(FN(recall), &sorted, tasks, (size_t)FN(lay_out)(job).total * sizeof(float), threads);
    free(to.k);
    free(to.v);
    free(to.mask);
    return status;
}

#undef BLOCK
#undef VF
#undef VI
#undef FN
#undef INLINE
#endif
