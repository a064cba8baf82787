/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/sampler.h"
#include "expect.h"
#include "train/settings.h"
#include "train/state.h"

START_TEST(comes_back)
{
    const struct tp_state states[] = {
        {.step = 0, .seq_len = 1, .tokenizer = TP_TOKENIZER_NONE},
        {.step = INT64_C(1) << 40,
         .samples = INT64_C(1) << 50,
         .skipped = 7,
         .tokenizer = TP_TOKENIZER_BYTES,
         .sampler = TP_SAMPLER_SHUFFLE,
         .seq_len = 1024,
         .seed = UINT64_MAX},
    };
    char *folder = scratch_new();

    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        const char *path = scratch_path(folder, "state.json");
        struct tp_state again;
        memset(&again, 0xff, sizeof again);
        ck_assert_int_eq(tp_state_save(&states[i], path), TP_OK);
        ck_assert_int_eq(tp_state_load(path, &again), TP_OK);
        ck_assert_int_eq(again.step, states[i].step);
        ck_assert_int_eq(again.samples, states[i].samples);
        ck_assert_int_eq(again.skipped, states[i].skipped);
        ck_assert_int_eq(again.tokenizer, states[i].tokenizer);
        ck_assert_int_eq(again.sampler, states[i].sampler);
        ck_assert_int_eq(again.seq_len, states[i].seq_len);
        ck_assert_uint_eq(again.seed, states[i].seed);
    }
    scratch_free(folder);
}
END_TEST

#define HEAD "{\"format\": \"terapipe-state\", \"version\": 1, \"step\": "
#define TAIL ", \"sampler\": 0, \"seq_length\": 4, \"seed\": 1}"

START_TEST(refuses_what_is_no_state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "state.json"},
        {"{", "state.json"},
        {"[]", "state.json"},
        {"{\"format\": \"terapipe-state\"}", "version"},
        {HEAD "3, \"step\": 4}", "state.json"},
        {HEAD "\"3\", \"samples\": 3, \"skipped\": 0, \"tokenizer\": null" TAIL, "state.json"},
        {HEAD "3, \"samples\": 3, \"skipped\": 4, \"tokenizer\": null" TAIL, "skipped"},
        {HEAD "-1, \"samples\": 3, \"skipped\": 0, \"tokenizer\": null" TAIL, "step"},
        {HEAD "9223372036854775807, \"samples\": 3, \"skipped\": 0, \"tokenizer\": null" TAIL,
         "step"},
        {HEAD "3, \"samples\": 9223372036854775807, \"skipped\": 0, \"tokenizer\": null" TAIL,
         "samples"},
        {HEAD "3, \"samples\": 3, \"skipped\": 0, \"tokenizer\": \"words\"" TAIL, "words"},
        {HEAD "3, \"samples\": 3, \"skipped\": 0" TAIL, "tokenizer"},
    };
    char *folder = scratch_new();
    struct tp_state state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_file(folder, "state.json", cases[i].text, strlen(cases[i].text));
        expect_fail(TP_ERR_INPUT, cases[i].says, tp_state_load(path, &state));
    }
    expect_fail(TP_ERR_INPUT, "missing", tp_state_load(scratch_path(folder, "missing"), &state));
    scratch_free(folder);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("state");

    tcase_add_test(cases, comes_back);
    tcase_add_test(cases, refuses_what_is_no_state);
    return expect_run(cases);
}
