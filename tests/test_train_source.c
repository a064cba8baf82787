/* SPDX-License-Identifier: Apache-2.0 */
/* Which model and T the options and what is loaded give. That broken checkpoints are passed over is
 * tested with those that a training writes, in train.c. */
#include "config.h"

#include "base/file.h"
#include "expect.h"
#include "train/source.h"

static char reference[512]; /* a model's folder: 4 layers, 48 wide, 4 heads, 97 tokens, T 64 */

static void set_reference(void)
{
    const char *root = getenv("srcdir") != NULL ? getenv("srcdir") : ".";

    snprintf(reference, sizeof reference, "%s/tests/data/gpt2-tiny", root);
}

START_TEST(models_and_lengths)
{
    const struct {
        struct tp_settings settings;
        bool load;
        int n_layer, vocab_size, n_positions, seq_len;
    } cases[] = {
        {{.model = "gpt2"}, false, 12, 50257, 1024, 1024},
        {{.model = "gpt2", .seq_len = 16}, false, 12, 50257, 16, 16},
        {{.model = "gpt2", .seq_len = 4096}, false, 12, 50257, 4096, 4096},
        {{.model = reference}, false, 4, 97, 64, 64},
        {{.model = reference, .seq_len = 9}, false, 4, 97, 64, 9},
        {{.load = reference}, true, 4, 97, 64, 64},
        {{.load = reference, .seq_len = 9}, true, 4, 97, 64, 9},
        {{.load = reference, .model = reference}, true, 4, 97, 64, 64},
        {{.load = reference, .n_layer = 4, .n_embd = 48, .n_head = 4, .vocab_size = 97},
         true,
         4,
         97,
         64,
         64},
        {{.n_layer = 2, .n_embd = 6, .n_head = 3, .seq_len = 5}, false, 2, 256, 5, 5},
        {{.n_layer = 2, .n_embd = 6, .n_head = 3, .vocab_size = 7, .seq_len = 5},
         false,
         2,
         7,
         5,
         5},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_source source;
        struct tp_model model;
        int seq_len;
        ck_assert_int_eq(tp_source_find(cases[i].settings.load, &source), TP_OK);
        ck_assert_int_eq(source.folder[0] != '\0', cases[i].load);
        ck_assert(!source.resume);
        ck_assert_int_eq(tp_source_model(&source, &cases[i].settings, &model, &seq_len), TP_OK);
        ck_assert_int_eq(model.n_layer, cases[i].n_layer);
        ck_assert_int_eq(model.vocab_size, cases[i].vocab_size);
        ck_assert_int_eq(model.n_positions, cases[i].n_positions);
        ck_assert_int_eq(seq_len, cases[i].seq_len);
    }
}
END_TEST

START_TEST(refuses_what_does_not_fit)
{
    const struct {
        struct tp_settings settings;
        enum tp_status status;
        const char *says;
    } cases[] = {
        {{.model = "gpt5"}, TP_ERR_INPUT, "gpt5"},
        {{.model = "/tmp"}, TP_ERR_INPUT, "config.json"},
        {{.model = reference, .seq_len = 65}, TP_ERR_USAGE, "--seq-length 65"},
        {{.load = reference, .seq_len = 65}, TP_ERR_USAGE, "--seq-length 65"},
        {{.load = reference, .model = "gpt2"}, TP_ERR_INPUT, "n_layer is 4"},
        {{.load = reference, .n_layer = 4, .n_embd = 48, .n_head = 4}, TP_ERR_INPUT, "vocab_size"},
        {{.n_layer = 2, .n_embd = 6, .n_head = 3}, TP_ERR_USAGE, "--seq-length"},
        {{.n_layer = 2, .n_embd = 7, .n_head = 3, .seq_len = 5}, TP_ERR_USAGE, "n_head"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_source source;
        struct tp_model model;
        int seq_len;
        ck_assert_int_eq(tp_source_find(cases[i].settings.load, &source), TP_OK);
        expect_fail(cases[i].status, cases[i].says,
                    tp_source_model(&source, &cases[i].settings, &model, &seq_len));
    }
}
END_TEST

START_TEST(lists_steps_in_order)
{
    static const char *const names[] = {"step-00000012", "step-00000003", "step-123456789",
                                        "step-3",        "step--0000001", "step-00000001.old",
                                        ".new",          "step-"};
    char *folder = scratch_new();
    long *steps = NULL;
    int count = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        scratch_file(folder, names[i], "", 0);
    ck_assert_int_eq(tp_source_steps(folder, &steps, &count), TP_OK);
    ck_assert_int_eq(count, 3);
    ck_assert_int_eq(steps[0], 3);
    ck_assert_int_eq(steps[1], 12);
    ck_assert_int_eq(steps[2], 123456789);
    char *path = tp_source_step_folder("x", steps[1]);
    ck_assert_str_eq(path, "x/step-00000012");
    free(path);
    free(steps);
    scratch_free(folder);
}
END_TEST

START_TEST(nothing_to_load)
{
    char *folder = scratch_new();
    struct tp_source source;

    ck_assert_int_eq(tp_source_find(NULL, &source), TP_OK);
    ck_assert_str_eq(source.folder, "");
    expect_fail(TP_ERR_INPUT, "--load /nowhere", tp_source_find("/nowhere", &source));
    ck_assert_int_eq(mkdir(scratch_path(folder, "checkpoints"), 0777), 0);
    expect_fail(TP_ERR_INPUT, "expected a checkpoint", tp_source_find(folder, &source));
    ck_assert_int_eq(rmdir(scratch_path(folder, "checkpoints")), 0);
    scratch_free(folder);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("source");

    set_reference();
    tcase_add_test(cases, models_and_lengths);
    tcase_add_test(cases, refuses_what_does_not_fit);
    tcase_add_test(cases, lists_steps_in_order);
    tcase_add_test(cases, nothing_to_load);
    return expect_run(cases);
}
