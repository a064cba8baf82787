/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TP_BASE_MEDIAN_H
#define TP_BASE_MEDIAN_H

/* The median of at least one number, the mean of the two in the middle where their count is even.
 * Sorts them. Local. */
double tp_median(double *numbers, int count);

#endif
