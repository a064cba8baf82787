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

/* ---- The table of regions ---- */

/* When a stage has a region; all that are set have to hold. */
enum {
    LAYER = 1,     /* once per layer */
    TRAINING = 2,  /* in training only */
    FIRST = 4,     /* on the first stage */
    LAST = 8,      /* on the last stage */
    NOT_BOTH = 16, /* not where one stage is first and last */
    EITHER = 32,   /* on the first or the last stage */
    BETWEEN = 64,  /* once per layer, but for the first */
    SPLIT = 128    /* of op ranks each has a part */
};

/* How many rows it has. */
enum rows {
    INPUT_ROWS,      /* tokens whose input to the stage lives */
    LIVE_ROWS,       /* tokens with live activations */
    LAYER_ROWS,      /* the same, or those of the largest unit when layers are recomputed */
    UNIT_ROWS,       /* tokens of the largest unit */
    MESSAGE_ROWS,    /* those times message slots */
    OUTPUT_ROWS,     /* live rows on the last stage, else message rows */
    BATCH_TOKENS,    /* B * T */
    CACHED_KEYS,     /* H * T of each sequence with live keys */
    GRADIENT_KEYS,   /* the same for the largest group */
    HEAD_ROWS,       /* a chunk of logits */
    VOCABULARY_ROWS, /* V */
    SUM_ROWS         /* partial sums of the stage's parameters */
};

/* How many elements a row has. */
enum columns { ONE, TWO, WIDTH, WIDTH_3, INNER, HEADS, HEAD_STRIDE, VOCABULARY };

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
    [TP_REGION_LAYER_QUERY] = {"layer query", LAYER | SPLIT, LAYER_ROWS, WIDTH},
    [TP_REGION_LAYER_ATTENTION] = {"layer attention", LAYER | SPLIT, LAYER_ROWS, WIDTH},
    [TP_REGION_LAYER_LSE] = {"layer lse", LAYER | SPLIT, LAYER_ROWS, HEADS},
    [TP_REGION_LAYER_HIDDEN] = {"layer hidden", LAYER | SPLIT, LAYER_ROWS, INNER},
    [TP_REGION_LAYER_KEY] = {"layer key", LAYER | SPLIT, CACHED_KEYS, HEAD_STRIDE},
    [TP_REGION_LAYER_VALUE] = {"layer value", LAYER | SPLIT, CACHED_KEYS, HEAD_STRIDE},
    [TP_REGION_LAYER_KEY_GRADIENT] = {"layer key gradient", LAYER | TRAINING | SPLIT, GRADIENT_KEYS,
                                      HEAD_STRIDE},
    [TP_REGION_LAYER_VALUE_GRADIENT] = {"layer value gradient", LAYER | TRAINING | SPLIT,
                                        GRADIENT_KEYS, HEAD_STRIDE},
    [TP_REGION_OUTPUT] = {"output", 0, OUTPUT_ROWS, WIDTH},
    [TP_REGION_BACKWARD] = {"backward", TRAINING, MESSAGE_ROWS, WIDTH},
    [TP_REGION_NORMED] = {"normed", 0, UNIT_ROWS, WIDTH},
    [TP_REGION_NORMED_GRADIENT] = {"normed gradient", TRAINING, UNIT_ROWS, WIDTH},
    [TP_REGION_QKV] = {"qkv", SPLIT, UNIT_ROWS, WIDTH_3},
    [TP_REGION_ATTENTION_GRADIENT] = {"attention gradient", TRAINING | SPLIT, UNIT_ROWS, WIDTH},
    [TP_REGION_QUERY_GRADIENT] = {"query gradient", TRAINING | SPLIT, UNIT_ROWS, WIDTH},
    [TP_REGION_GELU] = {"gelu", SPLIT, UNIT_ROWS, INNER},
    [TP_REGION_GELU_GRADIENT] = {"gelu gradient", TRAINING | SPLIT, UNIT_ROWS, INNER},
    [TP_REGION_INPUT_TOKENS] = {"input tokens", FIRST, BATCH_TOKENS, ONE},
    [TP_REGION_TARGET_TOKENS] = {"target tokens", LAST, BATCH_TOKENS, ONE},
    [TP_REGION_FINAL_NORM] = {"final norm", LAST, LIVE_ROWS, TWO},
    [TP_REGION_FINAL_GRADIENT] = {"final gradient", LAST | TRAINING, LIVE_ROWS, WIDTH},
    [TP_REGION_LOGITS] = {"logits", LAST | SPLIT, HEAD_ROWS, VOCABULARY},
    [TP_REGION_LOSS] = {"loss", LAST, BATCH_TOKENS, ONE},
    [TP_REGION_HEAD_GRADIENT] = {"head gradient", FIRST | LAST | TRAINING | SPLIT, VOCABULARY_ROWS,
                                 WIDTH},
    [TP_REGION_TIED] = {"tied", EITHER | NOT_BOTH | TRAINING | SPLIT, VOCABULARY_ROWS, WIDTH},
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
           (!(when & EITHER) || first || last);
}

/* ---- Parts of op ranks ---- */

/* The largest part of that many elements. */
static size_t part(size_t count, const struct tp_stage_shape *shape)
{
    const size_t op = shape->op > 1 ? (size_t)shape->op : 1;

    return count / op + (count % op != 0);
}

/* Elements of a tensor that one of the op ranks holds: a part of the matrices, of the biases before
 * the heads and before GELU, and of the vocabulary; all the rest whole. */
static size_t held_count(const struct tp_parameter *parameter, int tensor,
                         const struct tp_stage_shape *shape)
{
    const bool layer = parameter->place == TP_PLACE_LAYER;
    const bool split =
        parameter->tied ||
        (layer && (parameter->ndim == 2 || tensor == TP_ATTN_BIAS || tensor == TP_FC_BIAS));

    return split ? part(parameter->count, shape) : parameter->count;
}

/* ---- Parameters of a stage ---- */

/* The sum over the stage's parameters of a number that depends on their count of elements. All
 * layers are alike, so one of them is looked at. */
static size_t sum_parameters(const struct tp_stage_shape *shape,
                             size_t (*number)(size_t count, const void *context),
                             const void *context)
{
    const struct tp_model *model = &shape->model;
    int final_norm = tp_parameter_final_norm(model);
    const int outside[] = {TP_PARAMETER_WTE, TP_PARAMETER_WPE, final_norm, final_norm + 1};
    struct tp_parameter parameter;
    size_t layer = 0;

    for (int tensor = 0; tensor < TP_LAYER_TENSORS; tensor++) {
        tp_parameter_describe(model, tp_parameter_of_layer(0, tensor), &parameter);
        layer = plus(layer, number(held_count(&parameter, tensor, shape), context));
    }
    size_t sum = times(layer, (size_t)shape->layers.n_layer);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        tp_parameter_describe(model, outside[i], &parameter);
        if (tp_parameter_on_stage(&parameter, model, &shape->layers))
            sum = plus(sum, number(held_count(&parameter, -1, shape), context));
    }
    return sum;
}

static size_t partial_sums(size_t count, const void *unused)
{
    (void)unused;
    return (count + TP_SUM_BLOCK - 1) / TP_SUM_BLOCK;
}

static size_t bytes_of(size_t count, const void *footprint)
{
    return tp_footprint_bytes(footprint, count);
}

/* ---- Sizes ---- */

static size_t row_count(enum rows rows, const struct tp_stage_shape *shape)
{
    size_t messages = times((size_t)shape->slots, shape->unit_rows);
    size_t keys = times((size_t)shape->model.n_head, (size_t)shape->seq_len);

    switch (rows) {
    case INPUT_ROWS:
        return shape->input_rows;
    case LIVE_ROWS:
        return shape->rows;
    case LAYER_ROWS:
        return shape->recompute ? shape->unit_rows : shape->rows;
    case UNIT_ROWS:
        return shape->unit_rows;
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
        return (size_t)shape->model.vocab_size;
    case SUM_ROWS:
        break;
    }
    return sum_parameters(shape, partial_sums, NULL);
}

static size_t column_count(enum columns columns, const struct tp_model *model)
{
    switch (columns) {
    case ONE:
        return 1;
    case TWO:
        return 2;
    case WIDTH:
        return (size_t)model->n_embd;
    case WIDTH_3:
        return 3 * (size_t)model->n_embd;
    case INNER:
        return (size_t)model->n_inner;
    case HEADS:
        return (size_t)model->n_head;
    case HEAD_STRIDE:
        return (size_t)tp_head_stride(model);
    case VOCABULARY:
        break;
    }
    return (size_t)model->vocab_size;
}

size_t tp_region_count(enum tp_region region, const struct tp_stage_shape *shape)
{
    if (!exists(regions[region].when, shape))
        return 0;
    size_t count = times(row_count(regions[region].rows, shape),
                         column_count(regions[region].columns, &shape->model));
    return regions[region].when & SPLIT ? part(count, shape) : count;
}

size_t tp_stage_bytes(const struct tp_stage_shape *shape, const struct tp_footprint *footprint)
{
    size_t copies = shape->train ? 4 : 1; /* weight; gradient, two moments */
    size_t sum = times(copies, sum_parameters(shape, bytes_of, footprint));

    for (int region = 0; region < TP_REGION_COUNT; region++) {
        size_t bytes = tp_footprint_bytes(footprint, tp_region_count(region, shape));
        sum = plus(sum, times(tp_region_copies(region, shape), bytes));
    }
    return sum;
}

static size_t elements(size_t count, const void *unused)
{
    (void)unused;
    return count;
}

size_t tp_stage_parameters(const struct tp_stage_shape *shape)
{
    return sum_parameters(shape, elements, NULL);
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
