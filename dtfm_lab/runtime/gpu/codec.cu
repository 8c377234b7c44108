#ifndef KERNEL
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__
__device__ float divided(float a, float b)
{ float c; asm("div.rn.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
__device__ float times(float a, float b)
{ float c; asm("mul.rn.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
__device__ float narrowed(double a) { float c; asm("cvt.rn.f32.f64 %0, %1;" : "=f"(c) : "d"(a)); return c; }
__device__ double widened(float a) { double c; asm("cvt.f64.f32 %0, %1;" : "=d"(c) : "f"(a)); return c; }
__device__ unsigned short to_half(float a)
{ unsigned short c; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(c) : "f"(a)); return c; }
__device__ float from_half(unsigned short a) { float c; asm("cvt.f32.f16 %0, %1;" : "=f"(c) : "h"(a)); return c; }
#endif

#ifdef DOUBLE
typedef double number;
typedef unsigned long long bits;
#define BITS_OF(x) ((bits)__double_as_longlong(x))
#define FROM_BITS(x) __longlong_as_double((long long)(x))
#define DIVIDED(a, b) ((a) / (b))
#define TIMES(a, b) ((a) * (b))
#define TO_FLOAT(x) narrowed(x)
#define FROM_FLOAT(x) widened(x)
#define NEAREST_EVEN(x) __double2int_rn(x)
typedef double2 vector;
#define WIDTH 2
#define SPREAD(v, to) ((to)[0] = v.x, (to)[1] = v.y)
#define GATHERED(of) make_double2((of)[0], (of)[1])
#else
typedef float number;
typedef unsigned int bits;
#define BITS_OF(x) __float_as_uint(x)
#define FROM_BITS(x) __uint_as_float(x)
#define DIVIDED(a, b) divided(a, b)
#define TIMES(a, b) times(a, b)
#define TO_FLOAT(x) (x)
#define FROM_FLOAT(x) (x)
#define NEAREST_EVEN(x) __float2int_rn(x)
typedef float4 vector;
#define WIDTH 4
#define SPREAD(v, to) ((to)[0] = v.x, (to)[1] = v.y, (to)[2] = v.z, (to)[3] = v.w)
#define GATHERED(of) make_float4((of)[0], (of)[1], (of)[2], (of)[3])
#endif

#define BLOCK 256
#define CODED (4 + BLOCK)
#define LANES 32
#define FOUR 4
#define HALVES 2
#define HALF (BLOCK / HALVES)
#define LARGEST_STEP 127
#define LARGEST_HALF 65504.0f

/* A warp codes a block: lane l takes four neighbours of its first half and four of its second, so that 16 bytes of
   single precision come in one load. Where memory begins elsewhere than on such a border (a message may begin
   anywhere), and at the end, numbers and bytes go one by one. */
#define FOR_BLOCKS_OF_A_WARP(n) /* with block, and lane of the thread that runs it */ \
    const int lane = threadIdx.x % LANES, warps = blockDim.x / LANES; \
    const long long stride = (long long)gridDim.x * warps; \
    for (long long block = (long long)blockIdx.x * warps + threadIdx.x / LANES; block * BLOCK < n; block += stride)

typedef struct { number x[FOUR]; } four;
typedef struct { unsigned short x[FOUR]; } halves;

DEVICE int begins_at(const void *memory, int border) { return (unsigned long long)memory % border == 0; }

DEVICE four four_at(const number *numbers, long long at, long long n, int wide)
{
    four taken;
    if (wide && at + FOUR <= n)
        for (int j = 0; j < FOUR; j += WIDTH) {
            const vector v = *(const vector *)(numbers + at + j);
            SPREAD(v, taken.x + j);
        }
    else
        for (int j = 0; j < FOUR; ++j)
            taken.x[j] = at + j < n ? numbers[at + j] : (number)0;
    return taken;
}

DEVICE void put_four(number *numbers, four given, long long at, long long n, int wide)
{
    if (wide && at + FOUR <= n)
        for (int j = 0; j < FOUR; j += WIDTH)
            *(vector *)(numbers + at + j) = GATHERED(given.x + j);
    else
        for (int j = 0; j < FOUR && at + j < n; ++j)
            numbers[at + j] = given.x[j];
}

KERNEL encode_int8(const number *numbers, unsigned char *coded, long long n)
{
    const int wide_in = begins_at(numbers, 16), wide_out = begins_at(coded, 4);
    FOR_BLOCKS_OF_A_WARP(n) {
        const long long first = block * BLOCK + FOUR * lane;
        unsigned char *out = coded + block * CODED;
        four mine[HALVES];
        bits largest = 0; /* numbers without a sign are ordered as their bits are, NaN above all */
        for (int k = 0; k < HALVES; ++k)
            mine[k] = four_at(numbers, first + k * HALF, n, wide_in);
        for (int i = 0; i < HALVES * FOUR; ++i) {
            const bits size = BITS_OF(mine[i / FOUR].x[i % FOUR]) & ~((bits)1 << (8 * sizeof(bits) - 1));
            largest = size > largest ? size : largest;
        }
        for (int offset = LANES / 2; offset; offset /= 2) {
            const bits other = __shfl_xor_sync(0xffffffffu, largest, offset);
            largest = other > largest ? other : largest;
        }
        const float scale = TO_FLOAT(DIVIDED(FROM_BITS(largest), (number)LARGEST_STEP));
        const unsigned int scale_bits = __float_as_uint(scale);
        const int above_zero = scale_bits > 0 && scale_bits <= 0x7f800000u;
        const number step = FROM_FLOAT(above_zero ? scale : 1.0f);
        if (lane < 4)
            out[lane] = (unsigned char)(scale_bits >> (8 * lane));
        unsigned int words[HALVES];
        for (int k = 0; k < HALVES; ++k) {
            words[k] = 0;
            for (int j = 0; j < FOUR; ++j) {
                int steps = NEAREST_EVEN(DIVIDED(mine[k].x[j], step));
                steps = steps > LARGEST_STEP ? LARGEST_STEP : steps < -LARGEST_STEP ? -LARGEST_STEP : steps;
                words[k] |= (unsigned int)(unsigned char)steps << (8 * j);
            }
        }
        for (int k = 0; k < HALVES; ++k) {
            const long long at = first + k * HALF;
            unsigned char *to = out + 4 + FOUR * lane + k * HALF;
            if (wide_out && at + FOUR <= n)
                *(unsigned int *)to = words[k];
            else
                for (int j = 0; j < FOUR && at + j < n; ++j)
                    to[j] = (unsigned char)(words[k] >> (8 * j));
        }
    }
}

KERNEL decode_int8(const unsigned char *coded, number *numbers, long long n)
{
    const int wide_in = begins_at(coded, 4), wide_out = begins_at(numbers, 16);
    FOR_BLOCKS_OF_A_WARP(n) {
        const long long first = block * BLOCK + FOUR * lane;
        const unsigned char *in = coded + block * CODED;
        unsigned int words[1 + HALVES]; /* the scale, and four steps each */
        for (int k = 0; k < 1 + HALVES; ++k) {
            const int at = k ? 4 + FOUR * lane + (k - 1) * HALF : 0;
            const long long left = k ? n - first - (k - 1) * HALF : FOUR;
            words[k] = 0;
            if (wide_in && left >= FOUR)
                words[k] = *(const unsigned int *)(in + at);
            else
                for (int j = 0; j < FOUR && j < left; ++j)
                    words[k] |= (unsigned int)in[at + j] << (8 * j);
        }
        const number scale = FROM_FLOAT(__uint_as_float(words[0]));
        for (int k = 0; k < HALVES; ++k) {
            four given;
            for (int j = 0; j < FOUR; ++j)
                given.x[j] = TIMES((number)(signed char)(words[1 + k] >> (8 * j)), scale);
            put_four(numbers, given, first + k * HALF, n, wide_out);
        }
    }
}

KERNEL encode_fp16(const number *numbers, unsigned short *coded, long long n)
{
    const int wide_in = begins_at(numbers, 16), wide_out = begins_at(coded, 8);
    FOR_BLOCKS_OF_A_WARP(n) {
        const long long first = block * BLOCK + FOUR * lane;
        four mine[HALVES];
        for (int k = 0; k < HALVES; ++k)
            mine[k] = four_at(numbers, first + k * HALF, n, wide_in);
        for (int k = 0; k < HALVES; ++k) {
            const long long at = first + k * HALF;
            halves given;
            for (int j = 0; j < FOUR; ++j) {
                const float x = TO_FLOAT(mine[k].x[j]);
                given.x[j] = to_half(x > LARGEST_HALF ? LARGEST_HALF : x < -LARGEST_HALF ? -LARGEST_HALF : x);
            }
            if (wide_out && at + FOUR <= n)
                *(ushort4 *)(coded + at) = make_ushort4(given.x[0], given.x[1], given.x[2], given.x[3]);
            else
                for (int j = 0; j < FOUR && at + j < n; ++j)
                    coded[at + j] = given.x[j];
        }
    }
}

KERNEL decode_fp16(const unsigned short *coded, number *numbers, long long n)
{
    const int wide_in = begins_at(coded, 8), wide_out = begins_at(numbers, 16);
    FOR_BLOCKS_OF_A_WARP(n) {
        const long long first = block * BLOCK + FOUR * lane;
        halves mine[HALVES];
        for (int k = 0; k < HALVES; ++k) {
            const long long at = first + k * HALF;
            if (wide_in && at + FOUR <= n) {
                const ushort4 v = *(const ushort4 *)(coded + at);
                mine[k].x[0] = v.x, mine[k].x[1] = v.y, mine[k].x[2] = v.z, mine[k].x[3] = v.w;
            } else
                for (int j = 0; j < FOUR; ++j)
                    mine[k].x[j] = at + j < n ? coded[at + j] : 0;
        }
        for (int k = 0; k < HALVES; ++k) {
            four given;
            for (int j = 0; j < FOUR; ++j)
                given.x[j] = FROM_FLOAT(from_half(mine[k].x[j]));
            put_four(numbers, given, first + k * HALF, n, wide_out);
        }
    }
}
