/* SPDX-License-Identifier: Apache-2.0 */
/* CLBlast's parameters: which sets may be tried, their text, their file, and its use. */
#include "config.h"

#include <stdlib.h>

#include "base/file.h"
#include "device/tuning.h"
#include "device_test.h"
#include "expect.h"

static const struct tp_device_info cpu = {.platform = "PoCL",
                                          .name = "a processor",
                                          .version = "OpenCL 3.0",
                                          .driver = "3.1",
                                          .type = "cpu",
                                          .max_group = 4096,
                                          .local_memory = 512 << 10};
static const struct tp_device_info gpu = {.platform = "Maker's",
                                          .name = "a \"graphics\" card",
                                          .version = "OpenCL 1.2",
                                          .driver = "550",
                                          .type = "gpu",
                                          .max_group = 256,
                                          .local_memory = 32 << 10};

enum { KWG, KWI, MDIMA, MDIMC, MWG, NDIMB, NDIMC, NWG, SA, SB, STRM, STRN, VWM, VWN };

/* The rules once more, as CLBlast's tuner has them: each quotient is whole. */
static bool keeps_rules(const int *v, const struct tp_device_info *device)
{
    const int group = v[MDIMC] * v[NDIMC];
    const int local = 4 * v[KWG] * (v[SA] * v[MWG] + v[SB] * v[NWG]);

    return v[KWG] % v[KWI] == 0 && v[MWG] % (v[MDIMC] * v[VWM]) == 0 &&
           v[NWG] % (v[NDIMC] * v[VWN]) == 0 && v[MWG] % (v[MDIMA] * v[VWM]) == 0 &&
           v[NWG] % (v[NDIMB] * v[VWN]) == 0 && group % v[MDIMA] == 0 && group % v[NDIMB] == 0 &&
           v[KWG] % (group / v[MDIMA]) == 0 && v[KWG] % (group / v[NDIMB]) == 0 &&
           group <= (int)device->max_group && local <= (int)device->local_memory;
}

/* Every set of powers of two, those that CLBlast does not have among them. */
START_TEST(sets_that_break_a_rule_are_not_legal)
{
    const struct tp_device_info *device = _i ? &gpu : &cpu;
    static const int highest[TP_TUNING_PARAMETERS] = {
        [KWG] = 32,   [KWI] = 4,   [MDIMA] = 16, [MDIMC] = 32, [MWG] = 128, [NDIMB] = 16,
        [NDIMC] = 32, [NWG] = 128, [SA] = 1,     [SB] = 1,     [VWM] = 8,   [VWN] = 8};
    static const int lowest[TP_TUNING_PARAMETERS] = {
        [KWG] = 4,   [KWI] = 1,   [MDIMA] = 2, [MDIMC] = 2, [MWG] = 16,
        [NDIMB] = 2, [NDIMC] = 2, [NWG] = 16,  [VWM] = 1,   [VWN] = 1};
    struct tp_tuning set;
    long legal = 0, kept = 0, all = 0;
    int p;

    memcpy(set.values, lowest, sizeof lowest);
    do {
        all++;
        if (tp_tuning_is_legal(&set, device)) {
            legal++;
            kept += keeps_rules(set.values, device);
        }
        for (p = 0; p < TP_TUNING_PARAMETERS; p++) {
            if (set.values[p] < highest[p]) {
                set.values[p] = set.values[p] ? 2 * set.values[p] : 1;
                break;
            }
            set.values[p] = lowest[p];
        }
    } while (p < TP_TUNING_PARAMETERS);
    ck_assert_int_gt(all, 1000000);
    ck_assert_int_gt(legal, 1000);
    ck_assert_int_eq(kept, legal);
}
END_TEST

START_TEST(values_that_clblast_does_not_have_are_not_legal)
{
    struct tp_tuning set, other;

    ck_assert(tp_tuning_start(&cpu, 0, &set));
    ck_assert(tp_tuning_is_legal(&set, &cpu));
    for (int p = 0; p < TP_TUNING_PARAMETERS; p++)
        for (int i = 0; i < 3; i++) {
            other = set;
            other.values[p] = (const int[]){-1, 3, 512}[i];
            ck_assert(!tp_tuning_is_legal(&other, &cpu));
        }
}
END_TEST

/* The kernel that corrupts memory in CLBlast 1.5.3 has no set: there is no name for it. */
START_TEST(the_faulty_kernel_cannot_be_said)
{
    char text[TP_TUNING_TEXT], faulty[2 * TP_TUNING_TEXT];
    struct tp_tuning set;

    ck_assert(tp_tuning_start(&cpu, 0, &set));
    tp_tuning_print(&set, text);
    ck_assert_ptr_null(strstr(text, "GEMMK"));
    snprintf(faulty, sizeof faulty, "GEMMK=1 %s", text);
    ck_assert(!tp_tuning_parse(faulty, &set));
    snprintf(faulty, sizeof faulty, "%s GEMMK=1", text);
    ck_assert(!tp_tuning_parse(faulty, &set));
}
END_TEST

START_TEST(beginnings_and_moves_are_legal_and_the_same_each_time)
{
    const struct tp_device_info *device = _i ? &gpu : &cpu;
    struct tp_tuning set, again, moved;
    int starts = 0, moves = 0;

    for (; tp_tuning_start(device, starts, &set); starts++) {
        ck_assert(tp_tuning_start(device, starts, &again));
        ck_assert(tp_tuning_is_same(&set, &again));
        ck_assert(tp_tuning_is_legal(&set, device));
        for (int m = 0; m < TP_TUNING_MOVES; m++) {
            if (!tp_tuning_move(device, &set, m, &moved))
                continue;
            moves++;
            ck_assert(tp_tuning_is_legal(&moved, device));
            ck_assert(!tp_tuning_is_same(&set, &moved));
            ck_assert_int_ne(set.values[m / 2], moved.values[m / 2]);
        }
    }
    ck_assert_int_ge(starts, 4);
    ck_assert_int_ge(moves, 8 * starts);
}
END_TEST

START_TEST(a_small_device_has_fewer_beginnings)
{
    struct tp_device_info small = gpu;
    struct tp_tuning set;

    small.max_group = 64;
    small.local_memory = 4096;
    for (int i = 0; tp_tuning_start(&small, i, &set); i++)
        ck_assert(keeps_rules(set.values, &small));
    small.max_group = 1;
    ck_assert(!tp_tuning_start(&small, 0, &set));
}
END_TEST

START_TEST(text_is_read_back_and_other_text_is_not)
{
    static const char *const others[] = {"",
                                         "KWG",
                                         "KWG=",
                                         "KWG=16",
                                         "nothing",
                                         "KWG=16 KWG=16 KWG=16 KWG=16 KWG=16 KWG=16 KWG=16",
                                         "=1=1=1=1=1=1=1=1=1=1=1=1=1=1"};
    char text[TP_TUNING_TEXT], other[TP_TUNING_TEXT + 8];
    struct tp_tuning set, read;

    for (int i = 0; tp_tuning_start(&gpu, i, &set); i++) {
        tp_tuning_print(&set, text);
        ck_assert(tp_tuning_parse(text, &read));
        ck_assert(tp_tuning_is_same(&set, &read));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(!tp_tuning_parse(others[i], &read), "%s", others[i]);
    for (size_t cut = 0; cut < strlen(text); cut++) {
        snprintf(other, sizeof other, "%.*s", (int)cut, text);
        ck_assert_msg(!tp_tuning_parse(other, &read), "%s", other);
    }
    snprintf(other, sizeof other, "%s ", text);
    ck_assert(!tp_tuning_parse(other, &read));
    snprintf(other, sizeof other, " %s", text);
    ck_assert(!tp_tuning_parse(other, &read));
}
END_TEST

START_TEST(a_file_is_read_back)
{
    char *folder = scratch_new();
    const char *path = scratch_path(folder, "set");
    struct tp_tuning set, read;

    ck_assert(!tp_tuning_load(path, &gpu, &read)); /* not there: nothing is said */
    ck_assert(tp_tuning_start(&gpu, 2, &set));
    ck_assert_int_eq(tp_tuning_save(path, &gpu, &set, 12.5, 1.75), TP_OK);
    ck_assert(tp_tuning_load(path, &gpu, &read));
    ck_assert(tp_tuning_is_same(&set, &read));
    scratch_free(folder);
}
END_TEST

/* A note of one line, and no parameters. */
static void expect_ignored(const char *path, const struct tp_device_info *device, const char *part)
{
    struct tp_tuning read;

    capture_begin();
    const bool loaded = tp_tuning_load(path, device, &read);
    const char *output = capture_end();
    ck_assert(!loaded);
    expect_one_line(output, part);
    expect_one_line(output, "note: ");
    expect_one_line(output, path);
}

START_TEST(a_file_of_another_device_is_ignored)
{
    char *folder = scratch_new();
    const char *path = scratch_path(folder, "set");
    struct tp_device_info other = cpu;
    struct tp_tuning set;

    ck_assert(tp_tuning_start(&cpu, 0, &set));
    ck_assert_int_eq(tp_tuning_save(path, &cpu, &set, 12.5, 1.75), TP_OK);
    strcpy(other.driver, "3.2");
    expect_ignored(path, &other, "another device");
    other = cpu;
    strcpy(other.name, "a processoR");
    expect_ignored(path, &other, "another device");
    other = cpu;
    other.max_group = 1;
    expect_ignored(path, &other, "cannot be");
    scratch_free(folder);
}
END_TEST

START_TEST(a_damaged_file_is_ignored)
{
    char *folder = scratch_new(), text[4096];
    const char *path = scratch_path(folder, "set");
    struct tp_tuning set;

    ck_assert(tp_tuning_start(&cpu, 0, &set));
    ck_assert_int_eq(tp_tuning_save(path, &cpu, &set, 12.5, 1.75), TP_OK);
    FILE *file = fopen(path, "r");
    size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t cut = 0; cut < size - 1; cut += 7)
        expect_ignored(scratch_file(folder, "cut", text, cut), &cpu, "ignored");
    char *value = memmem(text, size, "VWN=8", 5);
    ck_assert_ptr_nonnull(value);
    value[4] = '7';
    expect_ignored(scratch_file(folder, "seven", text, size), &cpu, "cannot be");
    expect_ignored(scratch_file(folder, "list", "[1]", 3), &cpu, "no file of");
    expect_ignored(folder, &cpu, "ignored");
    scratch_free(folder);
}
END_TEST

START_TEST(paths_tell_devices_and_drivers_apart)
{
    struct tp_device_info other = cpu;

    setenv("XDG_CACHE_HOME", "/somewhere", 1);
    char *one = tp_tuning_path(&cpu), *same = tp_tuning_path(&other);
    strcpy(other.driver, "3.2");
    char *another = tp_tuning_path(&other);
    ck_assert_str_eq(one, same);
    ck_assert_str_ne(one, another);
    ck_assert_int_eq(strncmp(one, "/somewhere/terapipe/", 20), 0);
    free(one);
    free(same);
    free(another);
}
END_TEST

/* CLBlast takes the names; a device that is opened uses its file unless it is told not to. */
START_TEST(an_open_device_has_its_files_parameters)
{
    char *folder = scratch_new(), text[TP_TUNING_TEXT];
    const struct tp_device_info *first = test_device();
    struct tp_device_options options = {.index = first ? first->index : NULL,
                                        .threads = 1,
                                        .head_width = 8,
                                        .gemm = TP_GEMM_CLBLAST};
    struct tp_device *device;
    struct tp_tuning set;

    if (first == NULL) {
        scratch_free(folder);
        return;
    }
    setenv("XDG_CACHE_HOME", folder, 1);
    ck_assert_int_eq(tp_device_open(&options, &device), TP_OK);
    ck_assert_ptr_null(tp_device_tuning(device));
    const struct tp_device_info info = *tp_device_describe(device);
    tp_device_close(device);

    char *path = tp_tuning_path(&info);
    ck_assert(tp_tuning_start(&info, 0, &set));
    tp_tuning_print(&set, text);
    ck_assert_int_eq(tp_file_make_parent(path), TP_OK);
    ck_assert_int_eq(tp_tuning_save(path, &info, &set, 12.5, 1.75), TP_OK);
    ck_assert_int_eq(tp_device_open(&options, &device), TP_OK);
    ck_assert_str_eq(tp_device_tuning(device), text);
    tp_device_close(device);
    options.untuned = true;
    ck_assert_int_eq(tp_device_open(&options, &device), TP_OK);
    ck_assert_ptr_null(tp_device_tuning(device));
    tp_device_close(device);
    free(path);
    char command[600];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
    free(folder);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("tuning");

    tcase_add_loop_test(cases, sets_that_break_a_rule_are_not_legal, 0, 2);
    tcase_add_test(cases, values_that_clblast_does_not_have_are_not_legal);
    tcase_add_test(cases, the_faulty_kernel_cannot_be_said);
    tcase_add_loop_test(cases, beginnings_and_moves_are_legal_and_the_same_each_time, 0, 2);
    tcase_add_test(cases, a_small_device_has_fewer_beginnings);
    tcase_add_test(cases, text_is_read_back_and_other_text_is_not);
    tcase_add_test(cases, a_file_is_read_back);
    tcase_add_test(cases, a_file_of_another_device_is_ignored);
    tcase_add_test(cases, a_damaged_file_is_ignored);
    tcase_add_test(cases, paths_tell_devices_and_drivers_apart);
    tcase_add_test(cases, an_open_device_has_its_files_parameters);
    return expect_run(cases);
}
