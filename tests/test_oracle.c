/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle itself: its gradients against finite differences, its training against runs that an
 * independent program made in double precision (tests/data/gpt2-*). */
#include "config.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data/tokens.h"
#include "data/weights.h"
#include "oracle.h"

/* --- finite differences */

enum { SEQUENCES = 2, TOKENS = 7, VOCABULARY = 11 };

static const struct tp_model small = {
    .n_layer = 2,
    .n_embd = 12,
    .n_head = 3,
    .n_inner = 20,
    .vocab_size = VOCABULARY,
    .n_positions = TOKENS + 1,
    .layer_norm_epsilon = 1e-3,
    .initializer_range = 0.02,
};

static struct oracle *oracle;
static int32_t inputs[SEQUENCES * TOKENS], targets[SEQUENCES * TOKENS];

/* Weights far from their usual start, so that no part of the gradient is small. */
static void set_up(void)
{
    oracle = oracle_new(&small);
    for (int row = 0; row < oracle->parameters.count; row++) {
        struct tp_rng rng = {.seed = 7, .use = TP_RNG_INIT, .stream = row};
        for (size_t i = 0; i < oracle->parameters.at[row].count; i++)
            oracle->weights[row][i] = 1.2 * tp_rng_uniform(&rng, i) - 0.4;
    }
    struct tp_rng rng = {.seed = 7, .use = TP_RNG_SAMPLE};
    for (int i = 0; i < SEQUENCES * TOKENS; i++) {
        inputs[i] = tp_rng_below(&rng, 2 * i, VOCABULARY);
        targets[i] = tp_rng_below(&rng, 2 * i + 1, VOCABULARY);
    }
}

static void tear_down(void)
{
    oracle_free(oracle);
}

static double loss_at(double *weight, double value)
{
    double kept = *weight;
    *weight = value;
    double loss = oracle_loss(oracle, inputs, targets, SEQUENCES, TOKENS);
    *weight = kept;
    return loss;
}

/* Central differences of fourth order. */
static double slope(double *weight)
{
    const double h = 1e-3;
    double near = loss_at(weight, *weight + h) - loss_at(weight, *weight - h);
    double far = loss_at(weight, *weight + 2 * h) - loss_at(weight, *weight - 2 * h);
    return (8 * near - far) / (12 * h);
}

/* _i: with dropout. */
START_TEST(gradients_are_slopes_of_the_loss)
{
    enum { ELEMENTS = 12 };
    oracle->dropout =
        (struct oracle_dropout){.p = _i ? 0.3 : 0, .seed = 5, .step = 9, .first_sequence = 2};
    double loss = oracle_loss_and_gradients(oracle, inputs, targets, SEQUENCES, TOKENS);
    ck_assert_double_eq(loss, oracle_loss(oracle, inputs, targets, SEQUENCES, TOKENS));
    for (int row = 0; row < oracle->parameters.count; row++) {
        const struct tp_parameter *parameter = &oracle->parameters.at[row];
        double largest = 0;
        for (int n = 0; n < ELEMENTS; n++) {
            size_t i = n * (parameter->count - 1) / (ELEMENTS - 1);
            double expected = slope(&oracle->weights[row][i]), found = oracle->gradients[row][i];
            ck_assert_msg(fabs(found - expected) <= 1e-6 * fabs(expected) + 1e-10,
                          "%s[%zu]: gradient %.12g, slope %.12g", parameter->name, i, found,
                          expected);
            largest = fmax(largest, fabs(expected));
        }
        ck_assert_msg(largest > 1e-5, "%s: slopes up to %g say nothing", parameter->name, largest);
    }
}
END_TEST

/* The last position is never reached, and a constant added to all keys changes no attention. */
START_TEST(gradients_that_are_zero_are_zero)
{
    int C = small.n_embd;
    oracle_loss_and_gradients(oracle, inputs, targets, SEQUENCES, TOKENS);
    for (int i = 0; i < C; i++)
        ck_assert_double_eq(oracle->gradients[TP_PARAMETER_WPE][TOKENS * C + i], 0);
    for (int layer = 0; layer < small.n_layer; layer++)
        for (int i = C; i < 2 * C; i++)
            ck_assert_double_lt(
                fabs(oracle->gradients[tp_parameter_of_layer(layer, TP_ATTN_BIAS)][i]), 1e-15);
}
END_TEST

/* --- reference runs
 * Their weights are stored as float32, which moves a gradient by some 1e-7, and a weight by more
 * where AdamW divides by a gradient close to zero; nothing else differs. */

static const char *const folders[] = {"gpt2-tiny", "gpt2-odd"};
enum { N_FOLDERS = sizeof folders / sizeof folders[0] };

static char *data_path(const char *folder, const char *name)
{
    static char path[4096];
    const char *root = getenv("srcdir") != NULL ? getenv("srcdir") : ".";
    snprintf(path, sizeof path, "%s/tests/data/%s/%s", root, folder, name);
    return path;
}

/* Reads a file of the model's tensors into arrays like oracle->weights. */
static void read_tensors(const char *path, const struct tp_parameters *parameters, double **out)
{
    struct tp_weights *file;
    ck_assert_int_eq(tp_weights_open(path, parameters, &file), TP_OK);
    for (int row = 0; row < parameters->count; row++) {
        float *data = malloc(parameters->at[row].count * sizeof *data);
        ck_assert_ptr_nonnull(data);
        ck_assert_int_eq(tp_weights_read(file, row, data), TP_OK);
        for (size_t i = 0; i < parameters->at[row].count; i++)
            out[row][i] = data[i];
        free(data);
    }
    tp_weights_close(file);
}

/* Each tensor x agrees with y: the norm of x - y is at most bound times the norm of y. The key
 * third of c_attn.bias is left out: its gradient is rounding noise. */
static void compare(const struct tp_parameters *parameters, int C, double **x, double **y,
                    double bound)
{
    for (int row = 0; row < parameters->count; row++) {
        const struct tp_parameter *parameter = &parameters->at[row];
        bool has_keys = parameter->ndim == 1 && strstr(parameter->name, "c_attn.bias") != NULL;
        double difference = 0, norm = 0;
        for (size_t i = 0; i < parameter->count; i++) {
            if (has_keys && i / C == 1)
                continue;
            difference += (x[row][i] - y[row][i]) * (x[row][i] - y[row][i]);
            norm += y[row][i] * y[row][i];
        }
        ck_assert_msg(sqrt(difference) <= bound * sqrt(norm), "%s: differs by %g of %g",
                      parameter->name, sqrt(difference), sqrt(norm));
    }
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s: not a number", key);
    return json_number_value(value);
}

START_TEST(training_follows_the_reference)
{
    const char *folder = folders[_i];
    json_error_t error;
    json_t *expected = json_load_file(data_path(folder, "expected.json"), 0, &error);
    ck_assert_msg(expected != NULL, "%s: %s", error.source, error.text);
    const json_t *stream = json_object_get(expected, "tokens");
    const json_t *settings = json_object_get(expected, "adamw");
    int T = (int)number(stream, "seq_length"), B = (int)number(stream, "global_batch_size");
    int steps = (int)number(stream, "steps");
    struct tp_adamw adamw = {
        .lr = number(settings, "lr"),
        .beta1 = number(settings, "beta1"),
        .beta2 = number(settings, "beta2"),
        .eps = number(settings, "eps"),
        .weight_decay = number(settings, "weight_decay"),
    };

    struct tp_model model;
    ck_assert_int_eq(tp_model_load(data_path(folder, "config.json"), &model), TP_OK);
    struct oracle *run = oracle_new(&model), *truth = oracle_new(&model);
    read_tensors(data_path(folder, "model.safetensors"), &run->parameters, run->weights);
    struct tp_tokens *tokens;
    const char *path = data_path(folder, "tokens.bin");
    ck_assert_int_eq(tp_tokens_open(&path, 1, T, model.vocab_size, &tokens), TP_OK);
    int32_t *in = malloc((size_t)B * T * sizeof *in), *out = malloc((size_t)B * T * sizeof *out);
    ck_assert(in != NULL && out != NULL);

    for (int step = 0; step < steps; step++) {
        for (int b = 0; b < B; b++)
            ck_assert_int_eq(tp_tokens_sample(tokens, step * B + b, in + b * T, out + b * T),
                             TP_OK);
        double loss = oracle_loss_and_gradients(run, in, out, B, T);
        if (step == 0) {
            read_tensors(data_path(folder, "grad_step0.safetensors"), &run->parameters,
                         truth->gradients);
            compare(&run->parameters, model.n_embd, run->gradients, truth->gradients, 1e-6);
        }
        adamw.step = step + 1;
        double norm = oracle_adamw(run, &adamw, number(settings, "grad_clip"));
        double true_loss =
            json_number_value(json_array_get(json_object_get(expected, "loss"), step));
        double true_norm = json_number_value(
            json_array_get(json_object_get(expected, "grad_norm_before_clip"), step));
        ck_assert_double_eq_tol(loss, true_loss, 1e-7 * true_loss);
        ck_assert_double_eq_tol(norm, true_norm, 1e-6 * true_norm);
    }
    read_tensors(data_path(folder, "model_after.safetensors"), &run->parameters, truth->weights);
    compare(&run->parameters, model.n_embd, run->weights, truth->weights, 1e-5);

    free(in);
    free(out);
    tp_tokens_close(tokens);
    oracle_free(run);
    oracle_free(truth);
    json_decref(expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oracle");
    TCase *slopes = tcase_create("slopes");
    tcase_add_checked_fixture(slopes, set_up, tear_down);
    tcase_add_loop_test(slopes, gradients_are_slopes_of_the_loss, 0, 2);
    tcase_add_test(slopes, gradients_that_are_zero_are_zero);
    suite_add_tcase(suite, slopes);

    TCase *reference = tcase_create("reference");
    tcase_set_timeout(reference, 120);
    tcase_add_loop_test(reference, training_follows_the_reference, 0, N_FOLDERS);
    suite_add_tcase(suite, reference);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
