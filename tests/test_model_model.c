/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "model/model.h"

#include <math.h>

#include "expect.h"

static char *folder;
static struct tp_model model;

static void setup(void)
{
    folder = scratch_new();
}

static void teardown(void)
{
    scratch_free(folder);
}

/* ---- Presets ---- */

START_TEST(presets_are_the_published_models)
{
    static const struct {
        const char *name;
        int n_layer, n_embd, n_head, n_positions;
        int64_t parameters; /* 0: known only as about */
        double about;
    } known[] = {
        {"gpt2", 12, 768, 12, 1024, 124439808, 0},
        {"gpt2-medium", 24, 1024, 16, 1024, 354823168, 0},
        {"gpt2-large", 36, 1280, 20, 1024, 774030080, 0},
        {"gpt2-xl", 48, 1600, 25, 1024, 1557611200, 0},
        {"gpt3-1b", 24, 2048, 16, 2048, 0, 1.3e9},
        {"gpt3-13b", 40, 5120, 40, 2048, 0, 13e9},
        {"gpt3-44b", 96, 6144, 48, 2048, 0, 44e9},
        {"gpt3-175b", 96, 12288, 96, 2048, 0, 175e9},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ck_assert(tp_model_is_preset(known[i].name));
        ck_assert_int_eq(tp_model_preset(known[i].name, &model), TP_OK);
        ck_assert_int_eq(tp_model_check(&model, "preset"), TP_OK);
        ck_assert_int_eq(model.n_layer, known[i].n_layer);
        ck_assert_int_eq(model.n_embd, known[i].n_embd);
        ck_assert_int_eq(model.n_head, known[i].n_head);
        ck_assert_int_eq(model.n_inner, 4 * known[i].n_embd);
        ck_assert_int_eq(model.n_positions, known[i].n_positions);
        ck_assert_int_eq(model.vocab_size, 50257);
        int64_t count = tp_model_parameter_count(&model);
        if (known[i].parameters)
            ck_assert_int_eq(count, known[i].parameters);
        else
            ck_assert(fabs((double)count / known[i].about - 1) < 0.05);
    }
    ck_assert_int_eq(tp_model_preset("tiny", &model), TP_OK);
    ck_assert_int_eq(tp_model_check(&model, "tiny"), TP_OK);
    ck_assert_int_eq(tp_model_preset("small", &model), TP_OK);
    ck_assert_int_eq(tp_model_check(&model, "small"), TP_OK);
    ck_assert(!tp_model_is_preset("gpt4") && !tp_model_is_preset(""));
    expect_fail(TP_ERR_INPUT, "gpt2-medium", tp_model_preset("gpt4", &model));
}
END_TEST

START_TEST(a_step_costs_six_operations_a_weight)
{
    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    double matrices = 12 * 12 * 768.0 * 768 + 50257.0 * 768;
    double expected = (6 * matrices + 6 * 12 * 768.0 * 1024) * 1024 * 8;
    ck_assert(fabs(tp_model_step_flops(&model, 1024, 8) / expected - 1) < 1e-12);
}
END_TEST

/* ---- config.json ---- */

#define INTEGERS(layers, heads)                                                                    \
    "\"n_layer\": " layers ", \"n_embd\": 48, \"n_head\": " heads                                  \
    ", \"vocab_size\": 97, \"n_positions\": 64"
#define GOOD INTEGERS("4", "4")

static enum tp_status load(const char *text, size_t size)
{
    return tp_model_load(scratch_file(folder, "config.json", text, size), &model);
}

START_TEST(a_file_and_its_folder)
{
    const char *text = "{\"model_type\": \"gpt2\", \"n_inner\": null, \"unknown\": {}, " GOOD "}";
    const char *path = scratch_file(folder, "config.json", text, strlen(text));
    struct tp_model other;

    ck_assert_int_eq(tp_model_load(path, &model), TP_OK);
    ck_assert_int_eq(tp_model_load(folder, &other), TP_OK);
    ck_assert_mem_eq(&model, &other, sizeof model);
    ck_assert_int_eq(model.n_layer, 4);
    ck_assert_int_eq(model.n_embd, 48);
    ck_assert_int_eq(model.n_head, 4);
    ck_assert_int_eq(model.n_inner, 192);
    ck_assert_int_eq(model.vocab_size, 97);
    ck_assert_int_eq(model.n_positions, 64);
    ck_assert(model.layer_norm_epsilon == 1e-5 && model.initializer_range == 0.02);
}
END_TEST

START_TEST(saved_models_are_loaded_as_they_were)
{
    const char *path = scratch_path(folder, "saved.json");
    struct tp_model loaded;

    ck_assert_int_eq(tp_model_preset("small", &model), TP_OK);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(tp_model_save(&model, path), TP_OK);
        ck_assert_int_eq(tp_model_load(path, &loaded), TP_OK);
        ck_assert_mem_eq(&model, &loaded, sizeof model);
        model.layer_norm_epsilon /= 3; /* needs all digits */
        model.initializer_range = sqrt(2);
        model.n_inner = 7;
    }
    expect_fail(TP_ERR_IO, "/no-such/c", tp_model_save(&model, "/no-such/c"));
    expect_fail(TP_ERR_IO, "/dev/full", tp_model_save(&model, "/dev/full"));
}
END_TEST

START_TEST(digits_are_as_people_write_them)
{
    char text[2048];
    const char *path = scratch_path(folder, "saved.json");

    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    ck_assert_int_eq(tp_model_save(&model, path), TP_OK);
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "\"layer_norm_epsilon\": 1e-5"));
    ck_assert_ptr_nonnull(strstr(text, "\"initializer_range\": 0.02"));
    ck_assert_ptr_nonnull(strstr(text, "\"architectures\""));
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
}
END_TEST

START_TEST(dropout_is_ignored_with_a_note)
{
    const char *text = "{\"resid_pdrop\": 0.1, \"embd_pdrop\": 0, \"attn_pdrop\": 0.2, " GOOD "}";

    capture_begin();
    enum tp_status status = load(text, strlen(text));
    const char *output = capture_end();
    ck_assert_int_eq(status, TP_OK);
    expect_one_line(output, "note: ");
    expect_one_line(output, "attn_pdrop is 0.2");

    capture_begin();
    status = load("{" GOOD "}", strlen("{" GOOD "}"));
    ck_assert_str_eq(capture_end(), "");
    ck_assert_int_eq(status, TP_OK);
}
END_TEST

static const struct {
    const char *text, *part;
} refused[] = {
    {"", "line 1"},
    {" \n\n ", "line 3"},
    {"[]", "not a JSON object"},
    {"7", "config.json"},
    {"{" GOOD, "line 1"},
    {"{" GOOD "} x", "line 1"},
    {"{" GOOD ", \"n_layer\": 4}", "duplicate"},
    {"{\"n_embd\": 48}", "vocab_size is missing"},
    {"{" INTEGERS("0", "4") "}", "n_layer is 0, expected 1 to"},
    {"{" INTEGERS("-3", "4") "}", "n_layer is -3"},
    {"{" INTEGERS("10001", "4") "}", "n_layer is 10001"},
    {"{" INTEGERS("4294967300", "4") "}", "n_layer is 4294967300"},
    {"{" INTEGERS("9223372036854775808", "4") "}", "config.json"},
    {"{" INTEGERS("4.0", "4") "}", "n_layer is not an integer"},
    {"{" INTEGERS("1e99", "4") "}", "n_layer is not an integer"},
    {"{" INTEGERS("1e999", "4") "}", "config.json"},
    {"{" INTEGERS("true", "4") "}", "n_layer is not an integer"},
    {"{" INTEGERS("\"4\"", "4") "}", "n_layer is not an integer"},
    {"{" INTEGERS("null", "4") "}", "n_layer is not an integer"},
    {"{" INTEGERS("[4]", "4") "}", "n_layer is not an integer"},
    {"{" INTEGERS("4", "5") "}", "n_embd is 48, expected a multiple of n_head, 5"},
    {"{" INTEGERS("4", "96") "}", "n_embd is 48, expected a multiple of n_head, 96"},
    {"{\"n_inner\": 0, " GOOD "}", "n_inner is 0"},
    {"{\"n_inner\": \"no\", " GOOD "}", "n_inner is not an integer"},
    {"{\"model_type\": \"llama\", " GOOD "}", "model_type is \"llama\", expected \"gpt2\""},
    {"{\"model_type\": 2, " GOOD "}", "model_type is not a string"},
    {"{\"activation_function\": \"relu\", " GOOD "}", "activation_function is \"relu\""},
    {"{\"tie_word_embeddings\": false, " GOOD "}", "tie_word_embeddings has to be true"},
    {"{\"tie_word_embeddings\": 1, " GOOD "}", "tie_word_embeddings has to be true"},
    {"{\"scale_attn_weights\": false, " GOOD "}", "scale_attn_weights has to be true"},
    {"{\"scale_attn_by_inverse_layer_idx\": true, " GOOD "}",
     "scale_attn_by_inverse_layer_idx has to be false"},
    {"{\"reorder_and_upcast_attn\": true, " GOOD "}", "reorder_and_upcast_attn has to be false"},
    {"{\"add_cross_attention\": true, " GOOD "}", "add_cross_attention has to be false"},
    {"{\"layer_norm_epsilon\": 0, " GOOD "}", "layer_norm_epsilon is 0"},
    {"{\"layer_norm_epsilon\": \"1e-5\", " GOOD "}", "layer_norm_epsilon is not a number"},
    {"{\"initializer_range\": -1, " GOOD "}", "initializer_range is -1"},
    {"{\"a\": \"\xff\xfe\", " GOOD "}", "config.json"},
};

START_TEST(refusals)
{
    expect_fail(TP_ERR_INPUT, refused[_i].part, load(refused[_i].text, strlen(refused[_i].text)));
}
END_TEST

START_TEST(hostile_files)
{
    enum { DEEP = 1000000 };
    char *deep = malloc(DEEP);

    memset(deep, '[', DEEP);
    expect_fail(TP_ERR_INPUT, "depth", load(deep, DEEP));
    memcpy(deep, "{\"a\":", 5);
    expect_fail(TP_ERR_INPUT, "depth", load(deep, DEEP));
    free(deep);

    const char *path = scratch_file(folder, "config.json", "{", 1);
    ck_assert_int_eq(truncate(path, 1LL << 30), 0);
    expect_fail(TP_ERR_INPUT, "1073741824 bytes", tp_model_load(path, &model));
    expect_fail(TP_ERR_INPUT, "config.json", load("{\"n_layer\0\": 4}", 15));
    expect_fail(TP_ERR_INPUT, "no-such", tp_model_load("/no-such", &model));
    expect_fail(TP_ERR_INPUT, "/config.json", tp_model_load("/dev", &model));
    unlink(path);
    expect_fail(TP_ERR_INPUT, path, tp_model_load(folder, &model));
}
END_TEST

/* A valid file cut off anywhere, or with any byte changed, is refused or loaded: nothing else. */
START_TEST(every_truncation_and_every_flip)
{
    static const char good[] = "{\"model_type\": \"gpt2\", " GOOD ", \"n_inner\": 100}\n";
    char text[sizeof good];

    for (size_t size = 0; size < sizeof good - 2; size++)
        expect_fail(TP_ERR_INPUT, "config.json", load(good, size));
    for (size_t at = 0; at < sizeof good - 1; at++) {
        memcpy(text, good, sizeof good);
        for (int bit = 0; bit < 8; bit++) {
            text[at] = (char)(good[at] ^ 1 << bit);
            capture_begin();
            enum tp_status status = load(text, sizeof good - 1);
            const char *output = capture_end();
            ck_assert(status == TP_OK || status == TP_ERR_INPUT);
            if (status == TP_OK)
                ck_assert_int_eq(tp_model_check(&model, "flipped"), TP_OK);
            else
                expect_one_line(output, "config.json");
        }
    }
}
END_TEST

START_TEST(checks)
{
    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    model.n_head = 2;
    expect_fail(TP_ERR_INPUT, "--model: a head is 384 wide", tp_model_check(&model, "--model"));
    model.n_head = 3;
    ck_assert_int_eq(tp_model_check(&model, "--model"), TP_OK);
    model.layer_norm_epsilon = NAN;
    expect_fail(TP_ERR_INPUT, "layer_norm_epsilon", tp_model_check(&model, "--model"));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("model");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, presets_are_the_published_models);
    tcase_add_test(cases, a_step_costs_six_operations_a_weight);
    tcase_add_test(cases, a_file_and_its_folder);
    tcase_add_test(cases, saved_models_are_loaded_as_they_were);
    tcase_add_test(cases, digits_are_as_people_write_them);
    tcase_add_test(cases, dropout_is_ignored_with_a_note);
    tcase_add_loop_test(cases, refusals, 0, sizeof refused / sizeof *refused);
    tcase_add_test(cases, hostile_files);
    tcase_add_test(cases, every_truncation_and_every_flip);
    tcase_add_test(cases, checks);
    return expect_run(cases);
}
