/* SPDX-License-Identifier: Apache-2.0 */
/* A product of fixed size that is timed between all measurements: machines that others share drift,
 * and what was measured is scaled by it. */
#ifndef TP_TRAIN_REFERENCE_H
#define TP_TRAIN_REFERENCE_H

#include "base/status.h"
#include "device/device.h"
#include "device/memory.h"

/* Floating-point operations of one product: 256 x 768 x 768. */
#define TP_REFERENCE_FLOPS (2.0 * 256 * 768 * 768)

struct tp_reference {
    struct tp_device *device;
    struct tp_arena *arena;
    struct tp_view a, b, c;
    int count; /* products of the latest timing */
    double seconds;
};

/* Takes its memory and runs it until its time is known. device must outlive it. Local.
 * TP_ERR_MEMORY, TP_ERR_DEVICE. */
enum tp_status tp_reference_init(struct tp_reference *reference, struct tp_device *device);
void tp_reference_fini(struct tp_reference *reference);

/* Repeats the product for a few milliseconds: count and seconds are of this timing. Waits.
 * TP_ERR_DEVICE. */
enum tp_status tp_reference_time(struct tp_reference *reference);

#endif
