/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/median.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tp_median(double *numbers, int count)
{
    qsort(numbers, (size_t)count, sizeof *numbers, compare);
    return 0.5 * (numbers[(count - 1) / 2] + numbers[count / 2]);
}
