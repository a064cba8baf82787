/* SPDX-License-Identifier: Apache-2.0 */
/* Cores, and the map of ranks to devices. */
#include "config.h"

#include "capture.h"
#include "device/device.h"
#include "expect.h"
#include "train/placement.h"

START_TEST(counts_cores)
{
    struct tp_cores cores;

    ck_assert_int_eq(tp_cores_count(&cores), TP_OK);
    ck_assert_int_ge(cores.allowed, 1);
    ck_assert_int_ge(cores.bound, 1);
    ck_assert_int_le(cores.bound, cores.allowed);
    ck_assert_int_le(cores.allowed, sysconf(_SC_NPROCESSORS_CONF));
}
END_TEST

START_TEST(shares_cores)
{
    const struct {
        struct tp_cores cores;
        int ranks, threads;
    } cases[] = {{{8, 8}, 1, 8}, {{8, 8}, 2, 4}, {{8, 8}, 3, 2}, {{8, 1}, 2, 1},
                 {{8, 6}, 1, 6}, {{2, 2}, 4, 1}, {{1, 1}, 1, 1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_int_eq(tp_cores_share(&cases[i].cores, cases[i].ranks), cases[i].threads);
}
END_TEST

static const struct tp_placement all[] = {
    {.host = "a", .index = "0:0", .name = "one", .gemm = TP_GEMM_CBLAS},
    {.host = "a", .index = "0:0", .name = "one", .gemm = TP_GEMM_CBLAS},
    {.host = "a", .index = "1:0", .name = "two \"2\"", .gemm = TP_GEMM_CLBLAST},
    {.host = "b", .index = "0:0", .name = "one", .gemm = TP_GEMM_CBLAS},
};
enum { ALL = sizeof all / sizeof *all };

START_TEST(counts_who_shares_a_device)
{
    static const int expected[ALL] = {2, 2, 1, 1};

    for (int i = 0; i < ALL; i++)
        ck_assert_int_eq(tp_placement_sharing(all, ALL, i), expected[i]);
}
END_TEST

/* Pairs of ranks share a stage: the second pair is on two nodes. */
START_TEST(op_ranks_on_several_nodes_are_named)
{
    capture_begin();
    tp_placement_warn(all, ALL, 1);
    ck_assert_str_eq(capture_end(), "");
    capture_begin();
    tp_placement_warn(all, 2, 2);
    ck_assert_str_eq(capture_end(), "");
    capture_begin();
    tp_placement_warn(all, ALL, 2);
    const char *line = capture_end();
    ck_assert_ptr_nonnull(strstr(line, "ranks 2 to 3 share a stage"));
    ck_assert_ptr_nonnull(strstr(line, "(a, b)"));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("placement");

    tcase_add_test(cases, counts_cores);
    tcase_add_test(cases, shares_cores);
    tcase_add_test(cases, counts_who_shares_a_device);
    tcase_add_test(cases, op_ranks_on_several_nodes_are_named);
    return expect_run(cases);
}
