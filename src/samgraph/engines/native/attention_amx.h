/* Attention over rotated memory with rounded operands: the tiles of AMX. Part of attention.c.

   A tile is 16 rows of 64 bytes; one instruction adds the product of two tiles of bf16 to one of
   float32, summing over pairs:

       scores   [16 keys][16 queries]     +=  keys [16][32]       queries [16 pairs of channels][16]
       average  [16 channels][16 queries] +=  values [16][32]     weights [16 pairs of keys][16]

   A score is u_x . m + v_y . m + (s_x + t_y): u and v are multiplied apart, each rounded to bf16, as
   adding and rounding them for every cell of the grid would take longer than a second product. The
   softmax is in float32, and that of attention_bf16.h.

   The keys of a cell are fewer than a tile has rows: it goes on into the next cell, whose own tile
   comes later and overwrites what is not meant. A block of cells is padded to whole tiles of keys,
   whose weights are 0. */

enum {
    TILE_ROWS = 16,
    TILE_HALVES = 32, /* numbers in bf16 of a row */
    TILE_KEYS = 128,  /* of a block, before it is padded */
    TILE_LINE = LOW_BLOCK * 4, /* bytes from a row of scores, queries or weights to the next */
};

/* What LDTILECFG reads: the tiles 0 to 7, all of full size. */
struct tile_shapes {
    uint8_t palette, start, unused[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

static const struct tile_shapes amx_shapes = {
    .palette = 1,
    .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

#if defined(SG_TILES) /* tests have no such processor: a header that does the same in C */
#include SG_TILES
#else
#include <sys/syscall.h>
#include <unistd.h>

#define tile_configure(shapes) __asm__ volatile("ldtilecfg %0" ::"m"(*(shapes)))
#define tile_release() __asm__ volatile("tilerelease" ::: "memory")
#define tile_zero(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
/* Rows are `stride` bytes apart; 0 repeats one row. */
#define tile_load(tile, from, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((int64_t)(stride)) : "memory")
#define tile_store(tile, to, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((int64_t)(stride)) : "memory")
/* sum[m][n] += a[m][2k] * b[k][2n] + a[m][2k + 1] * b[k][2n + 1] over all k */
#define tile_dot(sum, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum ::)

/* Whether Linux lets this process use tiles; a process has to ask, and may ask again. */
static int amx_permitted(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#endif

/* The memory in the order it is read; `keys` counts padding, and is a multiple of TILE_HALVES. */
struct amx_memory {
    struct sg_memory job;
    uint16_t *k; /* [N, keys, width] */
    uint16_t *v; /* [N, keys / TILE_HALVES, height, TILE_HALVES] */
    float *mask; /* [keys], or NULL */
    int64_t keys, width, height; /* channels of keys and values, padded to whole tiles */
};

static int64_t amx_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* Cells of a block. */
static int64_t amx_step(const struct sg_frames *part) {
    return part->frames >= TILE_KEYS ? 1 : TILE_KEYS / part->frames;
}

/* Where the keys of column `x` begin in a row of the grid. */
static int64_t amx_column(const struct sg_frames *part, int64_t x) {
    int64_t step = amx_step(part);
    return x / step * amx_up(step * part->frames, TILE_HALVES) + x % step * part->frames;
}

static int64_t amx_row(const struct sg_frames *part) {
    return part->frames ? amx_up(amx_column(part, part->columns), TILE_HALVES) : 0;
}

/* One token from `source` to the sorted place `key`. */
static void amx_put(const struct amx_memory *to, int64_t n, int64_t source, int64_t key) {
    const struct sg_memory *from = &to->job;
    int64_t C = from->channels, E = from->value_width, tokens = sg_keys(from);
    const float *k = from->k + (n * tokens + source) * C, *v = from->v + (n * tokens + source) * E;
    int64_t place = n * to->keys + key;
    uint16_t *column = to->v + place / TILE_HALVES * to->height * TILE_HALVES + place % TILE_HALVES;
    for (int64_t c = 0; c < C; c++) to->k[place * to->width + c] = (uint16_t)low_bits(k[c]);
    for (int64_t c = 0; c < E; c++) column[c * TILE_HALVES] = (uint16_t)low_bits(v[c]);
    if (to->mask && n == 0) to->mask[key] = from->mask[source];
}

/* A task is a row of a part, or the unrotated tokens. Padding is 0 already. */
static int amx_sort(const void *given, int64_t task, void *scratch) {
    const struct amx_memory *to = given;
    const struct sg_memory *from = &to->job;
    int64_t n = task / sg_sorting_tasks(from), row = task % sg_sorting_tasks(from);
    int64_t source = 0, key = 0;
    (void)scratch;
    for (int p = 0; p < 2; p++) {
        const struct sg_frames *part = &from->parts[p];
        int64_t cells = part->rows * part->columns, F = part->frames;
        for (int64_t f = 0; row >= 0 && row < part->rows && f < F; f++)
            for (int64_t x = 0; x < part->columns; x++)
                amx_put(to, n, source + f * cells + row * part->columns + x,
                        key + row * amx_row(part) + amx_column(part, x) + f);
        row -= part->rows;
        source += sg_tokens(part);
        key += part->rows * amx_row(part);
    }
    for (int64_t i = 0; row == 0 && i < from->plain; i++) amx_put(to, n, source + i, key + i);
    return 0;
}

/* Scores of `cells` cells of a row of the grid, whose queries are u[x] + v; `starts` are s_x + t_y. */
LOW_TARGET static void amx_score(float *scores, const uint16_t *k, int64_t width, int64_t cells, int64_t frames,
                                 const int32_t *u, const int32_t *v, const float *starts) {
    for (int64_t x = 0; x < cells; x++)
        for (int64_t f = 0; f < frames; f += TILE_ROWS) {
            const float *start = starts + x * LOW_BLOCK;
            float *target = scores + (x * frames + f) * LOW_BLOCK;
            tile_load(0, start, 0);
            tile_load(1, start + LOW_LANES, 0);
            tile_load(2, start + 2 * LOW_LANES, 0);
            for (int64_t c = 0; c < width; c += TILE_HALVES) {
                const int32_t *left = u + (x * width + c) / 2 * LOW_BLOCK, *right = v + c / 2 * LOW_BLOCK;
                tile_load(3, k + (x * frames + f) * width + c, width * 2);
                tile_load(4, left, TILE_LINE);
                tile_dot(0, 3, 4);
                tile_load(5, left + LOW_LANES, TILE_LINE);
                tile_dot(1, 3, 5);
                tile_load(6, left + 2 * LOW_LANES, TILE_LINE);
                tile_dot(2, 3, 6);
                tile_load(7, right, TILE_LINE);
                tile_dot(0, 3, 7);
                tile_load(4, right + LOW_LANES, TILE_LINE);
                tile_dot(1, 3, 4);
                tile_load(5, right + 2 * LOW_LANES, TILE_LINE);
                tile_dot(2, 3, 5);
            }
            tile_store(0, target, TILE_LINE);
            tile_store(1, target + LOW_LANES, TILE_LINE);
            tile_store(2, target + 2 * LOW_LANES, TILE_LINE);
        }
}

/* Take `count` keys into the average; `sums` is a tile of each group. */
LOW_TARGET static void amx_absorb(struct state_avx512 *state, float *scores, int64_t count, const uint16_t *v,
                                  int64_t height, int64_t E, float *sums) {
    __m512 factor[GROUPS];
    low_weigh(state, scores, count, factor);
    int64_t pairs = low_even(count) / 2, padded = amx_up(count, TILE_HALVES) / 2;
    memset(scores + pairs * LOW_BLOCK, 0, (size_t)((padded - pairs) * TILE_LINE));
    for (int64_t c = 0; c < E; c += TILE_ROWS) {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        for (int64_t i = 0; i < count; i += TILE_HALVES) {
            const float *weights = scores + i / 2 * LOW_BLOCK;
            tile_load(3, v + i * height + c * TILE_HALVES, TILE_HALVES * 2);
            tile_load(4, weights, TILE_LINE);
            tile_dot(0, 3, 4);
            tile_load(5, weights + LOW_LANES, TILE_LINE);
            tile_dot(1, 3, 5);
            tile_load(6, weights + 2 * LOW_LANES, TILE_LINE);
            tile_dot(2, 3, 6);
        }
        tile_store(0, sums, TILE_LINE);
        tile_store(1, sums + LOW_LANES, TILE_LINE);
        tile_store(2, sums + 2 * LOW_LANES, TILE_LINE);
        for (int64_t r = 0; r < TILE_ROWS && c + r < E; r++)
            for (int g = 0; g < GROUPS; g++)
                low_take(state->values + (c + r) * LOW_BLOCK + g * LOW_LANES, factor[g],
                         _mm512_load_ps(sums + r * LOW_BLOCK + g * LOW_LANES));
    }
}

/* Scratch, in floats: what the plain form needs, then u and v in bf16 and their last channels, the sums
   of those for a row of the grid, scores, and a tile of sums. */
struct amx_layout {
    struct layout_avx512 at;
    int64_t pairs[2], starts[2], row, scores, sums, total;
};

static struct amx_layout amx_lay_out(const struct sg_memory *job) {
    struct amx_layout found = {.at = lay_out_avx512(job)};
    int64_t sides[2] = {0, 0}, keys = TILE_KEYS, width = amx_up(job->channels, TILE_HALVES);
    for (int p = 0; p < 2; p++) {
        const struct sg_frames *part = &job->parts[p];
        sides[0] = sg_most(sides[0], part->columns);
        sides[1] = sg_most(sides[1], part->rows);
        keys = sg_most(keys, amx_up(part->frames, TILE_HALVES));
    }
    int64_t next = found.at.total;
    for (int axis = 0; axis < 2; axis++) {
        found.pairs[axis] = next;
        found.starts[axis] = next + sides[axis] * width / 2 * LOW_BLOCK;
        next = found.starts[axis] + sides[axis] * LOW_BLOCK;
    }
    found.row = next;
    found.scores = found.row + sides[0] * LOW_BLOCK;
    found.sums = found.scores + (keys + TILE_ROWS) * LOW_BLOCK; /* a tile begins at the last key at most */
    found.total = found.sums + TILE_ROWS * LOW_BLOCK;
    return found;
}

/* Vectors [side][channels + 1][BLOCK] as pairs in bf16 [side][width / 2][BLOCK], and their last channels. */
LOW_TARGET static void amx_round(int32_t *pairs, float *starts, const float *vectors, int64_t side, int64_t C) {
    int64_t width = amx_up(C, TILE_HALVES);
    for (int64_t i = 0; i < side; i++, vectors += (C + 1) * LOW_BLOCK) {
        memcpy(starts + i * LOW_BLOCK, vectors + C * LOW_BLOCK, TILE_LINE);
        for (int64_t c = 0; c < width; c += 2, pairs += LOW_BLOCK)
            for (int g = 0; g < GROUPS; g++) {
                const float *from = vectors + c * LOW_BLOCK + g * LOW_LANES;
                __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
                if (c < C) first = _mm512_load_ps(from);
                if (c + 1 < C) second = _mm512_load_ps(from + LOW_BLOCK);
                _mm512_store_si512(pairs + g * LOW_LANES, low_pair(first, second));
            }
    }
}

LOW_TARGET static void amx_absorb_frames(struct state_avx512 *state, const struct amx_memory *given, int64_t n,
                                         int64_t first, const struct sg_frames *part, float *base,
                                         const struct amx_layout *where) {
    const struct sg_memory *job = &given->job;
    const struct layout_avx512 *at = &where->at;
    int64_t C = job->channels, F = part->frames, width = given->width, step = amx_step(part);
    int32_t *u = (int32_t *)(base + where->pairs[0]), *v = (int32_t *)(base + where->pairs[1]);
    float *starts = base + where->row, *scores = base + where->scores;
    spread_avx512(base + at->columns, job, part, base + at->queries, 0, base + at->rest);
    spread_avx512(base + at->rows, job, part, base + at->queries, 1, base + at->rest);
    amx_round(u, base + where->starts[0], base + at->columns, part->columns, C);
    amx_round(v, base + where->starts[1], base + at->rows, part->rows, C);
    for (int64_t y = 0; y < part->rows; y++) {
        for (int64_t i = 0; i < part->columns * LOW_BLOCK; i++)
            starts[i] = base[where->starts[0] + i] + base[where->starts[1] + y * LOW_BLOCK + i % LOW_BLOCK];
        for (int64_t x = 0; x < part->columns; x += step) {
            int64_t many = sg_least(step, part->columns - x), key = first + y * amx_row(part) + amx_column(part, x);
            int64_t place = n * given->keys + key;
            amx_score(scores, given->k + place * width, width, many, F, u + x * width / 2 * LOW_BLOCK,
                      v + y * width / 2 * LOW_BLOCK, starts + x * LOW_BLOCK);
            if (given->mask) shift_avx512(scores, given->mask + key, many * F);
            amx_absorb(state, scores, many * F, given->v + place * given->height, given->height, job->value_width,
                       base + where->sums);
        }
    }
}

/* The unrotated tokens: scores in float32, as there are few. */
LOW_TARGET static void amx_absorb_plain(struct state_avx512 *state, const struct amx_memory *given, int64_t n,
                                        int64_t key, float *base, const struct amx_layout *where) {
    const struct sg_memory *job = &given->job;
    int64_t C = job->channels, tokens = sg_keys(job), source = n * tokens + tokens - job->plain;
    float *w = base + where->at.rest, *scores = base + where->scores;
    project_avx512(w, job, base + where->at.queries);
    for (int64_t i = 0; i < job->plain; i += TILE_KEYS) {
        int64_t count = sg_least(TILE_KEYS, job->plain - i), place = n * given->keys + key + i;
        scores_avx512(scores, job->k + (source + i) * C, C, count, w, C, w + C * LOW_BLOCK);
        if (given->mask) shift_avx512(scores, given->mask + key + i, count);
        amx_absorb(state, scores, count, given->v + place * given->height, given->height, job->value_width,
                   base + where->sums);
    }
}

LOW_TARGET static int amx_recall(const void *given, int64_t task, void *scratch) {
    const struct amx_memory *memory = given;
    const struct sg_memory *job = &memory->job;
    int64_t E = job->value_width, blocks = blocks_avx512(job->queries);
    int64_t n = task / blocks, first = task % blocks * LOW_BLOCK, key = 0;
    int64_t lanes = sg_least(LOW_BLOCK, job->queries - first);
    struct amx_layout where = amx_lay_out(job);
    float *base = scratch;
    pack_avx512(base + where.at.queries, job->q + (n * job->queries + first) * job->width, job->width, lanes,
                job->width, job->scale * log2e_avx512);
    struct state_avx512 state;
    begin_avx512(&state, base + where.at.values, E);
    tile_configure(&amx_shapes);
    for (int p = 0; p < 2; key += job->parts[p].rows * amx_row(&job->parts[p]), p++)
        if (job->parts[p].frames) amx_absorb_frames(&state, memory, n, key, &job->parts[p], base, &where);
    if (job->plain) amx_absorb_plain(&state, memory, n, key, base, &where);
    tile_release();
    store_avx512(job->out + (n * job->queries + first) * E, E, lanes, &state, E);
    return 0;
}

static int amx_memory(const struct sg_memory *job, int threads) {
    struct amx_memory to = {.job = *job, .width = amx_up(job->channels, TILE_HALVES)};
    to.height = amx_up(job->value_width, TILE_ROWS);
    for (int p = 0; p < 2; p++) to.keys += job->parts[p].rows * amx_row(&job->parts[p]);
    to.keys += amx_up(job->plain, TILE_HALVES);
    size_t keys = (size_t)(job->batch * to.keys);
    to.k = calloc((keys + TILE_ROWS) * (size_t)to.width, sizeof(uint16_t));
    to.v = calloc(keys * (size_t)to.height, sizeof(uint16_t));
    if (job->mask) to.mask = calloc((size_t)to.keys, sizeof(float));
    int status = to.k && to.v && (to.mask || !job->mask) ? 0 : -1;
    if (!status) status = sg_run(amx_sort, &to, job->batch * sg_sorting_tasks(job), 0, threads);
    size_t scratch = (size_t)amx_lay_out(job).total * sizeof(float);
    if (!status) status = sg_run(amx_recall, &to, job->batch * blocks_avx512(job->queries), scratch, threads);
    free(to.k);
    free(to.v);
    free(to.mask);
    return status;
}
