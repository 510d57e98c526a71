/* Attention over prefix trees in float32: softmax(scale * Q K^T) V for tiles of queries that share keys.

   A tile holds the queries of neighbouring tree nodes. The queries of all heads that share a key lie side by
   side in the lanes of a few vectors, so a number of a key or value is read once, spread over the lanes and
   multiplied with all of them: both products of attention are the same loop over registers, and the softmax
   never leaves its lane. Keys come in chunks whose weights stay in the nearest cache. Each lane carries its
   maximum and its sum from chunk to chunk; where the maximum grows, earlier sums are scaled down.

   Compiled for this machine by attention.py. The arguments from `tiles` on are those of Tiles there. */

#include "../../models/local/vectors.h"

/* AT_ONCE * VECTORS sums, VECTORS operands and one spread number must fit the registers. */
enum { AT_ONCE = REGISTERS / 4, VECTORS = 3, LANES = WIDTH * VECTORS, CHUNK = 64, MOST = 256 };

int tree_attention_lanes(void) { return LANES; }
int tree_attention_most(void) { return MOST; }

typedef struct {
    Vector query[MOST][VECTORS];   /* scaled; lane i is the i-th query of the tile */
    Vector weight[CHUNK][VECTORS]; /* logits, then weights, of the keys at hand */
    Vector out[MOST][VECTORS];
    Vector top[VECTORS], sum[VECTORS];
    const float *key[CHUNK], *value[CHUNK];
    uint64_t seen[CHUNK]; /* bit i: lane i may look at this key */
} Tile;

/* weight[j] = sum over d of key[j][d] * query[d] */
static void multiply_keys(Tile *t, int count, int size) {
    for (int first = 0; first < count; first += AT_ONCE) {
        const float *key[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) key[i] = t->key[first + i < count ? first + i : count - 1];
        Vector sums[AT_ONCE][VECTORS] = {0};
        for (int d = 0; d < size; d++)
            for (int i = 0; i < AT_ONCE; i++)
                for (int v = 0; v < VECTORS; v++) sums[i][v] += t->query[d][v] * key[i][d];
        for (int i = 0; i < AT_ONCE && first + i < count; i++)
            for (int v = 0; v < VECTORS; v++) t->weight[first + i][v] = sums[i][v];
    }
}

/* out[d] += sum over j of value[j][d] * weight[j] */
static void multiply_values(Tile *t, int count, int size) {
    int d = 0;
    for (; d + AT_ONCE <= size; d += AT_ONCE) {
        Vector sums[AT_ONCE][VECTORS];
        for (int i = 0; i < AT_ONCE; i++)
            for (int v = 0; v < VECTORS; v++) sums[i][v] = t->out[d + i][v];
        for (int j = 0; j < count; j++)
            for (int i = 0; i < AT_ONCE; i++)
                for (int v = 0; v < VECTORS; v++) sums[i][v] += t->weight[j][v] * t->value[j][d + i];
        for (int i = 0; i < AT_ONCE; i++)
            for (int v = 0; v < VECTORS; v++) t->out[d + i][v] = sums[i][v];
    }
    for (; d < size; d++)
        for (int j = 0; j < count; j++)
            for (int v = 0; v < VECTORS; v++) t->out[d][v] += t->weight[j][v] * t->value[j][d];
}

/* Takes `count` more keys into each lane's softmax. With top' = max(top, logits): out and sum shrink by
   exp(top - top'), then sum += exp(logit - top') and out += exp(logit - top') * value. At the very end
   out / sum is the result. */
static void chunk(Tile *t, int count, int size, int masked) {
    const Vector zero = {0}, never = zero - 1e30f;
    /* One bit for each lane, 16 lanes to a number: a vector's numbers have 32 bits, and `seen` has 64. */
    Integers lane[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        for (int i = 0; i < WIDTH; i++) lane[v][i] = 1 << (v * WIDTH + i) % 16;
    multiply_keys(t, count, size);
    Vector top[VECTORS], sum[VECTORS];
    for (int v = 0; v < VECTORS; v++) top[v] = t->top[v];
    for (int j = 0; j < count; j++)
        for (int v = 0; v < VECTORS; v++) {
            if (masked) {
                Integers bits = (Integers){0} + (int32_t)((t->seen[j] >> (v * WIDTH / 16 * 16)) & 0xffff);
                t->weight[j][v] = pick((bits & lane[v]) != 0, t->weight[j][v], never);
            }
            top[v] = larger(top[v], t->weight[j][v]);
        }
    for (int v = 0; v < VECTORS; v++) {
        Vector shrink = exponential(t->top[v] - top[v]);
        sum[v] = t->sum[v] * shrink;
        t->top[v] = top[v];
        for (int d = 0; d < size; d++) t->out[d][v] *= shrink;
    }
    for (int j = 0; j < count; j++)
        for (int v = 0; v < VECTORS; v++) {
            Vector logit = t->weight[j][v];
            Vector weight = exponential(logit - top[v]);
            if (masked) weight = pick(logit == never, zero, weight);
            t->weight[j][v] = weight;
            sum[v] += weight;
        }
    for (int v = 0; v < VECTORS; v++) t->sum[v] = sum[v];
    multiply_values(t, count, size);
}

void tree_attention(
    const float *query, float *out, const float *key, const float *value,
    const float *const *prefix_key, const float *const *prefix_value, const int64_t *prefix_rows,
    int64_t tiles, int64_t nodes, int64_t columns,
    const int64_t *context, const int64_t *before, const int64_t *rows, const int64_t *keys,
    const int64_t *key_count, const uint64_t *seen,
    int64_t key_heads, int64_t group, int64_t size, float scale, int threads) {
    const int64_t query_row = key_heads * group * size, key_row = key_heads * size;
#pragma omp parallel for schedule(dynamic, 2) num_threads(threads)
    for (int64_t unit = 0; unit < tiles * key_heads; unit++) {
        const int64_t tile = unit / key_heads, head = unit % key_heads;
        Tile t;
        float *lanes = (float *)t.query, *sums = (float *)t.out;
        const float *from[LANES] = {0};
        for (int64_t node = 0; node < nodes; node++) {
            const int64_t row = rows[tile * nodes + node];
            if (row < 0) continue;
            const float *heads = query + row * query_row + head * group * size;
            for (int64_t g = 0; g < group; g++) from[node * group + g] = heads + g * size;
        }
        for (int lane = 0; lane < LANES; lane++)
            for (int d = 0; d < size; d++) lanes[d * LANES + lane] = from[lane] ? scale * from[lane][d] : 0;
        for (int v = 0; v < VECTORS; v++) {
            t.top[v] = (Vector){0} - 1e30f;
            t.sum[v] = (Vector){0};
            for (int d = 0; d < size; d++) t.out[d][v] = (Vector){0};
        }
        const int64_t of = context[tile];
        for (int64_t first = 0; first < before[tile]; first += CHUNK) {
            int count = before[tile] - first < CHUNK ? (int)(before[tile] - first) : CHUNK;
            for (int j = 0; j < count; j++) {
                const int64_t at = (head * prefix_rows[of] + first + j) * size;
                t.key[j] = prefix_key[of] + at;
                t.value[j] = prefix_value[of] + at;
            }
            chunk(&t, count, (int)size, 0);
        }
        for (int64_t first = 0; first < key_count[tile]; first += CHUNK) {
            int count = key_count[tile] - first < CHUNK ? (int)(key_count[tile] - first) : CHUNK;
            for (int j = 0; j < count; j++) {
                const int64_t column = tile * columns + first + j, at = keys[column] * key_row + head * size;
                t.key[j] = key + at;
                t.value[j] = value + at;
                t.seen[j] = seen[column];
            }
            chunk(&t, count, (int)size, 1);
        }
        const float *sum = (const float *)t.sum;
        for (int lane = 0; lane < LANES; lane++) {
            if (!from[lane]) continue;
            float *to = out + (from[lane] - query);
            for (int d = 0; d < size; d++) to[d] = sums[d * LANES + lane] / sum[lane];
        }
    }
}
