/* SPDX-License-Identifier: Apache-2.0 */
/* TEST np: 1 2 */
/* Profiling on a real device, with little time: that a profile comes, in that time, and makes
 * sense; and that it comes from the cache where it may. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "device/device.h"
#include "mpi_test.h"
#include "train/measure.h"
#include "train/profiler.h"

enum { T = 256, BATCH = 3, SKIPPED = 77 };

static char scratch[64];

static const char *scratch_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static bool leads(void)
{
    return tp_comm_rank(mpi_world) == 0;
}

static void make_scratch(void)
{
    strcpy(scratch, "/tmp/terapipe-profile-XXXXXX");
    mpi_assert(EXPECT(!leads() || mkdtemp(scratch) != NULL));
    mpi_assert(EXPECT(tp_comm_bcast(mpi_world, scratch, sizeof scratch, 0) == TP_OK));
    setenv("XDG_CACHE_HOME", scratch, 1);
}

static void remove_scratch(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    mpi_assert(EXPECT(!leads() || system(command) == 0));
}

static const struct tp_settings usual = {.n_layer = 2,
                                         .n_embd = 64,
                                         .n_head = 2,
                                         .vocab_size = 300,
                                         .seq_len = T,
                                         .batch = BATCH,
                                         .threads = 1,
                                         .tokenizer = TP_TOKENIZER_NONE};

/* Profiles; rank 0 has the result. */
static struct tp_profile *run(const struct tp_settings *settings, double seconds, bool cached,
                              struct tp_profiler_report *report)
{
    struct tp_profile *profile = NULL;
    struct tp_worker worker;

    mpi_assert(EXPECT(tp_worker_init(&worker, settings, mpi_world) == TP_OK));
    mpi_assert(EXPECT((cached ? tp_profiler_cached : tp_profiler_run)(&worker, seconds, &profile,
                                                                      report) == TP_OK));
    mpi_assert(EXPECT((profile != NULL) == leads()));
    tp_worker_fini(&worker);
    return profile;
}

/* ---- What a profile says ---- */

/* Times are there for these sequences, above 0, and grow with the tokens, though not by more than a
 * few times as much. */
static bool grows(const struct tp_cost *cost, int b, enum tp_direction direction)
{
    const double little = cost->layer(cost->self, 0, direction, b, 8, 0);
    const double much = cost->layer(cost->self, 0, direction, b, T, 0);
    return EXPECT(cost->has_group(cost->self, 0, b)) && EXPECT(little > 0) &&
           EXPECT(much > little) && EXPECT(much < 5 * (T / 8) * little);
}

static bool is_positive(const struct tp_cost *cost, int b)
{
    bool right = true;
    for (int direction = 0; direction < 2; direction++)
        for (int s = 1; s <= T; s += 5)
            for (int c = 0; s + c <= T; c += 31)
                right =
                    right && cost->layer(cost->self, 0, (enum tp_direction)direction, b, s, c) > 0;
    return EXPECT(right);
}

static bool makes_sense(struct tp_profile *profile, int ranks)
{
    struct tp_cost cost;
    bool right = true;

    tp_profile_cost(profile, &cost);
    for (int b = 1; b <= BATCH; b++)
        right = right && grows(&cost, b, TP_FORWARD) && grows(&cost, b, TP_BACKWARD) &&
                is_positive(&cost, b);
    const double head = cost.head(cost.self, 0, TP_FORWARD, 1, T);
    return right && EXPECT(head > cost.embed(cost.self, 0, TP_FORWARD, 1, T)) &&
           EXPECT(head > cost.head(cost.self, 0, TP_BACKWARD, 1, T)) &&
           EXPECT(cost.update_seconds_per_parameter > 0) &&
           EXPECT(cost.update_seconds_per_parameter < 1e-5) &&
           EXPECT(ranks == 1 || cost.link(cost.self, 0, 1 << 20) > 0) &&
           EXPECT(profile->threads == 1 && profile->ranks_per_node == ranks) &&
           EXPECT(profile->devices[0].peak_flops > 1e6 && profile->devices[0].memory > 0);
}

static bool is_equal(const struct tp_profile *one, const struct tp_profile *two)
{
    const struct tp_curve *a = &one->devices[0].layer[TP_BACKWARD].base.rows[0].by_tokens;
    const struct tp_curve *b = &two->devices[0].layer[TP_BACKWARD].base.rows[0].by_tokens;
    return a->count == b->count && a->points[0].seconds == b->points[0].seconds;
}

/* ---- Tests ---- */

START_TEST(a_profile_makes_sense_and_can_be_read_again)
{
    struct tp_profiler_report report;
    struct tp_profile *profile = run(&usual, 2, false, &report), *read = NULL;
    bool right = true;

    if (leads()) {
        right = makes_sense(profile, tp_comm_size(mpi_world)) &&
                EXPECT(tp_profile_save(profile, scratch_path("profile.json")) == TP_OK) &&
                EXPECT(tp_profile_load(scratch_path("profile.json"), &read) == TP_OK) &&
                makes_sense(read, tp_comm_size(mpi_world)) && EXPECT(is_equal(profile, read));
        for (int direction = 0; direction < 2; direction++)
            right = right && EXPECT(report.error[direction].pairs > 2) &&
                    EXPECT(report.error[direction].median < 2) &&
                    EXPECT(report.error[direction].median <= report.error[direction].largest);
    }
    mpi_assert(right);
    tp_profile_free(read);
    tp_profile_free(profile);
}
END_TEST

/* A layer that takes longer than there is time: a few short slices are measured all the same. */
START_TEST(time_that_is_too_short_gives_a_profile_too)
{
    struct tp_settings large = usual;
    struct tp_profiler_report report;

    large.n_embd = 512;
    large.n_head = 8;
    large.seq_len = 2048;
    large.vocab_size = 50000;
    const double began = tp_clock_now();
    struct tp_profile *profile = run(&large, 0.1, false, &report);
    bool right = EXPECT(tp_clock_now() - began < 60) && EXPECT(report.left_out > 0) &&
                 EXPECT(report.measured >= 6);
    if (leads()) {
        struct tp_cost cost;
        tp_profile_cost(profile, &cost);
        right = right && EXPECT(cost.layer(cost.self, 0, TP_FORWARD, 1, 2048, 0) > 0) &&
                EXPECT(cost.head(cost.self, 0, TP_FORWARD, 1, 2048) > 0);
    }
    mpi_assert(right);
    tp_profile_free(profile);
}
END_TEST

START_TEST(a_second_profile_comes_from_the_cache)
{
    struct tp_settings other = usual;
    struct tp_profiler_report report;

    other.seq_len = T / 2;
    struct tp_profile *first = run(&usual, 0.3, true, &report);
    mpi_assert(EXPECT(report.seconds > 0));
    struct tp_profile *second = run(&usual, 0.3, true, &report);
    mpi_assert(EXPECT(report.seconds == 0));
    mpi_assert(EXPECT(!leads() || is_equal(first, second)));
    struct tp_profile *third = run(&other, 0.3, true, &report);
    mpi_assert(EXPECT(report.seconds > 0));
    tp_profile_free(first);
    tp_profile_free(second);
    tp_profile_free(third);
}
END_TEST

START_TEST(a_broken_file_in_the_cache_is_measured_again)
{
    char command[192];
    struct tp_profiler_report report;

    tp_profile_free(run(&usual, 0.3, true, &report));
    snprintf(command, sizeof command, "for f in %s/terapipe/profile-*; do echo '{' >$f; done",
             scratch);
    mpi_assert(EXPECT(!leads() || system(command) == 0));
    tp_profile_free(run(&usual, 0.3, true, &report));
    mpi_assert(EXPECT(report.seconds > 0));
    tp_profile_free(run(&usual, 0.3, true, &report));
    mpi_assert(EXPECT(report.seconds == 0));
}
END_TEST

/* A token of many costs less than one of few, so short sequences are not enough alone. There is
 * time for all rounds on a slow machine too. */
START_TEST(groups_of_short_sequences_are_measured_whole)
{
    struct tp_settings brief = usual;
    struct tp_worker worker;
    static struct tp_measure measure;
    bool layer = false, head = false;

    brief.seq_len = 32;
    brief.batch = 8;
    mpi_assert(EXPECT(tp_worker_init(&worker, &brief, mpi_world) == TP_OK));
    mpi_assert(EXPECT(tp_worker_open_device(&worker, true) == TP_OK));
    mpi_assert(EXPECT(tp_measure(&worker, 8, tp_clock_now(), 60, &measure) == TP_OK));
    for (int i = 0; i < measure.n_items; i++) {
        const struct tp_measure_item *item = &measure.items[i];
        const bool whole = item->sequences == 8 && item->tokens == 32;
        mpi_assert(EXPECT(item->tokens + item->context <= 32));
        mpi_assert(EXPECT(measure.shots[i].reference > 0));
        layer = layer || (whole && item->part == TP_MEASURED_LAYER);
        head = head || (whole && item->part == TP_MEASURED_HEAD);
    }
    mpi_assert(EXPECT(layer) && EXPECT(head));
    tp_worker_fini(&worker);
}
END_TEST

START_TEST(memory_that_is_too_little_is_an_error_of_all)
{
    struct tp_settings little = usual;
    struct tp_profiler_report report;
    struct tp_profile *profile = NULL;
    struct tp_worker worker;

    little.memory = "1M";
    tp_log_set_level(TP_LOG_ERROR);
    mpi_assert(EXPECT(tp_worker_init(&worker, &little, mpi_world) == TP_OK));
    mpi_assert(EXPECT(tp_profiler_run(&worker, 1, &profile, &report) == TP_ERR_MEMORY));
    mpi_assert(EXPECT(profile == NULL));
    tp_worker_fini(&worker);
    tp_log_set_level(TP_LOG_WARNING);
}
END_TEST

int main(int argc, char **argv)
{
    struct tp_device_info *infos = NULL;
    int count = 0;

    tp_log_set_level(TP_LOG_WARNING);
    tp_device_limit_threads(1);
    if (tp_devices_list(&infos, &count) != TP_OK || count == 0)
        return SKIPPED;
    free(infos);
    Suite *suite = suite_create("profile");
    TCase *tests = tcase_create("profile");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, make_scratch, remove_scratch);
    tcase_add_test(tests, a_profile_makes_sense_and_can_be_read_again);
    tcase_add_test(tests, time_that_is_too_short_gives_a_profile_too);
    tcase_add_test(tests, a_second_profile_comes_from_the_cache);
    tcase_add_test(tests, a_broken_file_in_the_cache_is_measured_again);
    tcase_add_test(tests, groups_of_short_sequences_are_measured_whole);
    tcase_add_test(tests, memory_that_is_too_little_is_an_error_of_all);
    suite_add_tcase(suite, tests);
    return mpi_run(suite, &argc, &argv);
}
