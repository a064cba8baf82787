// SPDX-License-Identifier: Apache-2.0
// Style of GPUs: a work-group of GROUP work-items takes a row, a block of columns or a tile. Neighbouring
// items take neighbouring elements, and find out together, in local memory, what all of them need. There are
// no groups beyond the last.
//
// No barrier stands in a branch, though all items of a group take the same way there: PoCL 3.1 then takes
// the first item's way through later conditions too, for all items (rows beyond a slice were written).

#define GROUP_KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define ITEM ((int)get_local_id(0))

// Kernels that sum over rows, and tiles: items side by side, and rows of items below each other.
#define ACROSS 16
#define DOWN (GROUP / ACROSS)

EXP(exp_one, float, int)

// What a tree makes of x of all items whose numbers are equal modulo apart, a power of two.
#define OVER_ITEMS(name, both)                                                                               \
    float name(float x, local float *part, int apart)                                                        \
    {                                                                                                        \
        barrier(CLK_LOCAL_MEM_FENCE); /* what was found before has been read */                              \
        part[ITEM] = x;                                                                                      \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        for (int n = GROUP / 2; n >= apart; n /= 2) {                                                        \
            if (ITEM < n)                                                                                    \
                part[ITEM] = both(part[ITEM], part[ITEM + n]);                                               \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
        }                                                                                                    \
        return part[ITEM % apart];                                                                           \
    }
#define PLUS(a, b) ((a) + (b))
OVER_ITEMS(sum_items, PLUS)
OVER_ITEMS(max_items, fmax)
