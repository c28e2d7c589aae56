/* The tile instructions of AMX in C, for processors without them: the shapes and layouts are those of
   Intel's manual, bit for bit. Included by attention_amx.h with -DSG_TILES='"tiles.h"'.

   A product takes denormals for 0 and sums even and odd channels apart, by fused multiply-adds. What
   would be an illegal instruction ends the program. SG_TILES_FAULT plants a fault:
   1 exchanges the operands of a product, 2 is an illegal instruction, 3 never ends, 4 is a refusal. */

#if !defined(SG_TILES_FAULT)
#define SG_TILES_FAULT 0
#endif

#define TILES_TARGET LOW_TARGET static inline

struct tiles {
    struct tile_shapes shapes;
    unsigned char data[8][16][64];
};

static _Thread_local struct tiles tiles;

static inline void tile_check(int good) {
    if (!good) __builtin_trap();
}

static inline void tile_release(void) { memset(&tiles, 0, sizeof tiles); }

static inline void tile_configure(const struct tile_shapes *shapes) {
    tile_release();
    memcpy(&tiles.shapes, shapes, sizeof *shapes);
    _Static_assert(sizeof *shapes == 64, "LDTILECFG reads 64 bytes");
    tile_check(shapes->palette == 1);
    for (int i = 0; i < 16; i++) {
        int is_tile = i < 8 && shapes->rows[i] <= 16 && shapes->bytes[i] <= 64;
        tile_check(is_tile || (!shapes->rows[i] && !shapes->bytes[i]));
    }
#if SG_TILES_FAULT == 2
    __builtin_trap();
#elif SG_TILES_FAULT == 3
    for (volatile int endless = 1; endless;) {}
#endif
}

static inline void tile_zero(int tile) {
    tile_check(tiles.shapes.palette && tiles.shapes.rows[tile]);
    memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
}

static inline void tile_load(int tile, const void *from, int64_t stride) {
    tile_zero(tile); /* rows and bytes beyond the shape become 0 */
    for (int row = 0; row < tiles.shapes.rows[tile]; row++)
        memcpy(tiles.data[tile][row], (const char *)from + row * stride, tiles.shapes.bytes[tile]);
}

static inline void tile_store(int tile, void *to, int64_t stride) {
    tile_check(tiles.shapes.palette && tiles.shapes.rows[tile]);
    for (int row = 0; row < tiles.shapes.rows[tile]; row++)
        memcpy((char *)to + row * stride, tiles.data[tile][row], tiles.shapes.bytes[tile]);
}

static inline float tile_flush(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float tile_half(const unsigned char *row, int place) {
    uint16_t half;
    float x;
    memcpy(&half, row + 2 * place, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return tile_flush(x);
}

TILES_TARGET void tile_dot(int sum, int a, int b) {
    const struct tile_shapes *shapes = &tiles.shapes;
#if SG_TILES_FAULT == 1
    int other = a;
    a = b, b = other;
#endif
    int pairs = shapes->bytes[a] / 4, columns = shapes->bytes[sum] / 4;
    tile_check(shapes->palette && sum != a && sum != b && a != b);
    tile_check(shapes->rows[sum] == shapes->rows[a] && shapes->bytes[sum] == shapes->bytes[b]);
    tile_check(pairs == shapes->rows[b] && pairs * 4 == shapes->bytes[a] && columns * 4 == shapes->bytes[sum]);
    float right[2][16][16], old[16];
    for (int k = 0; k < pairs; k++)
        for (int n = 0; n < columns; n++)
            for (int i = 0; i < 2; i++) right[i][k][n] = tile_half(tiles.data[b][k], 2 * n + i);
    for (int m = 0; m < shapes->rows[sum]; m++) {
        float found[2][16] = {{0}};
        for (int k = 0; k < pairs; k++)
            for (int i = 0; i < 2; i++) {
                float left = tile_half(tiles.data[a][m], 2 * k + i);
                for (int n = 0; n < columns; n++)
                    found[i][n] = tile_flush(__builtin_fmaf(left, right[i][k][n], found[i][n]));
            }
        memcpy(old, tiles.data[sum][m], sizeof old);
        for (int n = 0; n < columns; n++)
            old[n] = tile_flush(tile_flush(old[n]) + tile_flush(found[0][n] + found[1][n]));
        memcpy(tiles.data[sum][m], old, (size_t)columns * 4);
    }
}

static int amx_permitted(void) { return SG_TILES_FAULT != 4; }
