/* Vectors as wide as this machine's registers, and the exponential function of all their lanes. For the C
   files that machine.py compiles. */

#include <stdint.h>

#if defined(__AVX512F__)
enum { WIDTH = 16, REGISTERS = 32 };
#elif defined(__AVX__)
enum { WIDTH = 8, REGISTERS = 16 };
#elif defined(__aarch64__)
enum { WIDTH = 4, REGISTERS = 32 };
#else
enum { WIDTH = 4, REGISTERS = 16 };
#endif

typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float))));
typedef int32_t Integers __attribute__((vector_size(WIDTH * sizeof(float))));

static inline Vector pick(Integers where, Vector yes, Vector no) {
    return (Vector)((where & (Integers)yes) | (~where & (Integers)no));
}

/* a where either is no number: what is not finite must reach the result and not vanish in a maximum. */
static inline Vector larger(Vector a, Vector b) { return pick(b > a, b, a); }

/* exp(x) for x <= 0 within a few units of the last place; exp(-87) below that, NaN for NaN. */
static inline Vector exponential(Vector x) {
    const Vector zero = {0};
    const Vector magic = zero + 12582912.0f; /* 1.5 * 2^23: adding it leaves an integer in the low bits */
    x = larger(x, zero - 87.0f);
    Vector rounded = x * 1.44269504f + magic;
    Integers power = (Integers)rounded - (Integers)magic;
    rounded -= magic;
    Vector r = x - rounded * 0.693359375f + rounded * 2.12194440e-4f;
    Vector p = zero + 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (Vector)((power + 127) << 23);
}
