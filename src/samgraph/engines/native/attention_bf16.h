/* Attention over rotated memory with rounded operands: AVX-512 with VNNI and BF16. Part of attention.c.

   Scores   u_x + v_y and m are 16-bit integers, scaled per query and per key, whose products are
            summed exactly, two channels at once: finer than bf16, and u_x + v_y is one instruction
   average  weights and values in bf16, two keys at once, summed in float32

   The softmax is in float32. Keys come in pairs, so the tokens of a row of the grid, and the
   unrotated ones, are padded to an even number by a key whose weight is 0. */

#include <immintrin.h>

#define LOW_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx512bf16,fma")))
#define LOW_INLINE LOW_TARGET static inline __attribute__((always_inline))

enum {
    LOW_LANES = 16,
    LOW_BLOCK = LOW_LANES * GROUPS,
    LOW_ROWS = 8,
    QUERY_MOST = 8191, /* of u and of v: their sum stays a 16-bit integer */
    KEY_MOST = 2047,
    MOST_CHANNELS = 64, /* sums of products stay 32-bit integers */
};

/* The memory in the order it is read; `keys` counts padding. */
struct low_memory {
    struct sg_memory job;
    int32_t *k;    /* [N, keys, pairs of channels] */
    float *scales; /* [N, keys] */
    int32_t *v;    /* [N, keys / 2, E]: pairs of keys in bf16 */
    float *mask;   /* [keys], or NULL */
    int64_t keys, pairs;
};

static int64_t low_even(int64_t count) { return count + count % 2; }

static int64_t low_row(const struct sg_frames *part) { return low_even(part->frames * part->columns); }

static int64_t low_tokens(const struct sg_frames *part) {
    return part->frames ? part->rows * low_row(part) : 0;
}

static uint32_t low_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fc0;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static uint32_t low_whole(float x, float scale) {
    float y = x * scale;
    return (uint32_t)(uint16_t)(int16_t)(y + (y < 0 ? -0.5f : 0.5f));
}

/* One token from `source` to the sorted place `key`; a token that is no number has a scale of NaN. */
static void low_put(const struct low_memory *to, int64_t n, int64_t source, int64_t key) {
    const struct sg_memory *from = &to->job;
    int64_t C = from->channels, E = from->value_width, tokens = sg_keys(from);
    const float *k = from->k + (n * tokens + source) * C, *v = from->v + (n * tokens + source) * E;
    int32_t *ints = to->k + (n * to->keys + key) * to->pairs;
    float most = 0, odd = 0;
    for (int64_t c = 0; c < C; c++) {
        float size = k[c] < 0 ? -k[c] : k[c];
        most = size > most ? size : most;
        odd += k[c] * 0.0f;
    }
    int good = odd == 0 && most > 0;
    float scale = good ? KEY_MOST / most : 0;
    to->scales[n * to->keys + key] = most / KEY_MOST + odd;
    for (int64_t c = 0; c < C; c += 2) {
        uint32_t first = low_whole(good ? k[c] : 0, scale);
        uint32_t second = low_whole(good && c + 1 < C ? k[c + 1] : 0, scale);
        ints[c / 2] = (int32_t)(second << 16 | first);
    }
    uint16_t *halves = (uint16_t *)(to->v + (n * to->keys + key) / 2 * E) + key % 2;
    for (int64_t c = 0; c < E; c++) halves[2 * c] = (uint16_t)low_bits(v[c]);
    if (to->mask && n == 0) to->mask[key] = from->mask[source];
}

/* A task is a row of a part, or the unrotated tokens. Padding is 0 already. */
static int low_sort(const void *given, int64_t task, void *scratch) {
    const struct low_memory *to = given;
    const struct sg_memory *from = &to->job;
    int64_t n = task / sg_sorting_tasks(from), row = task % sg_sorting_tasks(from);
    int64_t source = 0, key = 0;
    (void)scratch;
    for (int p = 0; p < 2; p++) {
        const struct sg_frames *part = &from->parts[p];
        int64_t cells = part->rows * part->columns, F = part->frames;
        for (int64_t f = 0; row >= 0 && row < part->rows && f < F; f++)
            for (int64_t x = 0; x < part->columns; x++)
                low_put(to, n, source + f * cells + row * part->columns + x, key + row * low_row(part) + x * F + f);
        row -= part->rows;
        source += sg_tokens(part);
        key += low_tokens(part);
    }
    for (int64_t i = 0; row == 0 && i < from->plain; i++) low_put(to, n, source + i, key + i);
    return 0;
}

/* 2 to the power of x <= 0, relative error 1e-4. */
LOW_INLINE __m512 low_power(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-126), x); /* the second where one is NaN */
    __m512 shifted = x + 12582912.0f, f = x - (shifted - 12582912.0f);
    __m512 y = f * 5.517166e-2f + 2.4261112e-1f;
    y = y * f + 6.9326099e-1f;
    y = y * f + 9.9992807e-1f;
    return (__m512)_mm512_add_epi32((__m512i)y, _mm512_slli_epi32((__m512i)shifted, 23));
}

/* Two vectors of weights as pairs in bf16. */
LOW_INLINE __m512i low_pair(__m512 first, __m512 second) {
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000u);
    __m512i a = _mm512_srli_epi32(_mm512_add_epi32((__m512i)first, half), 16);
    __m512i b = _mm512_add_epi32((__m512i)second, half);
    return _mm512_ternarylogic_epi32(b, high, a, 0xea); /* (b & high) | a */
}

/* Sums are variables, and their instructions written out: of arrays and intrinsics GCC makes a loop
   that stores and moves them in every round. */
#define LOW_ADD(INSTRUCTION, sum, x, y) __asm__(INSTRUCTION " %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
_Static_assert(GROUPS == 3, "sums of three groups are written out");
#define LOW_EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

LOW_INLINE void low_take(float *target, __m512 factor, __m512 sum) {
    _mm512_store_ps(target, _mm512_load_ps(target) * factor + sum);
}

LOW_INLINE void low_gather(const int channels, float *out, const __m512 *factor, const int32_t *v,
                           int64_t stride, const float *p, int64_t pairs) {
#define DECLARE(r) __m512 sum0_##r = _mm512_setzero_ps(), sum1_##r = sum0_##r, sum2_##r = sum0_##r;
    LOW_EACH(DECLARE)
    for (int64_t i = 0; i < pairs; i++, p += LOW_BLOCK, v += stride) {
        __m512bh x0 = (__m512bh)_mm512_load_ps(p), x1 = (__m512bh)_mm512_load_ps(p + LOW_LANES);
        __m512bh x2 = (__m512bh)_mm512_load_ps(p + 2 * LOW_LANES);
#define ADD(r)                                                      \
    if (r < channels) {                                             \
        __m512bh y = (__m512bh)_mm512_set1_epi32(v[r]);             \
        LOW_ADD("vdpbf16ps", sum0_##r, x0, y) \
        LOW_ADD("vdpbf16ps", sum1_##r, x1, y) \
        LOW_ADD("vdpbf16ps", sum2_##r, x2, y) \
    }
        LOW_EACH(ADD)
    }
#define STORE(r)                                                                   \
    if (r < channels) {                                                            \
        low_take(out + r * LOW_BLOCK, factor[0], sum0_##r);                        \
        low_take(out + r * LOW_BLOCK + LOW_LANES, factor[1], sum1_##r);            \
        low_take(out + r * LOW_BLOCK + 2 * LOW_LANES, factor[2], sum2_##r);        \
    }
    LOW_EACH(STORE)
#undef DECLARE
#undef ADD
#undef STORE
}

/* The weights of `count` keys replace their scores, in pairs; what was summed up is to be multiplied
   by `factor`. */
LOW_INLINE void low_weigh(struct state_avx512 *state, float *scores, int64_t count, __m512 *factor) {
    for (int g = 0; g < GROUPS; g++) {
        __m512 most = (__m512)state->most[g], sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < count; i++)
            most = _mm512_max_ps(_mm512_load_ps(scores + i * LOW_BLOCK + g * LOW_LANES), most);
        factor[g] = low_power((__m512)state->most[g] - most);
        for (int64_t i = 0; i < count; i += 2) {
            __m512 a = low_power(_mm512_load_ps(scores + i * LOW_BLOCK + g * LOW_LANES) - most);
            __m512 b = _mm512_setzero_ps();
            if (i + 1 < count)
                b = low_power(_mm512_load_ps(scores + (i + 1) * LOW_BLOCK + g * LOW_LANES) - most);
            sum += a + b;
            _mm512_store_si512(scores + i / 2 * LOW_BLOCK + g * LOW_LANES, low_pair(a, b));
        }
        state->most[g] = (vf_avx512)most;
        state->sum[g] = state->sum[g] * (vf_avx512)factor[g] + (vf_avx512)sum;
    }
}

/* Take `count` keys into the average. */
LOW_TARGET static void low_absorb(struct state_avx512 *state, float *scores, int64_t count,
                                  const int32_t *v, int64_t E) {
    __m512 factor[GROUPS];
    low_weigh(state, scores, count, factor);
    int64_t c = 0, pairs = low_even(count) / 2;
    for (; c + LOW_ROWS <= E; c += LOW_ROWS)
        low_gather(LOW_ROWS, state->values + c * LOW_BLOCK, factor, v + c, E, scores, pairs);
    for (; c < E; c++) low_gather(1, state->values + c * LOW_BLOCK, factor, v + c, E, scores, pairs);
}

LOW_INLINE void low_score(float *target, __m512i sum, const float *start_u, const float *start_v,
                          const float *units, float scale) {
    __m512 start = _mm512_load_ps(start_u) + _mm512_load_ps(start_v);
    _mm512_store_ps(target, start + _mm512_cvtepi32_ps(sum) * (_mm512_load_ps(units) * scale));
}

/* Scores of one cell of the grid in some frames. */
LOW_INLINE void low_cell(const int frames, float *scores, const int32_t *m, const float *scales,
                         const int32_t *u, const int32_t *v, const float *start_u, const float *start_v,
                         const float *units, int64_t pairs) {
#define DECLARE(f) __m512i sum0_##f = _mm512_setzero_si512(), sum1_##f = sum0_##f, sum2_##f = sum0_##f;
    LOW_EACH(DECLARE)
    for (int64_t c = 0; c < pairs; c++, u += LOW_BLOCK, v += LOW_BLOCK) {
        __m512i x0 = _mm512_add_epi16(_mm512_load_si512(u), _mm512_load_si512(v));
        __m512i x1 = _mm512_add_epi16(_mm512_load_si512(u + LOW_LANES), _mm512_load_si512(v + LOW_LANES));
        __m512i x2 = _mm512_add_epi16(_mm512_load_si512(u + 2 * LOW_LANES), _mm512_load_si512(v + 2 * LOW_LANES));
#define ADD(f)                                                        \
    if (f < frames) {                                                 \
        __m512i y = _mm512_set1_epi32(m[f * pairs + c]);              \
        LOW_ADD("vpdpwssd", sum0_##f, x0, y) \
        LOW_ADD("vpdpwssd", sum1_##f, x1, y) \
        LOW_ADD("vpdpwssd", sum2_##f, x2, y) \
    }
        LOW_EACH(ADD)
    }
#define STORE(f)                                                                                          \
    if (f < frames) {                                                                                     \
        low_score(scores + f * LOW_BLOCK, sum0_##f, start_u, start_v, units, scales[f]);                  \
        low_score(scores + f * LOW_BLOCK + LOW_LANES, sum1_##f, start_u + LOW_LANES, start_v + LOW_LANES, \
                  units + LOW_LANES, scales[f]);                                                          \
        low_score(scores + f * LOW_BLOCK + 2 * LOW_LANES, sum2_##f, start_u + 2 * LOW_LANES,              \
                  start_v + 2 * LOW_LANES, units + 2 * LOW_LANES, scales[f]);                             \
    }
    LOW_EACH(STORE)
#undef DECLARE
#undef ADD
#undef STORE
}

LOW_TARGET static void low_cells(float *scores, const int32_t *m, const float *scales, int64_t frames,
                                 const int32_t *u, const int32_t *v, const float *start_u,
                                 const float *start_v, const float *units, int64_t pairs) {
#define LOW_CELL(count) low_cell(count, scores, m, scales, u, v, start_u, start_v, units, pairs)
    for (; frames >= 7; frames -= 7, scores += 7 * LOW_BLOCK, m += 7 * pairs, scales += 7) LOW_CELL(7);
    switch (frames) {
        case 6: LOW_CELL(6); break;
        case 5: LOW_CELL(5); break;
        case 4: LOW_CELL(4); break;
        case 3: LOW_CELL(3); break;
        case 2: LOW_CELL(2); break;
        case 1: LOW_CELL(1); break;
    }
#undef LOW_CELL
}

/* Scratch, in floats: what the plain form needs, the last channels of u and v by themselves, and scores:
   a block is two cells at least. */
struct low_layout {
    struct layout_avx512 at;
    int64_t starts[2], units, scores, total;
};

static struct low_layout low_lay_out(const struct sg_memory *job) {
    struct low_layout found = {.at = lay_out_avx512(job)};
    int64_t columns = sg_most(job->parts[0].columns, job->parts[1].columns);
    int64_t rows = sg_most(job->parts[0].rows, job->parts[1].rows);
    found.starts[0] = found.at.total;
    found.starts[1] = found.starts[0] + columns * LOW_BLOCK;
    found.units = found.starts[1] + rows * LOW_BLOCK;
    found.scores = found.units + LOW_BLOCK;
    int64_t frames = sg_most(job->parts[0].frames, job->parts[1].frames);
    found.total = found.scores + sg_most(KEYS, 2 * frames) * LOW_BLOCK;
    return found;
}

/* The largest size of each query in vectors [side][channels + 1][BLOCK], the last channel aside. */
LOW_TARGET static void low_largest(__m512 *most, const float *vectors, int64_t side, int64_t C) {
    for (int64_t i = 0; i < side * (C + 1); i++)
        for (int g = 0; i % (C + 1) < C && g < GROUPS; g++) {
            __m512 x = _mm512_load_ps(vectors + i * LOW_BLOCK + g * LOW_LANES);
            most[g] = _mm512_max_ps(_mm512_abs_ps(x), most[g]);
        }
}

/* The same vectors as pairs of integers, in place: [side][pairs][BLOCK]; the last channels to `starts`. */
LOW_TARGET static void low_quantise(float *vectors, float *starts, int64_t side, int64_t C, const __m512 *scale) {
    int64_t pairs = (C + 1) / 2;
    for (int64_t i = 0; i < side; i++) {
        const float *from = vectors + i * (C + 1) * LOW_BLOCK;
        memcpy(starts + i * LOW_BLOCK, from + C * LOW_BLOCK, LOW_BLOCK * sizeof(float));
        for (int64_t c = 0; c < C; c += 2)
            for (int g = 0; g < GROUPS; g++) {
                __m512i a = _mm512_cvtps_epi32(_mm512_load_ps(from + c * LOW_BLOCK + g * LOW_LANES) * scale[g]);
                __m512i b = _mm512_setzero_si512();
                if (c + 1 < C) b = _mm512_cvtps_epi32(_mm512_load_ps(from + (c + 1) * LOW_BLOCK + g * LOW_LANES) * scale[g]);
                a = _mm512_and_si512(a, _mm512_set1_epi32(0xffff));
                _mm512_store_si512(vectors + (i * pairs + c / 2) * LOW_BLOCK + g * LOW_LANES,
                                   _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
            }
    }
}

LOW_TARGET static void low_absorb_frames(struct state_avx512 *state, const struct low_memory *given, int64_t n,
                                         int64_t first, const struct sg_frames *part, float *base,
                                         const struct low_layout *where) {
    const struct sg_memory *job = &given->job;
    const struct layout_avx512 *at = &where->at;
    int64_t C = job->channels, E = job->value_width, F = part->frames, pairs = given->pairs;
    float *scores = base + where->scores, *units = base + where->units;
    float *columns = base + at->columns, *rows = base + at->rows;
    spread_avx512(columns, job, part, base + at->queries, 0, base + at->rest);
    spread_avx512(rows, job, part, base + at->queries, 1, base + at->rest);
    __m512 most[GROUPS], scale[GROUPS];
    for (int g = 0; g < GROUPS; g++) most[g] = _mm512_set1_ps(1e-30f);
    low_largest(most, columns, part->columns, C);
    low_largest(most, rows, part->rows, C);
    for (int g = 0; g < GROUPS; g++) {
        scale[g] = _mm512_set1_ps(QUERY_MOST) / most[g];
        _mm512_store_ps(units + g * LOW_LANES, most[g] / _mm512_set1_ps(QUERY_MOST));
    }
    low_quantise(columns, base + where->starts[0], part->columns, C, scale);
    low_quantise(rows, base + where->starts[1], part->rows, C, scale);
    int64_t step = F >= KEYS / 2 ? 2 : KEYS / F / 2 * 2;
    for (int64_t y = 0; y < part->rows; y++)
        for (int64_t x = 0; x < part->columns; x += step) {
            int64_t many = sg_least(step, part->columns - x), key = first + y * low_row(part) + x * F;
            for (int64_t i = 0; i < many; i++)
                low_cells(scores + i * F * LOW_BLOCK, given->k + (n * given->keys + key + i * F) * pairs,
                          given->scales + n * given->keys + key + i * F, F,
                          (const int32_t *)columns + (x + i) * pairs * LOW_BLOCK,
                          (const int32_t *)rows + y * pairs * LOW_BLOCK, base + where->starts[0] + (x + i) * LOW_BLOCK,
                          base + where->starts[1] + y * LOW_BLOCK, units, pairs);
            if (given->mask) shift_avx512(scores, given->mask + key, many * F);
            low_absorb(state, scores, many * F, given->v + (n * given->keys + key) / 2 * E, E);
        }
}

/* The unrotated tokens: scores in float32, as there are few. */
LOW_TARGET static void low_absorb_plain(struct state_avx512 *state, const struct low_memory *given, int64_t n,
                                        int64_t key, float *base, const struct low_layout *where) {
    const struct sg_memory *job = &given->job;
    int64_t C = job->channels, E = job->value_width, tokens = sg_keys(job), source = tokens - job->plain;
    float *w = base + where->at.rest, *scores = base + where->scores;
    project_avx512(w, job, base + where->at.queries);
    for (int64_t i = 0; i < job->plain; i += KEYS) {
        int64_t count = sg_least(KEYS, job->plain - i);
        scores_avx512(scores, job->k + (n * tokens + source + i) * C, C, count, w, C, w + C * LOW_BLOCK);
        if (given->mask) shift_avx512(scores, given->mask + key + i, count);
        low_absorb(state, scores, count, given->v + (n * given->keys + key + i) / 2 * E, E);
    }
}

LOW_TARGET static int low_recall(const void *given, int64_t task, void *scratch) {
    const struct low_memory *memory = given;
    const struct sg_memory *job = &memory->job;
    int64_t E = job->value_width, blocks = blocks_avx512(job->queries);
    int64_t n = task / blocks, first = task % blocks * LOW_BLOCK, key = 0;
    int64_t lanes = sg_least(LOW_BLOCK, job->queries - first);
    struct low_layout where = low_lay_out(job);
    float *base = scratch;
    pack_avx512(base + where.at.queries, job->q + (n * job->queries + first) * job->width, job->width, lanes,
                job->width, job->scale * log2e_avx512);
    struct state_avx512 state;
    begin_avx512(&state, base + where.at.values, E);
    for (int p = 0; p < 2; key += low_tokens(&job->parts[p]), p++)
        if (job->parts[p].frames) low_absorb_frames(&state, memory, n, key, &job->parts[p], base, &where);
    if (job->plain) low_absorb_plain(&state, memory, n, key, base, &where);
    store_avx512(job->out + (n * job->queries + first) * E, E, lanes, &state, E);
    return 0;
}

static int low_memory(const struct sg_memory *job, int threads) {
    struct low_memory to = {.job = *job, .pairs = (job->channels + 1) / 2};
    to.keys = low_tokens(&job->parts[0]) + low_tokens(&job->parts[1]) + low_even(job->plain);
    size_t keys = (size_t)(job->batch * to.keys);
    to.k = calloc(keys * (size_t)to.pairs + LINE, sizeof(int32_t));
    to.scales = calloc(keys + LINE, sizeof(float));
    to.v = calloc(keys / 2 * (size_t)job->value_width + LINE, sizeof(int32_t));
    if (job->mask) to.mask = calloc((size_t)to.keys + LINE, sizeof(float));
    int status = to.k && to.scales && to.v && (to.mask || !job->mask) ? 0 : -1;
    if (!status) status = sg_run(low_sort, &to, job->batch * sg_sorting_tasks(job), 0, threads);
    size_t scratch = (size_t)low_lay_out(job).total * sizeof(float);
    if (!status) status = sg_run(low_recall, &to, job->batch * blocks_avx512(job->queries), scratch, threads);
    free(to.k);
    free(to.scales);
    free(to.v);
    free(to.mask);
    return status;
}
