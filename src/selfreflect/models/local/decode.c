/* One decoding step in float32: products of a few rows with large weights, and attention over a shared prompt.

   Libraries copy the weights into an order of their own before they multiply, which for a few rows costs more
   than the product. Here the rows lie side by side in the lanes of a few vectors, so that a weight is read
   once, where the model keeps it, spread over the lanes and multiplied with all of them. Each lane adds up
   its products in one order, so that a sequence has the same numbers whatever it is batched with.

   Compiled for this machine by compiled.py, called by step.py. */

#include <math.h>
#include <stdint.h>

#if defined(__AVX512F__)
enum { WIDTH = 16, MOST_VECTORS = 4, SUMS = 24 };
#elif defined(__AVX__)
enum { WIDTH = 8, MOST_VECTORS = 3, SUMS = 12 };
#elif defined(__aarch64__)
enum { WIDTH = 4, MOST_VECTORS = 4, SUMS = 24 };
#else
enum { WIDTH = 4, MOST_VECTORS = 3, SUMS = 12 };
#endif
enum { MOST_OUTPUTS = 12, LINE = 16, CHUNK = 64, MOST_SIZE = 256 };

typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float))));

/* sums[o] = the sum over i of weight[o][i] * x[i], for so many outputs that the sums fill the registers. Reads
   ahead what the next block needs: rows are too short for the processor to see where they lead. */
#define DEFINE_BLOCK(VECTORS, OUTPUTS) \
    static void block_##VECTORS(const float *const *weight, const Vector *x, int64_t inner, Vector *result) { \
        Vector sums[OUTPUTS][VECTORS] = {0}; \
        for (int64_t i = 0; i < inner; i++) { \
            if (i % LINE == 0) \
                for (int o = 0; o < OUTPUTS; o++) __builtin_prefetch(weight[o] + i + OUTPUTS * inner); \
            _Pragma("GCC unroll 12") for (int o = 0; o < OUTPUTS; o++) \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++) sums[o][v] += x[i * VECTORS + v] * weight[o][i]; \
        } \
        for (int o = 0; o < OUTPUTS; o++) \
            for (int v = 0; v < VECTORS; v++) result[o * VECTORS + v] = sums[o][v]; \
    }
DEFINE_BLOCK(1, 12)
DEFINE_BLOCK(2, SUMS / 2)
DEFINE_BLOCK(3, SUMS / 3)
DEFINE_BLOCK(4, SUMS / 4)

typedef void Block(const float *const *, const Vector *, int64_t, Vector *);
static Block *const BLOCKS[] = {0, block_1, block_2, block_3, block_4};
static const int OUTPUTS[] = {0, 12, SUMS / 2, SUMS / 3, SUMS / 4};

static float dot(const float *a, const float *b, int64_t size) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; i++) sum += a[i] * b[i];
    return sum;
}

/* out[row] = or += the products of one group of at most MOST_VECTORS * WIDTH rows */
static void group_products(
    const float *x, int64_t rows, int64_t inner, const float *norm, float epsilon,
    int64_t matrices, const float *const *weights, const float *const *biases, const int64_t *outer,
    float *out, int64_t out_row, int add, Vector *lanes, int threads) {
    const int vectors = (int)((rows + WIDTH - 1) / WIDTH), width = vectors * WIDTH, at_once = OUTPUTS[vectors];
    float scale[MOST_VECTORS * WIDTH];
    for (int64_t row = 0; row < rows; row++) {
        const float *from = x + row * inner;
        scale[row] = norm ? 1 / sqrtf(dot(from, from, inner) / inner + epsilon) : 1;
    }
    int64_t blocks = 0;
    for (int64_t m = 0; m < matrices; m++) blocks += (outer[m] + at_once - 1) / at_once;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for
        for (int64_t i = 0; i < inner; i++) {
            float *to = (float *)lanes + i * width;
            for (int64_t row = 0; row < rows; row++)
                to[row] = x[row * inner + i] * scale[row] * (norm ? norm[i] : 1);
            for (int64_t row = rows; row < width; row++) to[row] = 0;
        }
#pragma omp for schedule(dynamic, 4)
        for (int64_t b = 0; b < blocks; b++) {
            int64_t m = 0, first = b * at_once, column = 0;
            for (; first >= outer[m]; m++) {
                first -= (outer[m] + at_once - 1) / at_once * at_once;
                column += outer[m];
            }
            const int count = outer[m] - first < at_once ? (int)(outer[m] - first) : at_once;
            const float *weight[MOST_OUTPUTS];
            for (int o = 0; o < at_once; o++)
                weight[o] = weights[m] + (first + (o < count ? o : count - 1)) * inner;
            Vector result[MOST_OUTPUTS * MOST_VECTORS];
            BLOCKS[vectors](weight, lanes, inner, result);
            for (int64_t row = 0; row < rows; row++) {
                float *to = out + row * out_row + column + first;
                for (int o = 0; o < count; o++) {
                    float value = ((float *)result)[o * width + row];
                    if (biases[m]) value += biases[m][first + o];
                    to[o] = add ? to[o] + value : value;
                }
            }
        }
    }
}

/* Multiplies x (rows, inner) with the transposes of several matrices (outer, inner) and lays the products side
   by side in `out` (rows, sum of outer), or adds them to it. With `norm`, x is normed first, by its root mean
   square. `lanes` is room for inner * products_lanes() numbers. */
void products(
    const float *x, int64_t rows, int64_t inner, const float *norm, float epsilon,
    int64_t matrices, const float *const *weights, const float *const *biases, const int64_t *outer,
    float *out, int add, float *lanes, int threads) {
    int64_t out_row = 0;
    for (int64_t m = 0; m < matrices; m++) out_row += outer[m];
    const int64_t most = MOST_VECTORS * WIDTH;
    for (int64_t first = 0; first < rows; first += most)
        group_products(x + first * inner, rows - first < most ? rows - first : most, inner, norm, epsilon,
                       matrices, weights, biases, outer, out + first * out_row, out_row, add,
                       (Vector *)lanes, threads);
}

int products_lanes(void) { return MOST_VECTORS * WIDTH; }
int attention_most(void) { return MOST_SIZE; }

static void turn(float *to, const float *from, const float *cosine, const float *sine, int64_t size, float scale) {
    const int64_t half = size / 2;
    for (int64_t d = 0; d < half; d++) {
        to[d] = scale * (from[d] * cosine[d] - from[half + d] * sine[d]);
        to[half + d] = scale * (from[half + d] * cosine[half + d] + from[d] * sine[half + d]);
    }
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
                const float *value[CHUNK];
                float weight[CHUNK], higher = top;
                for (int j = 0; j < here; j++) {
                    const int64_t at = first + j, mine = at - before;
                    const int64_t place = mine < 0 ? at * size : (slot[mine] * key_heads + head) * size;
                    value[j] = (mine < 0 ? first_value : values) + place;
                    weight[j] = dot(query, (mine < 0 ? first_key : keys) + place, size);
                    higher = weight[j] > higher ? weight[j] : higher;
                }
                const float shrink = expf(top - higher);
                top = higher;
                total *= shrink;
                for (int64_t d = 0; d < size; d++) sums[d] *= shrink;
                for (int j = 0; j < here; j++) {
                    weight[j] = expf(weight[j] - top);
                    total += weight[j];
                    for (int64_t d = 0; d < size; d++) sums[d] += weight[j] * value[j][d];
                }
            }
            float *to = out + (row * heads + head * group + g) * size;
            for (int64_t d = 0; d < size; d++) to[d] = sums[d] / total;
        }
    }
}
