/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fake_cost.h"

static bool has_group(const void *self, int device, int b)
{
    const struct fake_cost *fake = self;
    (void)device;
    return b >= 32 || !(fake->missing >> b & 1);
}

static double layer(const void *self, int device, enum tp_direction direction, int b, int s, int c)
{
    const struct fake_cost *fake = self;
    const double work = fake->fixed + b * s * (fake->token + fake->context * (c + s / 2.0));
    const double bump = fake->bump * (s * 7 % 5 + b * 3 % 4);
    const double forward = (work < fake->floor ? fake->floor : work) + bump;

    return fake->slow[device] * (direction == TP_FORWARD ? forward : fake->backward * forward);
}

static double embed(const void *self, int device, enum tp_direction direction, int b, int s)
{
    const struct fake_cost *fake = self;
    (void)direction;
    return fake->slow[device] * fake->embed * b * s;
}

static double head(const void *self, int device, enum tp_direction direction, int b, int s)
{
    const struct fake_cost *fake = self;
    (void)direction;
    return fake->slow[device] * fake->head * b * s;
}

static double link_seconds(const void *self, int boundary, size_t bytes)
{
    const struct fake_cost *fake = self;
    (void)boundary;
    return fake->latency + fake->byte * (double)bytes;
}

static double allreduce(const void *self, int ranks, size_t bytes)
{
    (void)self;
    (void)ranks;
    (void)bytes;
    return 0;
}

void fake_cost_init(struct fake_cost *fake)
{
    *fake = (struct fake_cost){
        .fixed = 1e-3, .token = 1e-5, .context = 1e-8, .backward = 2, .slow = {1, 1, 1}};
    for (int d = 0; d < FAKE_DEVICES; d++)
        fake->devices[d] = (struct tp_cost_device){
            .name = "fake", .footprint = {.align = 4096, .element_bytes = 4}};
    fake->cost = (struct tp_cost){.self = fake,
                                  .op = 1,
                                  .n_devices = 1,
                                  .devices = fake->devices,
                                  .has_group = has_group,
                                  .layer = layer,
                                  .embed = embed,
                                  .head = head,
                                  .link = link_seconds,
                                  .allreduce = allreduce};
}

void fake_cost_mix(struct fake_cost *fake, double second, double third)
{
    fake->slow[1] = second;
    fake->slow[2] = third;
    for (int rank = 0; rank < FAKE_RANKS; rank++)
        fake->ranks[rank] = rank % FAKE_DEVICES;
    fake->cost.n_devices = FAKE_DEVICES;
    fake->cost.n_ranks = FAKE_RANKS;
    fake->cost.device_of_rank = fake->ranks;
}
