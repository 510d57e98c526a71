/* One decoding step in float32: products of few rows with large weights, and attention over a shared prompt.

   Libraries copy the weights into an order of their own before they multiply, which for a few rows costs more
   than the product. Here a panel of neighbouring outputs lies in the lanes of two vectors. A part of its
   weights is expanded into the nearest cache, from the form they are kept in, and then multiplied with all
   rows, whose numbers are read one by one and spread over the lanes. Each output adds up its products in one
   order, so that a sequence has the same numbers whatever it is batched with and whatever form weights have.

   Compiled for this machine by machine.py, called by step.py. */

#include "vectors.h"

#include <math.h>
#include <string.h>

/* TILE rows of two sums each, two vectors of weights and one spread number must fit the registers. */
enum { TILE = REGISTERS * 3 / 8 };
/* Which lanes of two vectors make the lower and the higher half of both, interleaved. */
#if defined(__AVX512F__)
#define LOW {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
#define HIGH {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
#elif defined(__AVX__)
#define LOW {0, 8, 1, 9, 2, 10, 3, 11}
#define HIGH {4, 12, 5, 13, 6, 14, 7, 15}
#else
#define LOW {0, 4, 1, 5}
#define HIGH {2, 6, 3, 7}
#endif
enum { PANEL = 2 * WIDTH, DEPTH = 64, BLOCK = 32, MOST_ROWS = 8 * TILE, CHUNK = 64, MOST_SIZE = 256 };

typedef float Loose __attribute__((vector_size(WIDTH * sizeof(float)), aligned(sizeof(float))));
typedef uint32_t Words __attribute__((vector_size(WIDTH * sizeof(float))));

/* The forms in which a matrix (outer, inner) is kept. FLOAT32 is the model's own, row after row. The others
   lie in panels of PANEL outputs, the last one filled up. A word holds weights of one output and neighbouring
   inputs: the upper halves of two, or codes of 8 or 4 bits; the words of all outputs lie side by side. Codes
   stand behind the scales and the offsets of their BLOCK of inputs: weight = scale * code + offset. */
enum { FLOAT32, BFLOAT16, CODES8, CODES4 };

typedef struct {
    const void *weights;
    const float *bias; /* or 0 */
    int64_t outer, form;
} Matrix;

/* to[i] = lane i of each of WIDTH rows. In each round pairs of rows are interleaved. */
static inline void transpose(const float *const *rows, int64_t first, Vector *to, int64_t step) {
    const Integers low = LOW, high = HIGH;
    Vector a[WIDTH], b[WIDTH];
    _Pragma("GCC unroll 16") for (int j = 0; j < WIDTH; j++) a[j] = *(const Loose *)(rows[j] + first);
    _Pragma("GCC unroll 4") for (int round = 1; round < WIDTH; round *= 2) {
        _Pragma("GCC unroll 8") for (int j = 0; j < WIDTH / 2; j++) {
            b[2 * j] = __builtin_shuffle(a[j], a[j + WIDTH / 2], low);
            b[2 * j + 1] = __builtin_shuffle(a[j], a[j + WIDTH / 2], high);
        }
        _Pragma("GCC unroll 16") for (int j = 0; j < WIDTH; j++) a[j] = b[j];
    }
    _Pragma("GCC unroll 16") for (int j = 0; j < WIDTH; j++) to[j * step] = a[j];
}

/* Reads ahead what the next part needs: rows are too short for the processor to see where they lead. */
static void expand_rows(
    const Matrix *matrix, int64_t panel, int64_t inner, int64_t first, int64_t depth, Vector *to) {
    const float *rows[PANEL];
    const int64_t ahead = first + depth < inner ? depth : PANEL * inner - first;
    for (int o = 0; o < PANEL; o++) {
        const int64_t output = panel * PANEL + o;
        const int64_t row = output < matrix->outer ? output : matrix->outer - 1;
        rows[o] = (const float *)matrix->weights + row * inner + first;
    }
    int64_t i = 0;
    for (; i + WIDTH <= depth; i += WIDTH) {
        for (int o = 0; o < PANEL; o++) __builtin_prefetch(rows[o] + ahead + i);
        for (int v = 0; v < 2; v++) transpose(rows + v * WIDTH, i, to + 2 * i + v, 2);
    }
    for (; i < depth; i++)
        for (int o = 0; o < PANEL; o++) ((float *)(to + 2 * i))[o] = rows[o][i];
}

static inline int64_t block_vectors(int bits) { return 4 + 2 * BLOCK * bits / 32; }

static inline __attribute__((always_inline)) void expand_codes(
    const Vector *block, const int bits, int64_t depth, Vector *to) {
    const int per_word = 32 / bits;
    const int64_t ahead = DEPTH / BLOCK * block_vectors(bits);
    for (; depth > 0; depth -= BLOCK) {
        const Vector scale[2] = {block[0], block[1]}, offset[2] = {block[2], block[3]};
        const Words *words = (const Words *)(block + 4);
        for (int j = 0; j < 4; j++) __builtin_prefetch(block + ahead + j);
        for (int i = 0; i < BLOCK / per_word; i++, words += 2) {
            for (int v = 0; v < 2; v++) __builtin_prefetch((const Vector *)words + v + ahead);
            _Pragma("GCC unroll 8") for (int k = 0; k < per_word; k++)
                for (int v = 0; v < 2; v++) {
                    const Integers code = (Integers)(words[v] >> (k * bits) & ((1u << bits) - 1));
                    *to++ = __builtin_convertvector(code, Vector) * scale[v] + offset[v];
                }
        }
        block += block_vectors(bits);
    }
}

/* to[i * PANEL + o] = the weight of input first + i and output o of a panel. DEPTH divides `first`. */
static void expand(
    const Matrix *matrix, int64_t panel, int64_t inner, int64_t first, int64_t depth, Vector *to) {
    const int64_t inputs = panel * inner + first;
    const Vector *packed = matrix->weights;
    if (matrix->form == FLOAT32) {
        expand_rows(matrix, panel, inner, first, depth, to);
    } else if (matrix->form == BFLOAT16) {
        const Words *words = (const Words *)(packed + inputs);
        for (int64_t i = 0; i < depth; i += 2, words += 2)
            for (int v = 0; v < 2; v++) {
                __builtin_prefetch(words + v + DEPTH);
                to[2 * i + v] = (Vector)(words[v] & 0xffff0000u);
                to[2 * i + 2 + v] = (Vector)(words[v] << 16);
            }
    } else if (matrix->form == CODES8) {
        expand_codes(packed + inputs / BLOCK * block_vectors(8), 8, depth, to);
    } else {
        expand_codes(packed + inputs / BLOCK * block_vectors(4), 4, depth, to);
    }
}

/* sums[r] += the products of row r of a tile with the two vectors of weights of each input */
#define DEFINE_TILE(ROWS) \
    static void tile_##ROWS(const float *x, const Vector *weight, int64_t depth, Vector *sums) { \
        Vector sum[ROWS][2]; \
        _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++) \
            for (int v = 0; v < 2; v++) sum[r][v] = sums[2 * r + v]; \
        for (int64_t i = 0; i < depth; i++) \
            _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++) { \
                sum[r][0] += x[i * ROWS + r] * weight[2 * i]; \
                sum[r][1] += x[i * ROWS + r] * weight[2 * i + 1]; \
            } \
        _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++) \
            for (int v = 0; v < 2; v++) sums[2 * r + v] = sum[r][v]; \
    }
DEFINE_TILE(1)
DEFINE_TILE(2)
DEFINE_TILE(3)
DEFINE_TILE(4)
DEFINE_TILE(5)
DEFINE_TILE(6)
DEFINE_TILE(7)
DEFINE_TILE(8)
DEFINE_TILE(9)
DEFINE_TILE(10)
DEFINE_TILE(11)
DEFINE_TILE(12)

typedef void Tile(const float *, const Vector *, int64_t, Vector *);
static Tile *const TILES[] = {0, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6,
                              tile_7, tile_8, tile_9, tile_10, tile_11, tile_12};

static float dot(const float *a, const float *b, int64_t size) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; i++) sum += a[i] * b[i];
    return sum;
}

/* out[row] = or += the products of at most MOST_ROWS rows */
static void group_products(
    const float *x, int64_t rows, int64_t inner, const float *norm, float epsilon,
    const Matrix *matrices, int64_t panels, float *out, int64_t out_row, int add, float *lanes, int threads) {
    const int64_t tiles = (rows + TILE - 1) / TILE;
    int64_t starts[MOST_ROWS / TILE + 1];
    for (int64_t t = 0; t <= tiles; t++) starts[t] = t * rows / tiles;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for
        for (int64_t row = 0; row < rows; row++) {
            int64_t t = 0;
            while (starts[t + 1] <= row) t++;
            const int64_t size = starts[t + 1] - starts[t];
            const float *from = x + row * inner;
            float *to = lanes + starts[t] * inner + row - starts[t];
            const float scale = norm ? 1 / sqrtf(dot(from, from, inner) / inner + epsilon) : 1;
            for (int64_t i = 0; i < inner; i++) to[i * size] = from[i] * scale * (norm ? norm[i] : 1);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t p = 0; p < panels; p++) {
            const Matrix *matrix = matrices;
            int64_t panel = p, column = 0;
            for (; panel * PANEL >= matrix->outer; matrix++) {
                panel -= (matrix->outer + PANEL - 1) / PANEL;
                column += matrix->outer;
            }
            Vector weight[DEPTH * 2], sums[MOST_ROWS * 2];
            memset(sums, 0, 2 * rows * sizeof(Vector));
            for (int64_t first = 0; first < inner; first += DEPTH) {
                const int64_t depth = inner - first < DEPTH ? inner - first : DEPTH;
                expand(matrix, panel, inner, first, depth, weight);
                for (int64_t t = 0; t < tiles; t++) {
                    const int64_t size = starts[t + 1] - starts[t];
                    const float *tile = lanes + starts[t] * inner + first * size;
                    TILES[size](tile, weight, depth, sums + 2 * starts[t]);
                }
            }
            const int64_t begin = panel * PANEL, left = matrix->outer - begin;
            const int64_t count = left < PANEL ? left : PANEL;
            for (int64_t row = 0; row < rows; row++) {
                float *to = out + row * out_row + column + begin;
                for (int64_t o = 0; o < count; o++) {
                    float value = ((float *)(sums + 2 * row))[o];
                    if (matrix->bias) value += matrix->bias[begin + o];
                    to[o] = add ? to[o] + value : value;
                }
            }
        }
    }
}

/* Multiplies x (rows, inner) with the transposes of several matrices (outer, inner) and lays the products
   side by side in `out` (rows, sum of outer), or adds them to it. With `norm`, x is normed first, by its root
   mean square. `lanes` is room for as many numbers as x has. */
void products(
    const float *x, int64_t rows, int64_t inner, const float *norm, float epsilon,
    const Matrix *matrices, int64_t count, float *out, int add, float *lanes, int threads) {
    int64_t out_row = 0, panels = 0;
    for (int64_t m = 0; m < count; m++) {
        out_row += matrices[m].outer;
        panels += (matrices[m].outer + PANEL - 1) / PANEL;
    }
    for (int64_t first = 0; first < rows; first += MOST_ROWS) {
        const int64_t here = rows - first < MOST_ROWS ? rows - first : MOST_ROWS;
        group_products(x + first * inner, here, inner, norm, epsilon, matrices, panels, out + first * out_row,
                       out_row, add, lanes, threads);
    }
}

/* Bytes of a matrix in a form other than FLOAT32; 0 for a size that does not fit it. */
int64_t packed_size(int64_t form, int64_t outer, int64_t inner) {
    const int64_t inputs = (outer + PANEL - 1) / PANEL * inner;
    const int64_t size = sizeof(Vector);
    if (form == BFLOAT16) return inner % 2 ? 0 : inputs * size;
    return inner % BLOCK ? 0 : inputs / BLOCK * block_vectors(form == CODES8 ? 8 : 4) * size;
}

/* The nearest number with as many bits as a half-precision one has. */
static float eleven_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x1000) & ~(uint32_t)0x1fff;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Writes scale, offset and codes of a block as llama.cpp chooses them: scales have half precision; the codes
   of Q4_1 go from 0 at the smallest weight, the offset, to 15 at the largest; those of Q8_0, here 127 higher,
   reach 127 or -127 at the weight farthest from zero. Weights made in another way do not come back. */
static void encode(const float *weight, int bits, float *scale, float *offset, uint32_t *words) {
    float least = weight[0], most = weight[0];
#pragma omp simd reduction(min : least) reduction(max : most)
    for (int i = 0; i < BLOCK; i++) {
        least = weight[i] < least ? weight[i] : least;
        most = weight[i] > most ? weight[i] : most;
    }
    const float step = bits == 4 ? (most - least) / 15 : (most > -least ? most : -least) / 127;
    *scale = eleven_bits(step);
    *offset = bits == 4 ? least : -127 * *scale;
    const float inverse = *scale > 0 ? 1 / *scale : 0, first = *offset;
    uint32_t code[BLOCK];
#pragma omp simd
    for (int i = 0; i < BLOCK; i++) {
        const float nearest = (weight[i] - first) * inverse + 0.5f;
        code[i] = nearest >= 0 && nearest < 256 ? (uint32_t)(int32_t)nearest : 0;
    }
    const int per_word = 32 / bits;
    for (int i = 0; i < BLOCK; i++)
        words[i / per_word * PANEL] |= (code[i] & ((1u << bits) - 1)) << i % per_word * bits;
}

static void pack_row(const float *row, int64_t form, int64_t inner, uint32_t *panel, int64_t output) {
    if (form == BFLOAT16) {
        for (int64_t i = 0; i < inner; i += 2) {
            uint32_t bits[2];
            memcpy(bits, row + i, sizeof bits);
            panel[i / 2 * PANEL + output] = (bits[0] & 0xffff0000u) | bits[1] >> 16;
        }
        return;
    }
    const int bits = form == CODES8 ? 8 : 4;
    for (int64_t first = 0; first < inner; first += BLOCK, panel += block_vectors(bits) * WIDTH) {
        float *scale = (float *)panel + output;
        encode(row + first, bits, scale, scale + PANEL, panel + 2 * PANEL + output);
    }
}

/* Writes a matrix in another form into memory that is all zeros, and returns whether that expands to the same
   weights. Only the sign of a zero may differ, which no sum shows. */
int pack(const float *weights, int64_t outer, int64_t inner, int64_t form, void *packed, int threads) {
    const Matrix own = {weights, 0, outer, FLOAT32}, other = {packed, 0, outer, form};
    const int64_t panels = (outer + PANEL - 1) / PANEL, words = packed_size(form, PANEL, inner) / 4;
    int same = 1;
#pragma omp parallel for num_threads(threads) reduction(& : same)
    for (int64_t panel = 0; panel < panels; panel++) {
        if (!same) continue;
        for (int64_t o = 0; o < PANEL; o++) {
            const int64_t output = panel * PANEL + o, row = output < outer ? output : outer - 1;
            pack_row(weights + row * inner, form, inner, (uint32_t *)packed + panel * words, o);
        }
        for (int64_t first = 0; first < inner; first += DEPTH) {
            const int64_t depth = inner - first < DEPTH ? inner - first : DEPTH;
            Vector weight[DEPTH * 2], again[DEPTH * 2];
            expand(&own, panel, inner, first, depth, weight);
            expand(&other, panel, inner, first, depth, again);
            const float *one = (float *)weight, *two = (float *)again;
            for (int64_t i = 0; i < depth * PANEL; i++) same &= one[i] == two[i];
        }
    }
    return same;
}

int attention_most(void) { return MOST_SIZE; }

static void turn(
    float *to, const float *from, const float *cosine, const float *sine, int64_t size, float scale) {
    const int64_t half = size / 2;
    for (int64_t d = 0; d < half; d++) {
        to[d] = scale * (from[d] * cosine[d] - from[half + d] * sine[d]);
        to[half + d] = scale * (from[half + d] * cosine[half + d] + from[d] * sine[half + d]);
    }
}

/* Lane j = the sum over d of query[d] * key[j][d], for WIDTH keys. Pairs of vectors are interleaved and
   added, until one is left. */
static inline Vector dots(const float *query, const float *const *key, int64_t size) {
    const Integers low = LOW, high = HIGH;
    Vector part[WIDTH] = {0}, rest = {0};
    int64_t d = 0;
    for (; d + WIDTH <= size; d += WIDTH)
        _Pragma("GCC unroll 16") for (int j = 0; j < WIDTH; j++)
            part[j] += *(const Loose *)(query + d) * *(const Loose *)(key[j] + d);
    for (; d < size; d++)
        for (int j = 0; j < WIDTH; j++) rest[j] += query[d] * key[j][d];
    _Pragma("GCC unroll 4") for (int left = WIDTH / 2; left > 0; left /= 2)
        _Pragma("GCC unroll 8") for (int j = 0; j < left; j++)
            part[j] = __builtin_shuffle(part[j], part[j + left], low) +
                      __builtin_shuffle(part[j], part[j + left], high);
    return part[0] + rest;
}

/* sums[d] += the sum over j of weight[j] * value[j][d] */
static void add_values(const float *weight, const float *const *value, int count, int64_t size, float *sums) {
    int64_t d = 0;
    for (; d + 4 * WIDTH <= size; d += 4 * WIDTH) {
        Vector sum[4];
        for (int v = 0; v < 4; v++) sum[v] = *(const Loose *)(sums + d + v * WIDTH);
        for (int j = 0; j < count; j++)
            for (int v = 0; v < 4; v++) sum[v] += weight[j] * *(const Loose *)(value[j] + d + v * WIDTH);
        for (int v = 0; v < 4; v++) *(Loose *)(sums + d + v * WIDTH) = sum[v];
    }
    for (int j = 0; j < count; j++)
        for (int64_t rest = d; rest < size; rest++) sums[rest] += weight[j] * value[j][rest];
}

/* Takes `count` more keys, of CHUNK pointers, into a softmax: its maximum, sum and weighted values. */
static void take_keys(
    const float *query, const float *const *key, const float *const *value, int count, int64_t size,
    float *top, float *total, float *sums) {
    Vector weight[CHUNK / WIDTH], lanes = (Vector){0} - INFINITY, added = {0};
    const int vectors = (count + WIDTH - 1) / WIDTH;
    for (int v = 0; v < vectors; v++) weight[v] = dots(query, key + v * WIDTH, size);
    for (int j = count; j < vectors * WIDTH; j++) ((float *)weight)[j] = -INFINITY;
    for (int v = 0; v < vectors; v++) lanes = larger(lanes, weight[v]);
    float higher = *top;
    for (int j = 0; j < WIDTH; j++) higher = lanes[j] > higher ? lanes[j] : higher;
    const float shrink = expf(*top - higher);
    for (int64_t d = 0; d < size; d++) sums[d] *= shrink;
    for (int v = 0; v < vectors; v++) {
        weight[v] = exponential(weight[v] - higher);
        added += weight[v]; /* exp(-87) of the lanes that are filled up vanishes beside the maximum's 1 */
    }
    *total *= shrink;
    for (int j = 0; j < WIDTH; j++) *total += added[j];
    *top = higher;
    add_values((const float *)weight, value, count, size, sums);
}

/* Attention of one new token per sequence, over its prompt and then its own tokens, this one included.

   `states` (rows, heads + 2 * key_heads, size) are queries, keys and values of the new tokens, before rotary
   embedding. Sequence r sees prompt_rows[r] keys of prompt_key[r], where each head's keys lie together,
   prompt_head numbers after those of the head before, and then those in `count[r]` slots, listed in
   slots[r * columns]. keys and values are (slots, key_heads, size); the last slot receives the new token. */
void attend(
    const float *states, float *out, const float *cosine, const float *sine,
    const float *const *prompt_key, const float *const *prompt_value, const int64_t *prompt_rows,
    float *keys, float *values, const int64_t *slots, const int64_t *count, int64_t columns, int64_t rows,
    int64_t key_heads, int64_t group, int64_t size, int64_t prompt_head, float scale, int threads) {
    const int64_t heads = key_heads * group;
#pragma omp parallel for schedule(dynamic, 2) num_threads(threads)
    for (int64_t unit = 0; unit < rows * key_heads; unit++) {
        const int64_t row = unit / key_heads, head = unit % key_heads;
        const float *own = states + row * (heads + 2 * key_heads) * size;
        const float *row_cosine = cosine + row * size, *row_sine = sine + row * size;
        const int64_t *slot = slots + row * columns;
        const int64_t newest = (slot[count[row] - 1] * key_heads + head) * size;
        turn(keys + newest, own + (heads + head) * size, row_cosine, row_sine, size, 1);
        for (int64_t d = 0; d < size; d++) values[newest + d] = own[(heads + key_heads + head) * size + d];
        const int64_t before = prompt_rows[row], all = before + count[row];
        const float *first_key = prompt_key[row] + head * prompt_head;
        const float *first_value = prompt_value[row] + head * prompt_head;
        for (int64_t g = 0; g < group; g++) {
            float query[MOST_SIZE], sums[MOST_SIZE] = {0}, top = -INFINITY, total = 0;
            turn(query, own + (head * group + g) * size, row_cosine, row_sine, size, scale);
            for (int64_t first = 0; first < all; first += CHUNK) {
                const int here = all - first < CHUNK ? (int)(all - first) : CHUNK;
                const float *key[CHUNK], *value[CHUNK];
                for (int j = 0; j < CHUNK; j++) {
                    const int64_t at = first + (j < here ? j : here - 1), mine = at - before;
                    const int64_t place = mine < 0 ? at * size : (slot[mine] * key_heads + head) * size;
                    key[j] = (mine < 0 ? first_key : keys) + place;
                    value[j] = (mine < 0 ? first_value : values) + place;
                }
                take_keys(query, key, value, here, size, &top, &total, sums);
            }
            float *to = out + (row * heads + head * group + g) * size;
            for (int64_t d = 0; d < size; d++) to[d] = sums[d] / total;
        }
    }
}
