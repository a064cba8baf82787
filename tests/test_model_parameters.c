/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "model/parameters.h"

#include <math.h>

#include "expect.h"

static struct tp_model model;
static struct tp_parameters parameters;

static void setup(void)
{
    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    model.n_inner = 3000;
    ck_assert_int_eq(tp_parameters_init(&parameters, &model), TP_OK);
}

static void teardown(void)
{
    tp_parameters_fini(&parameters);
}

static const struct tp_parameter *named(const char *name)
{
    for (int i = 0; i < parameters.count; i++)
        if (strcmp(parameters.at[i].name, name) == 0)
            return &parameters.at[i];
    return NULL;
}

START_TEST(the_table)
{
    static const struct {
        const char *name;
        int row, ndim;
        size_t shape[2];
    } known[] = {
        {"wte.weight", 0, 2, {50257, 768}},
        {"wpe.weight", 1, 2, {1024, 768}},
        {"h.0.ln_1.weight", 2, 1, {768, 1}},
        {"h.0.attn.c_attn.weight", 4, 2, {768, 2304}},
        {"h.0.attn.c_attn.bias", 5, 1, {2304, 1}},
        {"h.0.attn.c_proj.weight", 6, 2, {768, 768}},
        {"h.1.mlp.c_fc.weight", 22, 2, {768, 3000}},
        {"h.1.mlp.c_fc.bias", 23, 1, {3000, 1}},
        {"h.11.mlp.c_proj.weight", 144, 2, {3000, 768}},
        {"h.11.mlp.c_proj.bias", 145, 1, {768, 1}},
        {"ln_f.weight", 146, 1, {768, 1}},
        {"ln_f.bias", 147, 1, {768, 1}},
    };

    ck_assert_int_eq(parameters.count, 148);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct tp_parameter *parameter = &parameters.at[known[i].row];
        ck_assert_str_eq(parameter->name, known[i].name);
        ck_assert_int_eq(parameter->ndim, known[i].ndim);
        ck_assert_mem_eq(parameter->shape, known[i].shape, sizeof parameter->shape);
        ck_assert_uint_eq(parameter->count, parameter->shape[0] * parameter->shape[1]);
        ck_assert(parameter->decay == (known[i].ndim == 2));
    }
    ck_assert_int_eq(tp_parameter_of_layer(1, TP_FC_WEIGHT), 22);
    ck_assert_int_eq(tp_parameter_final_norm(&model), 146);
}
END_TEST

START_TEST(names_and_counts)
{
    int64_t sum = 0;

    for (int i = 0; i < parameters.count; i++) {
        ck_assert_ptr_eq(named(parameters.at[i].name), &parameters.at[i]); /* names differ */
        ck_assert(parameters.at[i].tied == (i == TP_PARAMETER_WTE));
        sum += (int64_t)parameters.at[i].count;
    }
    ck_assert_int_eq(sum, tp_model_parameter_count(&model));
}
END_TEST

/* Every parameter is owned by one stage, and held by no other, except wte by the last. */
START_TEST(stages_part_the_parameters)
{
    for (int n_stages = 1; n_stages <= model.n_layer; n_stages++) {
        for (int i = 0; i < parameters.count; i++) {
            const struct tp_parameter *parameter = &parameters.at[i];
            int owners = 0, holders = 0, first = 0;
            for (int k = 0; k < n_stages; k++) {
                int last = model.n_layer * (k + 1) / n_stages;
                struct tp_stage_layers stage = {first, last - first};
                bool held = tp_parameter_on_stage(parameter, &model, &stage);
                bool owned = tp_parameter_owned(parameter, &model, &stage);
                ck_assert(!owned || held);
                ck_assert(!owned || holders == 0); /* the first that holds it */
                ck_assert(!owned || parameter->layer < 0 ||
                          (parameter->layer >= first && parameter->layer < last));
                owners += owned;
                holders += held;
                ck_assert(tp_stage_is_first(&stage) == (k == 0));
                ck_assert(tp_stage_is_last(&stage, &model) == (k == n_stages - 1));
                first = last;
            }
            ck_assert_int_eq(owners, 1);
            ck_assert_int_eq(holders, parameter->tied && n_stages > 1 ? 2 : 1);
        }
    }
}
END_TEST

static void moments(int row, double *mean, double *deviation)
{
    enum { N = 40000 };
    float *x = malloc(N * sizeof *x);
    double sum = 0, squares = 0;

    tp_parameter_initial(&parameters, row, 1337, 0, N, x);
    for (int i = 0; i < N; i++)
        sum += x[i];
    for (int i = 0; i < N; i++)
        squares += (x[i] - sum / N) * (x[i] - sum / N);
    *mean = sum / N;
    *deviation = sqrt(squares / N);
    free(x);
}

START_TEST(initial_values_are_those_of_gpt2)
{
    static const struct {
        enum tp_layer_tensor tensor;
        double mean, deviation;
    } layer[] = {
        {TP_LN_1_WEIGHT, 1, 0},    {TP_LN_1_BIAS, 0, 0},
        {TP_ATTN_WEIGHT, 0, 0.02}, {TP_ATTN_BIAS, 0, 0},
        {TP_LN_2_WEIGHT, 1, 0},    {TP_FC_WEIGHT, 0, 0.02},
        {TP_MLP_PROJ_BIAS, 0, 0},  {TP_ATTN_PROJ_WEIGHT, 0, 0.02 / 4.898979485566356},
        {TP_FC_BIAS, 0, 0},        {TP_MLP_PROJ_WEIGHT, 0, 0.02 / 4.898979485566356},
    };
    double mean, deviation;

    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        moments(tp_parameter_of_layer(3, layer[i].tensor), &mean, &deviation);
        ck_assert(fabs(mean - layer[i].mean) <= 0.025 * layer[i].deviation);
        ck_assert(fabs(deviation - layer[i].deviation) <= 0.02 * layer[i].deviation);
    }
    moments(TP_PARAMETER_WTE, &mean, &deviation);
    ck_assert(fabs(deviation - 0.02) < 0.0004);
    moments(TP_PARAMETER_WPE, &mean, &deviation);
    ck_assert(fabs(deviation - 0.02) < 0.0004);
    moments(tp_parameter_final_norm(&model), &mean, &deviation);
    ck_assert(mean == 1 && deviation == 0);
    moments(tp_parameter_final_norm(&model) + 1, &mean, &deviation);
    ck_assert(mean == 0 && deviation == 0);
}
END_TEST

START_TEST(initial_values_depend_on_seed_row_and_element)
{
    float whole[50], part[50], other[50];
    int row = tp_parameter_of_layer(0, TP_FC_WEIGHT);

    tp_parameter_initial(&parameters, row, 1, 1000, 50, whole);
    for (size_t i = 0; i < 50; i++) {
        tp_parameter_initial(&parameters, row, 1, 1000 + i, 1, part);
        ck_assert(part[0] == whole[i]);
    }
    tp_parameter_initial(&parameters, row, 2, 1000, 50, other);
    ck_assert_mem_ne(whole, other, sizeof whole);
    tp_parameter_initial(&parameters, tp_parameter_of_layer(1, TP_FC_WEIGHT), 1, 1000, 50, other);
    ck_assert_mem_ne(whole, other, sizeof whole);
}
END_TEST

/* Parts of every number of op ranks put back together are the whole. */
START_TEST(op_ranks_share_what_they_split)
{
    static float whole[40 * 3 * 12], part[40 * 3 * 12], again[40 * 3 * 12];
    const struct tp_model small = {
        .n_layer = 2, .n_embd = 12, .n_head = 6, .n_inner = 31, .vocab_size = 29, .n_positions = 7};

    for (int row = 0; row < tp_parameter_final_norm(&small) + 2; row++) {
        struct tp_parameter parameter;
        tp_parameter_describe(&small, row, &parameter);
        ck_assert_uint_eq(parameter.outer * parameter.length * parameter.inner, parameter.count);
        for (size_t i = 0; i < parameter.count; i++)
            whole[i] = (float)i;
        for (int op = 1; op <= 6; op++) {
            size_t sum = 0;
            if (small.n_head % op != 0)
                continue;
            memset(again, 0, sizeof again);
            for (int rank = 0; rank < op; rank++) {
                sum += tp_parameter_held(&parameter, op, rank);
                tp_parameter_take(&parameter, op, rank, whole, part);
                tp_parameter_put(&parameter, op, rank, part, again);
            }
            ck_assert_uint_eq(sum, parameter.split ? parameter.count : parameter.count * op);
            ck_assert_mem_eq(whole, again, parameter.count * sizeof *whole);
        }
    }
}
END_TEST

/* Op rank 1 of 2 has the second half of the heads' columns in each of Q, K and V; of biases before
 * a sum every rank has all. */
START_TEST(heads_are_split_in_q_k_and_v)
{
    static float whole[768 * 2304], part[768 * 2304];
    const struct tp_parameter *qkv = named("h.3.attn.c_attn.weight");

    for (size_t i = 0; i < qkv->count; i++)
        whole[i] = (float)i;
    ck_assert_uint_eq(tp_parameter_held(qkv, 2, 1), qkv->count / 2);
    tp_parameter_take(qkv, 2, 1, whole, part);
    for (size_t r = 0; r < 768; r += 767)
        for (size_t c = 0; c < 3 * 384; c++)
            ck_assert_float_eq(part[r * 3 * 384 + c],
                               whole[r * 2304 + c / 384 * 768 + 384 + c % 384]);
    static const char *const shared[] = {"wpe.weight", "h.0.ln_1.bias", "h.0.attn.c_proj.bias",
                                         "h.0.mlp.c_proj.bias", "ln_f.weight"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        ck_assert(!named(shared[i])->split);
    ck_assert_uint_eq(tp_parameter_held(named("wte.weight"), 2, 0), 25129 * 768);
    ck_assert_uint_eq(tp_parameter_held(named("wte.weight"), 2, 1), 25128 * 768);
    ck_assert_uint_eq(tp_parameter_held(named("h.0.mlp.c_fc.bias"), 2, 1), 1500);
}
END_TEST

/* Buckets are the table, in order, and replicas share each of them without gap or overlap. */
START_TEST(buckets_cover_the_table)
{
    int next = 0;

    for (int bucket = 0; bucket < tp_bucket_count(&model); bucket++) {
        struct tp_bucket of;
        size_t room = 0;
        tp_bucket_describe(&model, bucket, 3, 1, &of);
        ck_assert_int_eq(of.row, next);
        for (int row = of.row; row < of.row + of.n_rows; row++) {
            ck_assert_int_eq(tp_bucket_of(&model, row), bucket);
            ck_assert_uint_eq(tp_bucket_room(&parameters.at[row], 3, 1) % 16, 0);
            room += tp_bucket_room(&parameters.at[row], 3, 1);
        }
        ck_assert_uint_eq(of.count, room);
        next += of.n_rows;
    }
    ck_assert_int_eq(next, parameters.count);
    for (int row = 0; row < parameters.count; row++)
        for (int shards = 1; shards <= 5; shards++) {
            size_t end = 0;
            for (int shard = 0; shard < shards; shard++) {
                struct tp_share mine = tp_parameter_shard(&model, row, 3, 1, shards, shard);
                ck_assert(mine.count == 0 || mine.first == end);
                end += mine.count;
            }
            ck_assert_uint_eq(end, tp_parameter_held(&parameters.at[row], 3, 1));
        }
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("parameters");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, the_table);
    tcase_add_test(cases, names_and_counts);
    tcase_add_test(cases, op_ranks_share_what_they_split);
    tcase_add_test(cases, heads_are_split_in_q_k_and_v);
    tcase_add_test(cases, buckets_cover_the_table);
    tcase_add_test(cases, stages_part_the_parameters);
    tcase_add_test(cases, initial_values_are_those_of_gpt2);
    tcase_add_test(cases, initial_values_depend_on_seed_row_and_element);
    return expect_run(cases);
}
