/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "model/sizes.h"

#include <stdint.h>

/* ---- Arithmetic that ends at SIZE_MAX instead of wrapping ---- */

static size_t times(size_t a, size_t b)
{
    return b != 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

static size_t plus(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static size_t larger(size_t a, size_t b)
{
    return a < b ? b : a;
}

/* ---- The table of regions ---- */

/* When a stage has a region; all that are set have to hold. */
enum {
    LAYER = 1,         /* once per layer */
    TRAINING = 2,      /* in training only */
    FIRST = 4,         /* on the first stage */
    LAST = 8,          /* on the last stage */
    NOT_BOTH = 16,     /* not where one stage is first and last */
    EITHER = 32,       /* on the first or the last stage */
    BETWEEN = 64,      /* once per layer, but for the first */
    ALTERNATING = 128, /* where forwards and backwards alternate */
    DELAYED = 256,     /* where weight gradients are delayed */
    AT_ONCE = 512      /* where they are not */
};

/* How many rows it has. */
enum rows {
    INPUT_ROWS,      /* tokens whose input to the stage lives */
    LIVE_ROWS,       /* tokens with live activations */
    LAYER_ROWS,      /* the same, or those of the largest unit when layers are recomputed */
    UNIT_ROWS,       /* tokens of the largest unit */
    GRADIENT_ROWS,   /* tokens whose weight gradients are one product */
    MESSAGE_ROWS,    /* those times message slots */
    OUTPUT_ROWS,     /* live rows on the last stage, else message rows */
    BATCH_TOKENS,    /* B * T */
    CACHED_KEYS,     /* T of each own head of each sequence with live keys */
    GRADIENT_KEYS,   /* the same for the largest group */
    HEAD_ROWS,       /* a chunk of logits */
    VOCABULARY_ROWS, /* own part of V */
    LAYER_PANELS,    /* elements of the panels of a layer, in one direction */
    HEAD_PANELS,     /* and of the head */
    SUM_ROWS         /* partial sums of the stage's parameters */
};

/* How many elements a row has: OWN ones are the part of an op rank. */
enum columns {
    ONE,
    TWO,
    THREE,
    WIDTH,
    OWN_WIDTH,
    OWN_QKV,
    OWN_INNER,
    OWN_HEADS,
    HEAD_STRIDE,
    OWN_V,
    PANEL_COLUMNS /* of the widest matrix of a layer, whole panels */
};

static const struct {
    const char *name;
    unsigned when;
    enum rows rows;
    enum columns columns;
} regions[TP_REGION_COUNT] = {
    [TP_REGION_INPUT] = {"input", 0, INPUT_ROWS, WIDTH},
    [TP_REGION_LAYER_INPUT] = {"layer input", BETWEEN, LAYER_ROWS, WIDTH},
    [TP_REGION_LAYER_MIDDLE] = {"layer middle", LAYER, LAYER_ROWS, WIDTH},
    [TP_REGION_LAYER_NORM_1] = {"layer norm 1", LAYER, LAYER_ROWS, TWO},
    [TP_REGION_LAYER_NORM_2] = {"layer norm 2", LAYER, LAYER_ROWS, TWO},
    [TP_REGION_LAYER_QUERY] = {"layer query", LAYER, LAYER_ROWS, OWN_WIDTH},
    [TP_REGION_LAYER_ATTENTION] = {"layer attention", LAYER, LAYER_ROWS, OWN_WIDTH},
    [TP_REGION_LAYER_LSE] = {"layer lse", LAYER, LAYER_ROWS, OWN_HEADS},
    [TP_REGION_LAYER_HIDDEN] = {"layer hidden", LAYER, LAYER_ROWS, OWN_INNER},
    [TP_REGION_LAYER_KEY] = {"layer key", LAYER, CACHED_KEYS, HEAD_STRIDE},
    [TP_REGION_LAYER_VALUE] = {"layer value", LAYER, CACHED_KEYS, HEAD_STRIDE},
    [TP_REGION_LAYER_KEY_GRADIENT] = {"layer key gradient", LAYER | TRAINING, GRADIENT_KEYS,
                                      HEAD_STRIDE},
    [TP_REGION_LAYER_VALUE_GRADIENT] = {"layer value gradient", LAYER | TRAINING, GRADIENT_KEYS,
                                        HEAD_STRIDE},
    [TP_REGION_LAYER_QKV_GRADIENT] = {"layer qkv gradient", LAYER | TRAINING | DELAYED, LAYER_ROWS,
                                      OWN_QKV},
    [TP_REGION_LAYER_BRANCH_GRADIENT] = {"layer branch gradient", LAYER | TRAINING | DELAYED,
                                         LAYER_ROWS, WIDTH},
    [TP_REGION_LAYER_HIDDEN_GRADIENT] = {"layer hidden gradient", LAYER | TRAINING | DELAYED,
                                         LAYER_ROWS, OWN_INNER},
    [TP_REGION_LAYER_OUTPUT_GRADIENT] = {"layer output gradient", LAYER | TRAINING | DELAYED,
                                         LAYER_ROWS, WIDTH},
    [TP_REGION_OUTPUT] = {"output", 0, OUTPUT_ROWS, WIDTH},
    [TP_REGION_BACKWARD] = {"backward", TRAINING, MESSAGE_ROWS, WIDTH},
    [TP_REGION_NORMED] = {"normed", 0, UNIT_ROWS, WIDTH},
    [TP_REGION_NORMED_GRADIENT] = {"normed gradient", TRAINING, UNIT_ROWS, WIDTH},
    [TP_REGION_QKV] = {"qkv", 0, UNIT_ROWS, OWN_QKV},
    [TP_REGION_ATTENTION_GRADIENT] = {"attention gradient", TRAINING, UNIT_ROWS, OWN_WIDTH},
    [TP_REGION_QUERY_GRADIENT] = {"query gradient", TRAINING, UNIT_ROWS, OWN_WIDTH},
    [TP_REGION_GELU] = {"gelu", 0, UNIT_ROWS, OWN_INNER},
    [TP_REGION_GELU_GRADIENT] = {"gelu gradient", TRAINING | AT_ONCE, UNIT_ROWS, OWN_INNER},
    [TP_REGION_INPUT_TOKENS] = {"input tokens", FIRST, BATCH_TOKENS, ONE},
    [TP_REGION_TARGET_TOKENS] = {"target tokens", LAST, BATCH_TOKENS, ONE},
    [TP_REGION_FINAL_NORM] = {"final norm", LAST, LIVE_ROWS, TWO},
    [TP_REGION_FINAL_GRADIENT] = {"final gradient", LAST | TRAINING, LIVE_ROWS, WIDTH},
    [TP_REGION_LOGITS] = {"logits", LAST, HEAD_ROWS, OWN_V},
    [TP_REGION_LOGIT_SUMS] = {"logit sums", LAST, HEAD_ROWS, THREE},
    [TP_REGION_LAYER_PANELS] = {"layer panels", LAYER, LAYER_PANELS, ONE},
    [TP_REGION_LAYER_PANELS_BACKWARD] = {"layer panels backward", LAYER | TRAINING | ALTERNATING,
                                         LAYER_PANELS, ONE},
    [TP_REGION_HEAD_PANELS] = {"head panels", LAST, HEAD_PANELS, ONE},
    [TP_REGION_HEAD_PANELS_BACKWARD] = {"head panels backward", LAST | TRAINING, HEAD_PANELS, ONE},
    [TP_REGION_GRADIENT_PANELS] = {"gradient panels", TRAINING, GRADIENT_ROWS, PANEL_COLUMNS},
    [TP_REGION_LOSS] = {"loss", LAST, BATCH_TOKENS, ONE},
    [TP_REGION_HEAD_GRADIENT] = {"head gradient", FIRST | LAST | TRAINING, VOCABULARY_ROWS, WIDTH},
    [TP_REGION_TIED] = {"tied", EITHER | NOT_BOTH | TRAINING, VOCABULARY_ROWS, WIDTH},
    [TP_REGION_SUMS] = {"sums", TRAINING, SUM_ROWS, ONE},
};

const char *tp_region_name(enum tp_region region)
{
    return regions[region].name;
}

bool tp_region_is_per_layer(enum tp_region region)
{
    return regions[region].when & (LAYER | BETWEEN);
}

size_t tp_region_copies(enum tp_region region, const struct tp_stage_shape *shape)
{
    const size_t layers = (size_t)shape->layers.n_layer;

    if (regions[region].when & BETWEEN)
        return layers - 1;
    return regions[region].when & LAYER ? layers : 1;
}

static bool exists(unsigned when, const struct tp_stage_shape *shape)
{
    bool first = tp_stage_is_first(&shape->layers);
    bool last = tp_stage_is_last(&shape->layers, &shape->model);

    return (!(when & TRAINING) || shape->train) && (!(when & FIRST) || first) &&
           (!(when & LAST) || last) && (!(when & NOT_BOTH) || !(first && last)) &&
           (!(when & EITHER) || first || last) && (!(when & ALTERNATING) || shape->alternates) &&
           (!(when & DELAYED) || shape->delay_wgrad) && (!(when & AT_ONCE) || !shape->delay_wgrad);
}

/* ---- The part of an op rank ---- */

struct tp_share tp_stage_share(const struct tp_stage_shape *shape, int whole)
{
    return tp_share_of((size_t)whole, shape->op > 1 ? shape->op : 1, shape->op_rank);
}

static size_t own(const struct tp_stage_shape *shape, int whole)
{
    return tp_stage_share(shape, whole).count;
}

static size_t own_heads(const struct tp_stage_shape *shape)
{
    return own(shape, shape->model.n_head);
}

static size_t own_width(const struct tp_stage_shape *shape)
{
    return own_heads(shape) * (size_t)(shape->model.n_embd / shape->model.n_head);
}

/* ---- Matrices ---- */

struct tp_matrix_size tp_matrix_size(const struct tp_stage_shape *shape, enum tp_matrix matrix)
{
    const size_t C = (size_t)shape->model.n_embd, W = own_width(shape);

    switch (matrix) {
    case TP_MATRIX_QKV:
        return (struct tp_matrix_size){C, 3 * W};
    case TP_MATRIX_ATTENTION:
        return (struct tp_matrix_size){W, C};
    case TP_MATRIX_FC:
        return (struct tp_matrix_size){C, own(shape, shape->model.n_inner)};
    case TP_MATRIX_MLP:
        return (struct tp_matrix_size){own(shape, shape->model.n_inner), C};
    default:
        return (struct tp_matrix_size){C, own(shape, shape->model.vocab_size)};
    }
}

/* So many columns in whole panels; 0 where there are none. */
static size_t whole_panels(const struct tp_stage_shape *shape, size_t columns)
{
    const size_t panel = (size_t)shape->panel;

    return panel > 0 ? times((columns - 1) / panel + 1, panel) : 0;
}

size_t tp_matrix_panels(const struct tp_stage_shape *shape, enum tp_matrix matrix)
{
    const struct tp_matrix_size size = tp_matrix_size(shape, matrix);

    return larger(times(whole_panels(shape, size.n), size.k),
                  times(whole_panels(shape, size.k), size.n));
}

static size_t layer_panels(const struct tp_stage_shape *shape)
{
    size_t sum = 0;

    for (int matrix = 0; matrix < TP_MATRIX_HEAD; matrix++)
        sum = plus(sum, tp_matrix_panels(shape, (enum tp_matrix)matrix));
    return sum;
}

/* A gradient's product has the gradient of some matrix's result on its right side. */
static size_t panel_columns(const struct tp_stage_shape *shape)
{
    size_t most = 0;

    for (int matrix = 0; matrix < TP_MATRIX_HEAD; matrix++) {
        const size_t n = tp_matrix_size(shape, (enum tp_matrix)matrix).n;
        most = n > most ? n : most;
    }
    return whole_panels(shape, most);
}

/* ---- Parameters of a stage ---- */

/* The sum over the stage's buckets of a number that depends on the bucket. All layers are alike, so
 * one of them is looked at. */
static size_t sum_buckets(const struct tp_stage_shape *shape,
                          size_t (*number)(const struct tp_stage_shape *shape,
                                           const struct tp_bucket *bucket, const void *context),
                          const void *context)
{
    const struct tp_model *model = &shape->model;
    const struct tp_stage_layers *layers = &shape->layers;
    const int buckets[] = {tp_bucket_of(model, TP_PARAMETER_WTE),
                           tp_bucket_of(model, TP_PARAMETER_WPE),
                           tp_bucket_of(model, tp_parameter_of_layer(layers->first_layer, 0)),
                           tp_bucket_of(model, tp_parameter_final_norm(model))};
    size_t sum = 0;

    for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++) {
        struct tp_parameter parameter;
        struct tp_bucket bucket;
        tp_bucket_describe(model, buckets[i], shape->op, shape->op_rank, &bucket);
        tp_parameter_describe(model, bucket.row, &parameter);
        const bool layer = parameter.place == TP_PLACE_LAYER;
        if (tp_parameter_on_stage(&parameter, model, layers))
            sum = plus(sum,
                       times(layer ? (size_t)layers->n_layer : 1, number(shape, &bucket, context)));
    }
    return sum;
}

/* The sum over a bucket's tensors of a number that depends on the elements that the rank has. */
static size_t sum_tensors(const struct tp_stage_shape *shape, const struct tp_bucket *bucket,
                          size_t (*number)(size_t held))
{
    struct tp_parameter parameter;
    size_t sum = 0;

    for (int i = 0; i < bucket->n_rows; i++) {
        tp_parameter_describe(&shape->model, bucket->row + i, &parameter);
        sum = plus(sum, number(tp_parameter_held(&parameter, shape->op, shape->op_rank)));
    }
    return sum;
}

static size_t partial_sums(size_t held)
{
    return (held + TP_SUM_BLOCK - 1) / TP_SUM_BLOCK;
}

static size_t elements(size_t held)
{
    return held;
}

static size_t bucket_sums(const struct tp_stage_shape *shape, const struct tp_bucket *bucket,
                          const void *unused)
{
    (void)unused;
    return sum_tensors(shape, bucket, partial_sums);
}

static size_t bucket_elements(const struct tp_stage_shape *shape, const struct tp_bucket *bucket,
                              const void *unused)
{
    (void)unused;
    return sum_tensors(shape, bucket, elements);
}

struct tp_share tp_stage_shard(const struct tp_stage_shape *shape, size_t count)
{
    return tp_share_of(count, shape->shards > 1 ? shape->shards : 1, shape->shard);
}

/* A weight; in training a gradient and the rank's share of two moments. */
static size_t bucket_bytes(const struct tp_stage_shape *shape, const struct tp_bucket *bucket,
                           const void *footprint)
{
    const size_t whole = tp_footprint_bytes(footprint, bucket->count);
    const size_t shard = tp_footprint_bytes(footprint, tp_stage_shard(shape, bucket->count).count);

    return shape->train ? plus(times(2, whole), times(2, shard)) : whole;
}

/* ---- Sizes ---- */

size_t tp_gradient_rows(const struct tp_stage_shape *shape)
{
    return shape->delay_wgrad ? times((size_t)shape->group, (size_t)shape->seq_len)
                              : shape->unit_rows;
}

static size_t row_count(enum rows rows, const struct tp_stage_shape *shape)
{
    size_t messages = times((size_t)shape->slots, shape->unit_rows);
    size_t keys = times(own_heads(shape), (size_t)shape->seq_len);

    switch (rows) {
    case INPUT_ROWS:
        return shape->input_rows;
    case LIVE_ROWS:
        return shape->rows;
    case LAYER_ROWS:
        return shape->recompute ? shape->unit_rows : shape->rows;
    case UNIT_ROWS:
        return shape->unit_rows;
    case GRADIENT_ROWS:
        return tp_gradient_rows(shape);
    case MESSAGE_ROWS:
        return messages;
    case OUTPUT_ROWS:
        return tp_stage_is_last(&shape->layers, &shape->model) ? shape->rows : messages;
    case BATCH_TOKENS:
        return times((size_t)shape->batch, (size_t)shape->seq_len);
    case CACHED_KEYS:
        return times((size_t)shape->caches, keys);
    case GRADIENT_KEYS:
        return times((size_t)shape->group, keys);
    case HEAD_ROWS:
        return tp_head_rows(shape);
    case VOCABULARY_ROWS:
        return own(shape, shape->model.vocab_size);
    case LAYER_PANELS:
        return layer_panels(shape);
    case HEAD_PANELS:
        return tp_matrix_panels(shape, TP_MATRIX_HEAD);
    case SUM_ROWS:
        break;
    }
    return sum_buckets(shape, bucket_sums, NULL);
}

static size_t column_count(enum columns columns, const struct tp_stage_shape *shape)
{
    const struct tp_model *model = &shape->model;

    switch (columns) {
    case ONE:
        return 1;
    case TWO:
        return 2;
    case THREE:
        return 3;
    case WIDTH:
        return (size_t)model->n_embd;
    case OWN_WIDTH:
        return own_width(shape);
    case OWN_QKV:
        return 3 * own_width(shape);
    case OWN_INNER:
        return own(shape, model->n_inner);
    case OWN_HEADS:
        return own_heads(shape);
    case HEAD_STRIDE:
        return (size_t)tp_head_stride(model);
    case OWN_V:
        return own(shape, model->vocab_size);
    case PANEL_COLUMNS:
        break;
    }
    return panel_columns(shape);
}

size_t tp_region_count(enum tp_region region, const struct tp_stage_shape *shape)
{
    if (!exists(regions[region].when, shape))
        return 0;
    return times(row_count(regions[region].rows, shape),
                 column_count(regions[region].columns, shape));
}

size_t tp_stage_bytes(const struct tp_stage_shape *shape, const struct tp_footprint *footprint)
{
    struct tp_stage_shape there = *shape; /* on that device */
    size_t sum = sum_buckets(shape, bucket_bytes, footprint);

    there.panel = footprint->panel;
    for (int region = 0; region < TP_REGION_COUNT; region++) {
        size_t bytes = tp_footprint_bytes(footprint, tp_region_count(region, &there));
        sum = plus(sum, times(tp_region_copies(region, shape), bytes));
    }
    return sum;
}

size_t tp_stage_parameters(const struct tp_stage_shape *shape)
{
    return sum_buckets(shape, bucket_elements, NULL);
}

int tp_head_stride(const struct tp_model *model)
{
    int width = model->n_embd / model->n_head;

    return (width + TP_LANES - 1) / TP_LANES * TP_LANES;
}

size_t tp_head_rows(const struct tp_stage_shape *shape)
{
    enum { LOGITS = 8 << 20, LEAST = 16 };
    size_t rows = LOGITS / (size_t)shape->model.vocab_size;

    rows = rows < LEAST ? LEAST : rows;
    return rows < shape->unit_rows ? rows : shape->unit_rows;
}
