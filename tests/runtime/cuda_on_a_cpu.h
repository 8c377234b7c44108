/* What the kernels of cupy_codec.py need to run on a CPU: every thread of a block is a fibre, and a shuffle lets the
   others of its warp come as far before it reads. Linked by launch(), which runs a grid block by block. */

#include <immintrin.h>
#include <math.h>
#include <string.h>
#include <ucontext.h>

#define KERNEL void
#define DEVICE static

typedef struct { unsigned int x; } size;
/* Loaded and stored whole where they begin on their border, as on a GPU, and not elsewhere. */
typedef struct { float x, y, z, w; } __attribute__((aligned(16))) float4;
typedef struct { double x, y; } __attribute__((aligned(16))) double2;
typedef struct { unsigned short x, y, z, w; } __attribute__((aligned(8))) ushort4;
static float4 make_float4(float x, float y, float z, float w) { float4 v = {x, y, z, w}; return v; }
static double2 make_double2(double x, double y) { double2 v = {x, y}; return v; }
static ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w)
{ ushort4 v = {x, y, z, w}; return v; }

enum { MOST_THREADS = 256, STACK_BYTES = 1 << 16 };
static size blockIdx, blockDim, gridDim, threadIdx;
static ucontext_t fibres[MOST_THREADS], scheduler;
static char stacks[MOST_THREADS][STACK_BYTES];
static int done[MOST_THREADS], turn[MOST_THREADS];
static unsigned long long exchanged[2][MOST_THREADS];
static void (*kernel)(const void *, void *, long long);
static const void *argument_from;
static void *argument_to;
static long long argument_n;

static float divided(float a, float b) { return a / b; }
static float times(float a, float b) { return a * b; }
static float narrowed(double a) { return (float)a; }
static double widened(float a) { return a; }
static unsigned short to_half(float a) { return _cvtss_sh(a, _MM_FROUND_TO_NEAREST_INT); }
static float from_half(unsigned short a) { return _cvtsh_ss(a); }

static unsigned int __float_as_uint(float x) { unsigned int y; memcpy(&y, &x, sizeof y); return y; }
static float __uint_as_float(unsigned int x) { float y; memcpy(&y, &x, sizeof y); return y; }
static long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, sizeof y); return y; }
static double __longlong_as_double(long long x) { double y; memcpy(&y, &x, sizeof y); return y; }
static int __double2int_rn(double x)
{ return x != x ? 0 : x > 1e9 ? 1000000000 : x < -1e9 ? -1000000000 : (int)nearbyint(x); }
static int __float2int_rn(float x) { return __double2int_rn(x); }

static unsigned long long __shfl_xor_sync(unsigned int mask, unsigned long long value, int offset)
{
    const unsigned int me = threadIdx.x;
    const int which = turn[me]++ % 2; /* a slow reader must still find what was there before the next exchange */
    (void)mask;
    exchanged[which][me] = value;
    swapcontext(&fibres[me], &scheduler);
    return exchanged[which][me ^ (unsigned int)offset];
}

static void fibre(void)
{
    kernel(argument_from, argument_to, argument_n);
    done[threadIdx.x] = 1;
}

void launch(void *function, unsigned int grid, unsigned int block, const void *from, void *to, long long n)
{
    kernel = function, argument_from = from, argument_to = to, argument_n = n;
    gridDim.x = grid, blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        for (unsigned int t = 0; t < block; ++t) {
            done[t] = turn[t] = 0;
            getcontext(&fibres[t]);
            fibres[t].uc_stack.ss_sp = stacks[t];
            fibres[t].uc_stack.ss_size = STACK_BYTES;
            fibres[t].uc_link = &scheduler;
            makecontext(&fibres[t], fibre, 0);
        }
        for (unsigned int left = block; left;) {
            left = 0;
            for (unsigned int t = 0; t < block; ++t)
                if (!done[t]) {
                    threadIdx.x = t;
                    swapcontext(&scheduler, &fibres[t]);
                    left += !done[t];
                }
        }
    }
}
