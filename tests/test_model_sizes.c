/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "model/sizes.h"

#include <stdint.h>

#include "expect.h"

static const struct tp_footprint plain = {.align = 1, .element_bytes = 4};
static const struct tp_footprint paged = {.align = 4096, .element_bytes = 4};

/* Four layers of gpt2-odd's kind: head width 10, V 61. */
static struct tp_stage_shape shape_of(int first_layer, int n_layer, bool train)
{
    return (struct tp_stage_shape){
        .model = {.n_layer = 4,
                  .n_embd = 20,
                  .n_head = 2,
                  .n_inner = 70,
                  .vocab_size = 61,
                  .n_positions = 40,
                  .layer_norm_epsilon = 1e-5,
                  .initializer_range = 0.02},
        .layers = {first_layer, n_layer},
        .seq_len = 32,
        .batch = 5,
        .caches = 3,
        .group = 2,
        .rows = 96,
        .input_rows = 122,
        .unit_rows = 26,
        .slots = 4,
        .train = train,
    };
}

START_TEST(regions_are_as_documented)
{
    struct tp_stage_shape shape = shape_of(0, 4, true);
    shape.panel = 48;
    shape.alternates = true;
    const struct {
        enum tp_region region;
        size_t count;
        bool per_layer;
    } known[] = {
        {TP_REGION_INPUT, 122 * 20, false},
        {TP_REGION_LAYER_INPUT, 96 * 20, true},
        {TP_REGION_LAYER_MIDDLE, 96 * 20, true},
        {TP_REGION_LAYER_NORM_1, 96 * 2, true},
        {TP_REGION_LAYER_NORM_2, 96 * 2, true},
        {TP_REGION_LAYER_QUERY, 96 * 20, true},
        {TP_REGION_LAYER_ATTENTION, 96 * 20, true},
        {TP_REGION_LAYER_LSE, 96 * 2, true},
        {TP_REGION_LAYER_HIDDEN, 96 * 70, true},
        {TP_REGION_LAYER_KEY, 3 * 2 * 32 * 16, true},
        {TP_REGION_LAYER_VALUE, 3 * 2 * 32 * 16, true},
        {TP_REGION_LAYER_KEY_GRADIENT, 2 * 2 * 32 * 16, true},
        {TP_REGION_LAYER_VALUE_GRADIENT, 2 * 2 * 32 * 16, true},
        {TP_REGION_LAYER_QKV_GRADIENT, 0, true},
        {TP_REGION_LAYER_BRANCH_GRADIENT, 0, true},
        {TP_REGION_LAYER_HIDDEN_GRADIENT, 0, true},
        {TP_REGION_LAYER_OUTPUT_GRADIENT, 0, true},
        {TP_REGION_OUTPUT, 96 * 20, false},
        {TP_REGION_BACKWARD, 4 * 26 * 20, false},
        {TP_REGION_NORMED, 26 * 20, false},
        {TP_REGION_NORMED_GRADIENT, 26 * 20, false},
        {TP_REGION_QKV, 26 * 60, false},
        {TP_REGION_ATTENTION_GRADIENT, 26 * 20, false},
        {TP_REGION_QUERY_GRADIENT, 26 * 20, false},
        {TP_REGION_GELU, 26 * 70, false},
        {TP_REGION_GELU_GRADIENT, 26 * 70, false},
        {TP_REGION_INPUT_TOKENS, 5 * 32, false},
        {TP_REGION_TARGET_TOKENS, 5 * 32, false},
        {TP_REGION_FINAL_NORM, 96 * 2, false},
        {TP_REGION_FINAL_GRADIENT, 96 * 20, false},
        {TP_REGION_LOGITS, 26 * 61, false},
        {TP_REGION_LOGIT_SUMS, 26 * 3, false},
        {TP_REGION_LAYER_PANELS, 48 * 60 + 48 * 20 + 48 * 70 + 48 * 70, true},
        {TP_REGION_LAYER_PANELS_BACKWARD, 48 * 60 + 48 * 20 + 48 * 70 + 48 * 70, true},
        {TP_REGION_HEAD_PANELS, 48 * 61, false},
        {TP_REGION_HEAD_PANELS_BACKWARD, 48 * 61, false},
        {TP_REGION_GRADIENT_PANELS, 26 * 96, false},
        {TP_REGION_LOSS, 5 * 32, false},
        {TP_REGION_HEAD_GRADIENT, 61 * 20, false},
        {TP_REGION_TIED, 0, false},
        {TP_REGION_SUMS, 4 * 12 + 4, false}, /* all tensors are below one block */
    };

    ck_assert_uint_eq(sizeof known / sizeof *known, TP_REGION_COUNT);
    for (int i = 0; i < TP_REGION_COUNT; i++) {
        ck_assert_int_eq(known[i].region, i);
        ck_assert_msg(tp_region_count(i, &shape) == known[i].count, "%s", tp_region_name(i));
        ck_assert(tp_region_is_per_layer(i) == known[i].per_layer);
        for (int k = 0; k < i; k++)
            ck_assert_str_ne(tp_region_name(i), tp_region_name(k));
    }
}
END_TEST

/* Results' gradients live as long as activations; a group's are one product. */
START_TEST(delayed_gradients_are_kept)
{
    const struct tp_stage_shape at_once = shape_of(1, 2, true);
    struct tp_stage_shape shape = at_once;
    shape.panel = 48;
    shape.delay_wgrad = true;
    const struct {
        enum tp_region region;
        size_t count;
    } known[] = {
        {TP_REGION_LAYER_QKV_GRADIENT, 96 * 60},
        {TP_REGION_LAYER_BRANCH_GRADIENT, 96 * 20},
        {TP_REGION_LAYER_HIDDEN_GRADIENT, 96 * 70},
        {TP_REGION_LAYER_OUTPUT_GRADIENT, 96 * 20},
        {TP_REGION_GELU_GRADIENT, 0},
        {TP_REGION_GRADIENT_PANELS, 2 * 32 * 96},
    };

    ck_assert_uint_eq(tp_gradient_rows(&at_once), 26);
    ck_assert_uint_eq(tp_gradient_rows(&shape), 2 * 32);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ck_assert_msg(tp_region_count(known[i].region, &shape) == known[i].count, "%s",
                      tp_region_name(known[i].region));
    shape.train = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ck_assert_uint_eq(tp_region_count(known[i].region, &shape), 0);
}
END_TEST

static bool has(const struct tp_stage_shape *shape, enum tp_region region)
{
    return tp_region_count(region, shape) > 0;
}

START_TEST(stages_have_what_they_need)
{
    struct tp_stage_shape whole = shape_of(0, 4, true), first = shape_of(0, 2, true),
                          middle = shape_of(2, 1, true), last = shape_of(3, 1, true);

    ck_assert(has(&first, TP_REGION_INPUT_TOKENS) && !has(&middle, TP_REGION_INPUT_TOKENS) &&
              !has(&last, TP_REGION_INPUT_TOKENS));
    static const enum tp_region at_the_end[] = {TP_REGION_TARGET_TOKENS, TP_REGION_FINAL_NORM,
                                                TP_REGION_FINAL_GRADIENT, TP_REGION_LOGITS,
                                                TP_REGION_LOSS};
    for (size_t i = 0; i < sizeof at_the_end / sizeof *at_the_end; i++)
        ck_assert(!has(&first, at_the_end[i]) && !has(&middle, at_the_end[i]) &&
                  has(&last, at_the_end[i]) && has(&whole, at_the_end[i]));

    ck_assert(has(&whole, TP_REGION_HEAD_GRADIENT) && !has(&first, TP_REGION_HEAD_GRADIENT) &&
              !has(&middle, TP_REGION_HEAD_GRADIENT) && !has(&last, TP_REGION_HEAD_GRADIENT));
    ck_assert(!has(&whole, TP_REGION_TIED) && has(&first, TP_REGION_TIED) &&
              !has(&middle, TP_REGION_TIED) && has(&last, TP_REGION_TIED));

    ck_assert_uint_eq(tp_region_count(TP_REGION_OUTPUT, &first), 4 * 26 * 20);
    ck_assert_uint_eq(tp_region_count(TP_REGION_OUTPUT, &middle), 4 * 26 * 20);
    ck_assert_uint_eq(tp_region_count(TP_REGION_OUTPUT, &last), 96 * 20);

    ck_assert_uint_eq(tp_region_count(TP_REGION_SUMS, &first), 2 * 12 + 2);
    ck_assert_uint_eq(tp_region_count(TP_REGION_SUMS, &middle), 12);
    ck_assert_uint_eq(tp_region_count(TP_REGION_SUMS, &last), 12 + 3);
}
END_TEST

START_TEST(evaluation_has_no_backward_memory)
{
    static const enum tp_region backward[] = {TP_REGION_LAYER_KEY_GRADIENT,
                                              TP_REGION_LAYER_VALUE_GRADIENT,
                                              TP_REGION_BACKWARD,
                                              TP_REGION_NORMED_GRADIENT,
                                              TP_REGION_ATTENTION_GRADIENT,
                                              TP_REGION_QUERY_GRADIENT,
                                              TP_REGION_GELU_GRADIENT,
                                              TP_REGION_FINAL_GRADIENT,
                                              TP_REGION_HEAD_GRADIENT,
                                              TP_REGION_TIED,
                                              TP_REGION_SUMS};
    int n = sizeof backward / sizeof *backward;

    for (int n_layer = 1; n_layer <= 4; n_layer++) {
        for (int first = 0; first + n_layer <= 4; first++) {
            struct tp_stage_shape training = shape_of(first, n_layer, true);
            struct tp_stage_shape evaluation = shape_of(first, n_layer, false);
            for (int i = 0; i < TP_REGION_COUNT; i++) {
                bool dropped = false;
                for (int k = 0; k < n; k++)
                    dropped = dropped || (int)backward[k] == i;
                ck_assert_uint_eq(tp_region_count(i, &evaluation),
                                  dropped ? 0 : tp_region_count(i, &training));
            }
        }
    }
}
END_TEST

static size_t rounded(size_t bytes, size_t align)
{
    return (bytes + align - 1) / align * align;
}

/* The stage's bytes are the sum of all regions and tensors, each rounded up. */
START_TEST(the_whole_is_the_sum)
{
    for (int n_layer = 1; n_layer <= 4; n_layer++) {
        for (int first = 0; first + n_layer <= 4; first++) {
            for (int train = 0; train < 2; train++) {
                struct tp_stage_shape shape = shape_of(first, n_layer, train);
                struct tp_parameters parameters;
                size_t sum = 0;
                ck_assert_int_eq(tp_parameters_init(&parameters, &shape.model), TP_OK);
                for (int i = 0; i < tp_bucket_count(&shape.model); i++) {
                    struct tp_bucket bucket;
                    tp_bucket_describe(&shape.model, i, 1, 0, &bucket);
                    if (tp_parameter_on_stage(&parameters.at[bucket.row], &shape.model,
                                              &shape.layers))
                        sum += (train ? 4 : 1) * rounded(4 * bucket.count, 4096);
                }
                for (int i = 0; i < TP_REGION_COUNT; i++)
                    sum += (!tp_region_is_per_layer(i)   ? 1
                            : i == TP_REGION_LAYER_INPUT ? (size_t)n_layer - 1
                                                         : (size_t)n_layer) *
                           rounded(4 * tp_region_count(i, &shape), 4096);
                ck_assert_uint_eq(tp_stage_bytes(&shape, &paged), sum);
                ck_assert_uint_lt(tp_stage_bytes(&shape, &plain), sum);
                tp_parameters_fini(&parameters);
            }
        }
    }
}
END_TEST

START_TEST(more_never_takes_less)
{
    struct tp_stage_shape base = shape_of(0, 2, true), more[10];
    size_t bytes = tp_stage_bytes(&base, &paged);

    for (int i = 0; i < 10; i++)
        more[i] = base;
    more[0].layers.n_layer++;
    more[1].seq_len += 8;
    more[2].batch++;
    more[3].group++;
    more[4].rows += 500;
    more[5].unit_rows += 500;
    more[6].slots++;
    more[7].model.n_inner += 500;
    more[8].caches++;
    more[9].input_rows += 500;
    for (int i = 0; i < 10; i++)
        ck_assert_uint_gt(tp_stage_bytes(&more[i], &plain), tp_stage_bytes(&base, &plain));
    for (int i = 0; i < 10; i++)
        ck_assert_uint_ge(tp_stage_bytes(&more[i], &paged), bytes);
    base.train = false;
    ck_assert_uint_lt(tp_stage_bytes(&base, &paged), bytes);
}
END_TEST

/* Panels of both directions are kept where these alternate, else one's after the other. */
START_TEST(directions_share_panels)
{
    static const struct tp_footprint panels = {.align = 1, .element_bytes = 4, .panel = 48};
    struct tp_stage_shape phases = shape_of(0, 2, true), alternating = phases;

    phases.panel = 48;
    alternating.alternates = true;
    ck_assert_uint_eq(tp_stage_bytes(&alternating, &panels) - tp_stage_bytes(&phases, &panels),
                      2 * 4 * tp_region_count(TP_REGION_LAYER_PANELS, &phases));
    ck_assert_uint_eq(tp_region_count(TP_REGION_LAYER_PANELS_BACKWARD, &phases), 0);
    alternating.train = false;
    ck_assert_uint_eq(tp_region_count(TP_REGION_LAYER_PANELS_BACKWARD, &alternating), 0);
}
END_TEST

START_TEST(partial_sums_of_large_tensors)
{
    struct tp_stage_shape shape = shape_of(0, 12, true);
    struct tp_parameters parameters;
    size_t blocks = 0;

    ck_assert_int_eq(tp_model_preset("gpt2", &shape.model), TP_OK);
    ck_assert_int_eq(tp_parameters_init(&parameters, &shape.model), TP_OK);
    for (int i = 0; i < parameters.count; i++)
        blocks += rounded(parameters.at[i].count, TP_SUM_BLOCK) / TP_SUM_BLOCK;
    ck_assert_uint_eq(tp_region_count(TP_REGION_SUMS, &shape), blocks);
    tp_parameters_fini(&parameters);
}
END_TEST

START_TEST(head_rows_and_stride)
{
    struct tp_stage_shape shape = shape_of(0, 4, true);
    static const int strides[][2] = {{1, 16}, {16, 16}, {17, 32}, {64, 64}, {250, 256}};

    shape.unit_rows = 100000;
    shape.model.vocab_size = 50257;
    ck_assert_uint_eq(tp_head_rows(&shape), (8 << 20) / 50257);
    shape.unit_rows = 3;
    ck_assert_uint_eq(tp_head_rows(&shape), 3);
    shape.unit_rows = 1000;
    shape.model.vocab_size = 1 << 28;
    ck_assert_uint_eq(tp_head_rows(&shape), 16);
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        shape.model.n_head = 3;
        shape.model.n_embd = 3 * strides[i][0];
        ck_assert_int_eq(tp_head_stride(&shape.model), strides[i][1]);
    }
}
END_TEST

START_TEST(what_does_not_fit_is_the_largest_size)
{
    struct tp_stage_shape shape = shape_of(0, 4, true);

    shape.rows = SIZE_MAX / 16;
    ck_assert_uint_eq(tp_region_count(TP_REGION_LAYER_INPUT, &shape), SIZE_MAX);
    ck_assert_uint_eq(tp_footprint_bytes(&paged, SIZE_MAX), SIZE_MAX);
    ck_assert_uint_eq(tp_footprint_bytes(&paged, SIZE_MAX / 4), SIZE_MAX);
    ck_assert_uint_eq(tp_stage_bytes(&shape, &paged), SIZE_MAX);
    ck_assert_uint_eq(tp_footprint_bytes(&paged, 0), 0);
    ck_assert_uint_eq(tp_footprint_bytes(&paged, 1), 4096);
    ck_assert_uint_eq(tp_footprint_bytes(&paged, 1025), 8192);
}
END_TEST

/* Op ranks share heads, inner width and vocabulary; the largest part counts. */
START_TEST(op_ranks_have_parts)
{
    struct tp_stage_shape shape = shape_of(0, 4, true);
    const size_t whole = tp_stage_parameters(&shape), bytes = tp_stage_bytes(&shape, &plain);
    const size_t matrices = 4 * (4 * 20 * 20 + 2 * 20 * 70 + 3 * 20 + 70) + 60 * 20;

    shape.op = 1;
    ck_assert_uint_eq(tp_stage_parameters(&shape), whole);
    ck_assert_uint_eq(tp_stage_bytes(&shape, &plain), bytes);
    shape.op = 2;
    ck_assert_uint_eq(tp_stage_parameters(&shape), whole - matrices / 2);
    ck_assert_uint_eq(tp_region_count(TP_REGION_LAYER_INPUT, &shape), 96 * 20);
    ck_assert_uint_eq(tp_region_count(TP_REGION_LAYER_HIDDEN, &shape), 96 * 35);
    ck_assert_uint_eq(tp_region_count(TP_REGION_LAYER_KEY, &shape), 3 * 32 * 16);
    ck_assert_uint_eq(tp_region_count(TP_REGION_LOGITS, &shape), 26 * 31);
    shape.op_rank = 1;
    ck_assert_uint_eq(tp_region_count(TP_REGION_LOGITS, &shape), 26 * 30);
    shape.op_rank = 0;
    ck_assert_uint_lt(tp_stage_bytes(&shape, &plain), bytes);
}
END_TEST

/* Replicas share moments; each has all weights and gradients. */
START_TEST(replicas_share_moments)
{
    struct tp_stage_shape shape = shape_of(0, 4, true);
    const size_t bytes = tp_stage_bytes(&shape, &plain);
    size_t moments = 0;

    for (int i = 0; i < tp_bucket_count(&shape.model); i++) {
        struct tp_bucket bucket;
        tp_bucket_describe(&shape.model, i, 1, 0, &bucket);
        moments += 2 * 4 * bucket.count;
    }
    shape.shards = 2;
    ck_assert_uint_eq(tp_stage_bytes(&shape, &plain), bytes - moments / 2);
}
END_TEST

/* With recompute only the stage's input lives on, and keys and values. */
START_TEST(recompute_keeps_inputs_alone)
{
    struct tp_stage_shape shape = shape_of(1, 2, true);
    const size_t bytes = tp_stage_bytes(&shape, &plain);
    const size_t row = 3 * 20 + 2 * 2 + 2 + 70; /* a layer's, and 20 between two of them */

    shape.recompute = true;
    ck_assert_uint_eq(tp_region_count(TP_REGION_INPUT, &shape), 122 * 20);
    ck_assert_uint_eq(tp_region_count(TP_REGION_LAYER_HIDDEN, &shape), 26 * 70);
    ck_assert_uint_eq(tp_region_count(TP_REGION_LAYER_KEY, &shape), 3 * 2 * 32 * 16);
    ck_assert_uint_eq(tp_stage_bytes(&shape, &plain), bytes - 4 * (96 - 26) * (2 * row + 20));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("sizes");

    tcase_add_test(cases, regions_are_as_documented);
    tcase_add_test(cases, delayed_gradients_are_kept);
    tcase_add_test(cases, op_ranks_have_parts);
    tcase_add_test(cases, replicas_share_moments);
    tcase_add_test(cases, recompute_keeps_inputs_alone);
    tcase_add_test(cases, stages_have_what_they_need);
    tcase_add_test(cases, evaluation_has_no_backward_memory);
    tcase_add_test(cases, the_whole_is_the_sum);
    tcase_add_test(cases, more_never_takes_less);
    tcase_add_test(cases, directions_share_panels);
    tcase_add_test(cases, partial_sums_of_large_tensors);
    tcase_add_test(cases, head_rows_and_stride);
    tcase_add_test(cases, what_does_not_fit_is_the_largest_size);
    return expect_run(cases);
}
