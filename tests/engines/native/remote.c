/* Runs one call of attention.c in a process of its own, for another processor in an emulator: reads
   it from the standard input, as `Remote` of emulation.py writes it, and writes the result. The argument
   is the name of the set that must be chosen there. */

#include "attention.c"

#include <stdio.h>

static void take(void *to, size_t size) {
    if (size && fread(to, size, 1, stdin) != 1) exit(2);
}

/* The next array, or NULL where it is empty. */
static float *array(void) {
    int64_t count;
    take(&count, sizeof count);
    float *found = count ? malloc((size_t)count * sizeof *found) : NULL;
    take(found, (size_t)count * sizeof *found);
    return found;
}

int main(int argc, char **argv) {
    if (argc != 2 || strcmp(sg_name(sg_best()), argv[1])) return 3;
    int64_t n[24];
    float scale;
    take(n, sizeof n);
    take(&scale, sizeof scale);
    int set = (int)n[1], threads = (int)n[2], status;
    float *out = malloc((size_t)n[23] * sizeof *out), *q = array(), *k = array(), *v = array(), *mask = array();
    if (n[0] == 0) {
        struct sg_attention job = {q, k, v, mask, out, n[3], n[4], n[5], n[6], n[7], n[8],
                                   {n[9], n[10], n[11], n[12]}, scale};
        status = sg_attention(&job, set, threads);
    } else {
        struct sg_memory job = {.q = q, .k = k, .v = v, .mask = mask, .out = out, .batch = n[3], .queries = n[4],
                                .plain = n[5], .width = n[6], .channels = n[7], .value_width = n[8],
                                .scale = scale, .rounded = (int32_t)n[15]};
        job.weight = array(), job.bias = array();
        job.centres[0] = array(), job.centres[1] = array();
        for (int p = 0; p < 2; p++) {
            job.parts[p] = (struct sg_frames){.frames = n[9 + 3 * p], .rows = n[10 + 3 * p], .columns = n[11 + 3 * p]};
            for (int i = 0; i < 4; i++) job.parts[p].tables[i] = array();
        }
        status = sg_memory_attention(&job, set, threads);
    }
    if (!status) fwrite(out, sizeof *out, (size_t)n[23], stdout);
    return status;
}
