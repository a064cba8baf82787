/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/weights.h"

#include "expect.h"

static char *folder;
static struct tp_model model;
static struct tp_parameters parameters;
static struct tp_weights *weights;

static void setup(void)
{
    folder = scratch_new();
    weights = NULL;
    model = (struct tp_model){.n_layer = 2,
                              .n_embd = 4,
                              .n_head = 2,
                              .n_inner = 16,
                              .vocab_size = 7,
                              .n_positions = 5,
                              .layer_norm_epsilon = 1e-5,
                              .initializer_range = 0.02};
    ck_assert_int_eq(tp_parameters_init(&parameters, &model), TP_OK);
}

static void teardown(void)
{
    tp_weights_close(weights);
    tp_parameters_fini(&parameters);
    scratch_free(folder);
}

/* One tensor of a test's file: the parameter's own unless a test changes it. */
struct entry {
    char name[64];
    int ndim;
    size_t shape[2];
};

static int n_entries;
static struct entry entries[64];

static void reset_entries(void)
{
    n_entries = parameters.count;
    for (int row = 0; row < n_entries; row++) {
        const struct tp_parameter *parameter = &parameters.at[row];
        struct entry *entry = &entries[row];
        strcpy(entry->name, parameter->name);
        entry->ndim = parameter->ndim;
        memcpy(entry->shape, parameter->shape, sizeof entry->shape);
    }
}

static struct entry *add_entry(const char *name, int ndim, size_t rows, size_t columns)
{
    struct entry *entry = &entries[n_entries++];

    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->ndim = ndim;
    entry->shape[0] = rows;
    entry->shape[1] = columns;
    return entry;
}

/* Writes the entries; all elements of entry i are i. */
static const char *write_entries(void)
{
    const char *path = scratch_path(folder, "model.safetensors");
    struct tp_tensor_info infos[64] = {{0}};
    struct tp_safetensors_writer *writer;
    float values[1024];

    for (int i = 0; i < n_entries; i++) {
        infos[i].name = entries[i].name;
        infos[i].ndim = entries[i].ndim;
        memcpy(infos[i].shape, entries[i].shape, sizeof entries[i].shape);
    }
    ck_assert_int_eq(tp_safetensors_create(path, infos, n_entries, &writer), TP_OK);
    for (int i = 0; i < n_entries; i++) {
        size_t count = entries[i].shape[0] * (entries[i].ndim == 2 ? entries[i].shape[1] : 1);
        for (size_t k = 0; k < count; k++)
            values[k] = (float)i;
        ck_assert_int_eq(tp_safetensors_write(writer, values, count), TP_OK);
    }
    ck_assert_int_eq(tp_safetensors_finish(writer), TP_OK);
    return path;
}

static enum tp_status open_entries(void)
{
    return tp_weights_open(write_entries(), &parameters, &weights);
}

static void check_values(void)
{
    float values[1024];

    for (int row = 0; row < parameters.count; row++) {
        ck_assert_int_eq(tp_weights_read(weights, row, values), TP_OK);
        for (size_t i = 0; i < parameters.at[row].count; i++)
            ck_assert(values[i] == (float)row);
    }
}

START_TEST(what_is_written_is_read)
{
    const char *path = scratch_path(folder, "model.safetensors");
    struct tp_safetensors_writer *writer;
    float values[1024];

    ck_assert_int_eq(tp_weights_create(path, &parameters, &writer), TP_OK);
    for (int row = 0; row < parameters.count; row++) {
        for (size_t i = 0; i < parameters.at[row].count; i++)
            values[i] = (float)row;
        ck_assert_int_eq(tp_safetensors_write(writer, values, parameters.at[row].count), TP_OK);
    }
    ck_assert_int_eq(tp_safetensors_finish(writer), TP_OK);
    ck_assert_int_eq(tp_weights_open(path, &parameters, &weights), TP_OK);
    check_values();
    expect_fail(TP_ERR_IO, "/no-such/x", tp_weights_create("/no-such/x", &parameters, &writer));
}
END_TEST

START_TEST(names_with_the_prefix)
{
    reset_entries();
    for (int i = 0; i < n_entries; i++)
        snprintf(entries[i].name, sizeof entries[i].name, "transformer.%s", parameters.at[i].name);
    ck_assert_int_eq(open_entries(), TP_OK);
    check_values();
}
END_TEST

START_TEST(masks_and_the_head_are_skipped)
{
    reset_entries();
    add_entry("h.0.attn.bias", 2, 5, 5);
    add_entry("transformer.h.1.attn.bias", 2, 5, 5);
    add_entry("h.0.attn.masked_bias", 1, 1, 1);
    add_entry("lm_head.weight", 2, 7, 4);
    ck_assert_int_eq(open_entries(), TP_OK);
    check_values();
}
END_TEST

START_TEST(missing_tensors)
{
    for (int row = 0; row < parameters.count; row++) {
        reset_entries();
        memmove(&entries[row], &entries[row + 1],
                (size_t)(n_entries - row - 1) * sizeof entries[0]);
        n_entries--;
        char part[128];
        snprintf(part, sizeof part, "model.safetensors: %s is missing", parameters.at[row].name);
        expect_fail(TP_ERR_INPUT, part, open_entries());
    }
}
END_TEST

START_TEST(wrong_shapes)
{
    reset_entries();
    entries[0].shape[0] = 8;
    expect_fail(TP_ERR_INPUT, "model.safetensors: wte.weight is [8, 4], expected [7, 4]",
                open_entries());
    reset_entries();
    entries[4].shape[0] = 12; /* as a linear layer's, not GPT-2's */
    entries[4].shape[1] = 4;
    expect_fail(TP_ERR_INPUT, "h.0.attn.c_attn.weight is [12, 4], expected [4, 12]",
                open_entries());
    reset_entries();
    entries[2].ndim = 2;
    entries[2].shape[1] = 1;
    expect_fail(TP_ERR_INPUT, "h.0.ln_1.weight is [4, 1], expected [4]", open_entries());
    reset_entries();
    entries[1].ndim = 1;
    expect_fail(TP_ERR_INPUT, "wpe.weight is [5], expected [5, 4]", open_entries());
}
END_TEST

START_TEST(extra_and_repeated_tensors)
{
    reset_entries();
    add_entry("h.2.ln_1.weight", 1, 4, 1);
    expect_fail(TP_ERR_INPUT, "h.2.ln_1.weight is no tensor of the model", open_entries());
    reset_entries();
    add_entry("transformer.transformer.wte.weight", 2, 7, 4);
    expect_fail(TP_ERR_INPUT, "transformer.transformer.wte.weight is no", open_entries());
    reset_entries();
    add_entry("transformer.wte.weight", 2, 7, 4);
    expect_fail(TP_ERR_INPUT, "transformer.wte.weight is there twice, also as wte.weight",
                open_entries());
}
END_TEST

START_TEST(other_dtypes_and_files)
{
    static const char header[] =
        "{\"wte.weight\":{\"dtype\":\"F16\",\"shape\":[7,4],\"data_offsets\":[0,56]}}";
    char text[256] = {(char)(sizeof header - 1)};

    memcpy(text + 8, header, sizeof header - 1);
    const char *path = scratch_file(folder, "half", text, 8 + sizeof header - 1 + 56);
    expect_fail(TP_ERR_INPUT, "half: wte.weight is F16, expected F32",
                tp_weights_open(path, &parameters, &weights));
    path = scratch_file(folder, "empty", "", 0);
    expect_fail(TP_ERR_INPUT, "empty: has 0 bytes", tp_weights_open(path, &parameters, &weights));
    expect_fail(TP_ERR_INPUT, "/no-such", tp_weights_open("/no-such", &parameters, &weights));
}
END_TEST

/* The reference runs, which another program wrote. */
START_TEST(files_of_another_program)
{
    static const char *const runs[] = {"gpt2-tiny", "gpt2-odd"};
    static const char *const files[] = {"model", "model_after", "grad_step0"};
    const char *root = getenv("srcdir") != NULL ? getenv("srcdir") : ".";
    char path[512];
    float values[16384];

    for (int run = 0; run < 2; run++) {
        snprintf(path, sizeof path, "%s/tests/data/%s", root, runs[run]);
        tp_parameters_fini(&parameters);
        ck_assert_int_eq(tp_model_load(path, &model), TP_OK);
        ck_assert_int_eq(tp_parameters_init(&parameters, &model), TP_OK);
        for (int i = 0; i < 3; i++) {
            snprintf(path, sizeof path, "%s/tests/data/%s/%s.safetensors", root, runs[run],
                     files[i]);
            ck_assert_int_eq(tp_weights_open(path, &parameters, &weights), TP_OK);
            for (int row = 0; row < parameters.count; row++) {
                ck_assert_uint_le(parameters.at[row].count, sizeof values / sizeof *values);
                ck_assert_int_eq(tp_weights_read(weights, row, values), TP_OK);
            }
            tp_weights_close(weights);
            weights = NULL;
        }
    }
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("weights");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, what_is_written_is_read);
    tcase_add_test(cases, names_with_the_prefix);
    tcase_add_test(cases, masks_and_the_head_are_skipped);
    tcase_add_test(cases, missing_tensors);
    tcase_add_test(cases, wrong_shapes);
    tcase_add_test(cases, extra_and_repeated_tensors);
    tcase_add_test(cases, other_dtypes_and_files);
    tcase_add_test(cases, files_of_another_program);
    return expect_run(cases);
}
