/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "host_stage.h"

enum { MAX_LAYERS = 8, MAX_POLLS = 4 };

/* Where a unit is in one direction. */
enum progress { NEW, LENT_IN, ARRIVED, BEGUN, COMPUTED, LENT_OUT, GONE };

struct begun {
    enum tp_direction direction;
    const struct tp_unit *unit;
    int polls;
};

struct host_stage {
    struct host_shape shape;
    bool first, last;
    uint32_t random;
    char broken[160];
    int step, updates;
    bool train, nan;
    int hang_direction, hang_unit; /* -1: none */

    float *inputs[MAX_LAYERS]; /* [rows, width] of each layer here: the activations; of the first
                                  one [input_rows, width] */
    float *output;             /* last stage: [rows, width], else [slots, unit_rows, width] */
    float *gradient;           /* [slots, unit_rows, width] */
    enum progress *progress[2];
    struct begun *queue; /* [2 * units], in order */
    int n_begun, n_computed;
    const struct tp_unit *delayed; /* its group's weight gradients are not computed */
    int delayed_polls;

    uint32_t weight[MAX_LAYERS], tied_weight;
    uint32_t *before[MAX_LAYERS]; /* [caches] keys and values */
    uint32_t behind[MAX_LAYERS];  /* and their gradients, of the present group */
    double layer_gradient[MAX_LAYERS];
    float tied_mine[HOST_TIED]; /* first stage: embedding's part; last: head's */
    float tied_theirs[HOST_TIED];
    float tied_head[HOST_TIED]; /* the head's part when one stage has both */
    float tied_sum[HOST_TIED];
    double loss;
};

/* ---- Checksums ---- */

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t x = (a ^ (b + 0x9e3779b9u + (a << 6) + (a >> 2))) * 0x85ebca6bu;
    x ^= x >> 15;
    x *= 0xc2b2ae35u;
    return x ^ (x >> 13);
}

/* A number of 24 bits, which a float holds exactly. */
static float number(uint32_t bits)
{
    return (float)(bits >> 8);
}

static uint32_t bits_of(double x)
{
    uint32_t bits[2];
    memcpy(bits, &x, sizeof bits);
    return mix(bits[0], bits[1]);
}

static void spoil(float *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] = -12345.5f;
}

static void __attribute__((format(printf, 2, 3)))
broke(struct host_stage *host, const char *format, ...)
{
    if (host->broken[0] != '\0')
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(host->broken, sizeof host->broken, format, arguments);
    va_end(arguments);
}

/* ---- Memory ---- */

static size_t count_of(const struct host_stage *host, const struct tp_unit *unit)
{
    return tp_unit_rows(unit) * (size_t)host->shape.width;
}

static float *rows_of(const struct host_stage *host, float *data, const struct tp_unit *unit)
{
    return data + unit->row * (size_t)host->shape.width;
}

static float *input_of(const struct host_stage *host, int layer, const struct tp_unit *unit)
{
    const size_t row = layer == 0 ? unit->input_row : unit->row;
    return host->inputs[layer] + row * (size_t)host->shape.width;
}

static float *slot_of(const struct host_stage *host, float *data, enum tp_direction direction,
                      const struct tp_unit *unit)
{
    return data + (size_t)unit->slot[direction] * host->shape.unit_rows * (size_t)host->shape.width;
}

/* Where the message arrives, or the gradient is; where the result goes. */
static float *in_of(const struct host_stage *host, enum tp_direction direction,
                    const struct tp_unit *unit)
{
    return direction == TP_FORWARD ? input_of(host, 0, unit)
                                   : slot_of(host, host->gradient, direction, unit);
}

static float *out_of(const struct host_stage *host, enum tp_direction direction,
                     const struct tp_unit *unit)
{
    if (direction == TP_BACKWARD)
        return slot_of(host, host->gradient, direction, unit);
    return host->last ? rows_of(host, host->output, unit)
                      : slot_of(host, host->output, direction, unit);
}

static bool receives(const struct host_stage *host, enum tp_direction direction)
{
    return direction == TP_FORWARD ? !host->first : !host->last;
}

static bool sends(const struct host_stage *host, enum tp_direction direction)
{
    return direction == TP_FORWARD ? !host->last : !host->first;
}

/* ---- Computing ---- */

static void forward(struct host_stage *host, const struct tp_unit *unit)
{
    const size_t count = count_of(host, unit);
    const uint32_t id = mix((uint32_t)host->step, (uint32_t)unit->index);
    const int n_here = host->shape.last_layer - host->shape.first_layer + 1;
    if (host->first)
        for (size_t i = 0; i < count; i++)
            input_of(host, 0, unit)[i] = number(mix(mix(id, (uint32_t)i), host->tied_weight));
    for (int l = 0; l < n_here; l++) {
        const float *x = input_of(host, l, unit);
        float *y = l + 1 < n_here ? input_of(host, l + 1, unit) : out_of(host, TP_FORWARD, unit);
        uint32_t *before = &host->before[l][unit->cache];
        *before = mix(unit->number == 0 ? 0 : *before, id);
        const uint32_t key = mix(*before, host->weight[l]);
        for (size_t i = 0; i < count; i++)
            y[i] = number(mix(mix((uint32_t)x[i], key), (uint32_t)i));
    }
    if (host->last) {
        const float *y = out_of(host, TP_FORWARD, unit);
        double sum = 0;
        for (size_t i = 0; i < count; i++) {
            sum += y[i] * 1e-9;
            host->tied_head[i % HOST_TIED] += y[i] * 1e-7f;
        }
        host->loss = host->loss * 0.999 + sum + number(host->tied_weight) * 1e-9;
    }
    if (!host->train)
        for (int l = 0; l < n_here; l++)
            spoil(input_of(host, l, unit), count);
}

static void backward(struct host_stage *host, const struct tp_unit *unit)
{
    const size_t count = count_of(host, unit);
    const uint32_t id = mix((uint32_t)host->step, (uint32_t)unit->index);
    float *g = in_of(host, TP_BACKWARD, unit);
    if (host->last)
        for (size_t i = 0; i < count; i++)
            g[i] = number(mix((uint32_t)rows_of(host, host->output, unit)[i], 77));
    for (int l = host->shape.last_layer - host->shape.first_layer; l >= 0; l--) {
        float *x = input_of(host, l, unit);
        host->behind[l] = mix(unit->number == unit->last ? 0 : host->behind[l], id);
        const uint32_t key =
            mix(mix(host->behind[l], host->before[l][unit->cache]), host->weight[l]);
        double sum = 0;
        for (size_t i = 0; i < count; i++) {
            sum += (double)g[i] * x[i] * 1e-15;
            g[i] = number(mix(mix((uint32_t)g[i], key), (uint32_t)x[i]));
        }
        host->layer_gradient[l] = host->layer_gradient[l] * 0.999 + sum;
        spoil(x, count);
        if (unit->number == 0)
            host->before[l][unit->cache] = 0xdead;
    }
    if (host->first)
        for (size_t i = 0; i < count; i++)
            host->tied_mine[i % HOST_TIED] += g[i] * 1e-7f;
}

/* ---- The seam ---- */

static void advance(struct host_stage *host, enum tp_direction direction,
                    const struct tp_unit *unit, enum progress from, enum progress to)
{
    enum progress *progress = &host->progress[direction][unit->index];
    if (*progress != from)
        broke(host, "unit %d, direction %d: from %d to %d while at %d", unit->index, direction,
              from, to, *progress);
    *progress = to;
}

static bool overlap(const struct tp_unit *a, const struct tp_unit *b)
{
    return a->input_row < b->input_row + tp_unit_rows(b) &&
           b->input_row < a->input_row + tp_unit_rows(a);
}

/* Is anything begun and not computed that uses the memory of an incoming message? */
static bool in_use(const struct host_stage *host, enum tp_direction direction,
                   const struct tp_unit *unit)
{
    for (int i = 0; host->delayed != NULL && i <= host->delayed->last; i++)
        if (direction == TP_FORWARD && overlap(host->delayed + i, unit))
            return true;
    for (int i = host->n_computed; i < host->n_begun; i++) {
        const struct tp_unit *other = host->queue[i].unit;
        if (direction == TP_FORWARD && overlap(unit, other))
            return true;
        if (direction == TP_BACKWARD && host->queue[i].direction == TP_BACKWARD &&
            other->slot[TP_BACKWARD] == unit->slot[TP_BACKWARD])
            return true;
    }
    return false;
}

/* Is the memory of a unit's result lent to a send? */
static bool is_lent(const struct host_stage *host, enum tp_direction direction,
                    const struct tp_unit *unit)
{
    for (int i = 0; i < host->n_begun; i++) {
        const struct begun *other = &host->queue[i];
        if (other->direction == direction && other->unit != unit &&
            other->unit->slot[direction] == unit->slot[direction] &&
            host->progress[direction][other->unit->index] == LENT_OUT)
            return true;
    }
    return false;
}

static enum tp_status begin(void *self, enum tp_direction direction, const struct tp_unit *unit)
{
    struct host_stage *host = self;
    advance(host, direction, unit, receives(host, direction) ? ARRIVED : NEW, BEGUN);
    if (sends(host, direction) && is_lent(host, direction, unit))
        broke(host, "unit %d, direction %d: begun into lent memory", unit->index, direction);
    if (sends(host, direction) && direction == TP_FORWARD)
        spoil(out_of(host, direction, unit), count_of(host, unit));
    host->random = mix(host->random, 1);
    host->queue[host->n_begun++] = (struct begun){
        .direction = direction, .unit = unit, .polls = (int)(host->random % (MAX_POLLS + 1))};
    return TP_OK;
}

static enum tp_status poll(void *self, enum tp_direction direction, const struct tp_unit *unit,
                           bool *done)
{
    struct host_stage *host = self;
    struct begun *oldest = &host->queue[host->n_computed];
    if (host->n_computed == host->n_begun || oldest->unit != unit || oldest->direction != direction)
        broke(host, "unit %d, direction %d: polled out of order", unit->index, direction);
    const bool hangs = (int)direction == host->hang_direction && unit->index == host->hang_unit;
    *done = !hangs && oldest->polls-- == 0;
    if (!*done)
        return TP_OK;
    (direction == TP_FORWARD ? forward : backward)(host, unit);
    advance(host, direction, unit, BEGUN, COMPUTED);
    host->n_computed++;
    host->delayed = NULL; /* one after the other */
    if (host->shape.delay_wgrad && direction == TP_BACKWARD && unit->number == 0) {
        host->delayed = unit;
        host->delayed_polls = (int)(host->random % (3 * MAX_POLLS));
    }
    return TP_OK;
}

static enum tp_status poll_gradients(void *self, const struct tp_unit *unit, bool *done)
{
    struct host_stage *host = self;
    if (host->delayed != unit)
        broke(host, "unit %d: its group's weight gradients were not begun, or are over",
              unit->index);
    *done = host->delayed_polls-- == 0;
    if (*done)
        host->delayed = NULL;
    return TP_OK;
}

static enum tp_status message_in(void *self, enum tp_direction direction,
                                 const struct tp_unit *unit, float **data, size_t *count)
{
    struct host_stage *host = self;
    advance(host, direction, unit, NEW, LENT_IN);
    if (in_use(host, direction, unit))
        broke(host, "unit %d, direction %d: received into memory in use", unit->index, direction);
    if (direction == TP_BACKWARD && is_lent(host, direction, unit))
        broke(host, "unit %d: received into lent memory", unit->index);
    *data = in_of(host, direction, unit);
    *count = count_of(host, unit);
    spoil(*data, *count);
    return TP_OK;
}

static enum tp_status message_in_done(void *self, enum tp_direction direction,
                                      const struct tp_unit *unit)
{
    advance(self, direction, unit, LENT_IN, ARRIVED);
    return TP_OK;
}

static enum tp_status message_out(void *self, enum tp_direction direction,
                                  const struct tp_unit *unit, const float **data, size_t *count)
{
    struct host_stage *host = self;
    advance(host, direction, unit, COMPUTED, LENT_OUT);
    *data = out_of(host, direction, unit);
    *count = count_of(host, unit);
    return TP_OK;
}

static enum tp_status message_out_done(void *self, enum tp_direction direction,
                                       const struct tp_unit *unit)
{
    struct host_stage *host = self;
    advance(host, direction, unit, LENT_OUT, GONE);
    spoil(out_of(host, direction, unit), count_of(host, unit));
    return TP_OK;
}

static void ck_all_computed(struct host_stage *host, const char *where)
{
    if (host->n_computed < host->n_begun)
        broke(host, "%s before all is computed", where);
}

static enum tp_status tied(void *self, const float **mine, float **theirs, size_t *count)
{
    struct host_stage *host = self;
    const bool shared = host->first != host->last;
    ck_all_computed(host, "tied");
    spoil(host->tied_theirs, HOST_TIED);
    *mine = !shared ? NULL : host->first ? host->tied_mine : host->tied_head;
    *theirs = shared ? host->tied_theirs : NULL;
    *count = shared ? HOST_TIED : 0;
    return TP_OK;
}

static enum tp_status tied_done(void *self)
{
    struct host_stage *host = self;
    const float *embedding = host->first ? host->tied_mine : host->tied_theirs;
    const float *head = host->last ? host->tied_head : host->tied_theirs;
    for (int i = 0; i < HOST_TIED; i++)
        host->tied_sum[i] = embedding[i] + head[i];
    return TP_OK;
}

static enum tp_status sums(void *self, double *sums)
{
    struct host_stage *host = self;
    const int n_layer = host->shape.n_layer;
    for (int i = 0; i < n_layer + 2; i++)
        sums[i] = 0;
    if (host->first)
        for (int i = 0; i < HOST_TIED; i++)
            sums[0] += (double)host->tied_sum[i] * host->tied_sum[i];
    for (int l = host->shape.first_layer; l <= host->shape.last_layer; l++) {
        const double gradient = host->layer_gradient[l - host->shape.first_layer];
        sums[1 + l] = host->nan ? NAN : gradient * gradient;
    }
    sums[n_layer + 1] = host->loss;
    return TP_OK;
}

static enum tp_status loss(void *self, double *loss)
{
    struct host_stage *host = self;
    ck_all_computed(host, "loss");
    *loss = host->loss;
    return TP_OK;
}

static enum tp_status update(void *self, const struct tp_adamw *adamw, double scale)
{
    struct host_stage *host = self;
    for (int l = 0; l <= host->shape.last_layer - host->shape.first_layer; l++)
        host->weight[l] =
            mix(host->weight[l], bits_of(host->layer_gradient[l] * scale * adamw->lr));
    for (int i = 0; i < HOST_TIED; i++)
        host->tied_weight = mix(host->tied_weight, bits_of(host->tied_sum[i] * scale * adamw->lr));
    host->updates++;
    return TP_OK;
}

/* ---- Life ---- */

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "host stage: no memory\n");
        abort();
    }
    return memory;
}

struct host_stage *host_stage_new(const struct host_shape *shape, uint32_t seed)
{
    struct host_stage *host = take(1, sizeof *host);
    const size_t width = (size_t)shape->width, units = (size_t)shape->units;
    const size_t slots = (size_t)shape->slots * shape->unit_rows;
    host->shape = *shape;
    host->first = shape->first_layer == 0;
    host->last = shape->last_layer == shape->n_layer - 1;
    host->random = seed;
    host->hang_direction = host->hang_unit = -1;
    host->output = take((host->last ? shape->rows : slots) * width, sizeof *host->output);
    host->gradient = take(slots * width, sizeof *host->gradient);
    host->queue = take(2 * units, sizeof *host->queue);
    for (int direction = 0; direction < 2; direction++)
        host->progress[direction] = take(units, sizeof *host->progress[direction]);
    for (int l = 0; l <= shape->last_layer - shape->first_layer; l++) {
        host->inputs[l] =
            take((l == 0 ? shape->input_rows : shape->rows) * width, sizeof *host->inputs[l]);
        host->before[l] = take((size_t)shape->caches, sizeof *host->before[l]);
        host->weight[l] = mix(1000, (uint32_t)(shape->first_layer + l));
    }
    host->tied_weight = 4711;
    return host;
}

void host_stage_free(struct host_stage *host)
{
    for (int l = 0; l < MAX_LAYERS; l++) {
        free(host->inputs[l]);
        free(host->before[l]);
    }
    free(host->output);
    free(host->gradient);
    free(host->queue);
    free(host->progress[TP_FORWARD]);
    free(host->progress[TP_BACKWARD]);
    free(host);
}

struct tp_stage host_stage_seam(struct host_stage *host)
{
    return (struct tp_stage){
        .self = host,
        .begin = begin,
        .poll = poll,
        .poll_gradients = poll_gradients,
        .message_in = message_in,
        .message_in_done = message_in_done,
        .message_out = message_out,
        .message_out_done = message_out_done,
        .tied = tied,
        .tied_done = tied_done,
        .n_sums = host->shape.n_layer + 2,
        .sums = sums,
        .loss = loss,
        .update = update,
    };
}

void host_stage_begin_step(struct host_stage *host, int step, bool train)
{
    host->step = step;
    host->train = train;
    host->n_begun = host->n_computed = 0;
    host->loss = 0;
    for (int direction = 0; direction < 2; direction++)
        for (int i = 0; i < host->shape.units; i++)
            host->progress[direction][i] = NEW;
    for (int l = 0; l < MAX_LAYERS; l++)
        host->layer_gradient[l] = 0;
    for (int i = 0; i < HOST_TIED; i++)
        host->tied_mine[i] = host->tied_head[i] = 0;
}

const char *host_stage_broken(const struct host_stage *host)
{
    return host->broken[0] != '\0' ? host->broken : NULL;
}

void host_stage_make_nan(struct host_stage *host, bool nan)
{
    host->nan = nan;
}

void host_stage_hang(struct host_stage *host, enum tp_direction direction, int unit)
{
    host->hang_direction = (int)direction;
    host->hang_unit = unit;
}

int host_stage_updates(const struct host_stage *host)
{
    return host->updates;
}

void host_stage_step_alone(struct host_stage *host, const struct tp_schedule *schedule, int step,
                           bool train, const struct tp_adamw *adamw, double clip, double *loss_out,
                           double *norm_out)
{
    double all[MAX_LAYERS + 2], squares = 0;
    host_stage_begin_step(host, step, train);
    for (int i = 0; i < schedule->n_units; i++)
        forward(host, &schedule->units[i]);
    *loss_out = host->loss;
    *norm_out = 0;
    if (!train)
        return;
    for (int g = 0, first = 0; first < schedule->n_units; g++) {
        int end = first;
        while (end < schedule->n_units && schedule->units[end].slice.group == g)
            end++;
        for (int i = end - 1; i >= first; i--)
            backward(host, &schedule->units[i]);
        first = end;
    }
    tied_done(host);
    sums(host, all);
    for (int i = 0; i < host->shape.n_layer + 1; i++)
        squares += all[i];
    *norm_out = sqrt(squares);
    update(host, adamw, clip > 0 && *norm_out + 1e-6 > clip ? clip / (*norm_out + 1e-6) : 1);
}
