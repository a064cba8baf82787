/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the #include lines of include/ and src/ and fails on an arrow between layers that the
 * design does not have; CONTRIBUTING.md has the same table. */
#include "config.h"

#include <check.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *layer;
    const char *may_include; /* besides itself */
} arrows[] = {
    {"base", ""},
    {"model", "base"},
    {"data", "base model"},
    {"plan", "base model"},
    {"comm", "base"},
    {"device", "base"},
    {"cell", "base model device"},
    {"train", "base model data plan comm device cell"},
    {"cli", "base model data plan comm device cell train"},
};
enum { N_LAYERS = sizeof arrows / sizeof arrows[0] };

/* Headers of libraries that only some places may see: layers, or one file. */
static const struct {
    const char *prefix;
    const char *places;
} fences[] = {
    {"mpi", "comm src/cli/main.c"}, {"CL/", "device"}, {"clblast", "device"}, {"cblas", "device"},
    {"openblas", "device"},
};
enum { N_FENCES = sizeof fences / sizeof fences[0] };

/* Is the word in a list of words with single spaces in between? */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static int layer_number(const char *name)
{
    for (int i = 0; i < N_LAYERS; i++)
        if (strcmp(arrows[i].layer, name) == 0)
            return i;
    return -1;
}

/* May this file (a path from the root), in this layer, include that header? */
static bool allowed(const char *root, const char *file, int layer, const char *header, bool quoted)
{
    for (int i = 0; i < N_FENCES; i++)
        if (strncmp(header, fences[i].prefix, strlen(fences[i].prefix)) == 0)
            return has_word(fences[i].places, arrows[layer].layer) ||
                   has_word(fences[i].places, file);

    char target[64] = "";
    size_t length = strcspn(header, "/");
    if (header[length] == '/' && length < sizeof target)
        memcpy(target, header, length);
    if (layer_number(target) >= 0)
        return strcmp(target, arrows[layer].layer) == 0 ||
               has_word(arrows[layer].may_include, target);
    if (!quoted || strcmp(header, "config.h") == 0)
        return true;

    /* What is left is a private header in the file's own folder. */
    char path[4096];
    int folder = (int)(strrchr(file, '/') - file);
    snprintf(path, sizeof path, "%s/%.*s/%s", root, folder, file, header);
    return header[length] == '\0' && access(path, R_OK) == 0;
}

/* Prints the file's bad arrows and counts them. */
static int check_file(const char *root, const char *file, int layer)
{
    char path[4096], line[4096];
    snprintf(path, sizeof path, "%s/%s", root, file);
    FILE *in = fopen(path, "r");
    ck_assert_msg(in != NULL, "%s: cannot be read", path);
    int bad = 0;
    for (int number = 1; fgets(line, sizeof line, in) != NULL; number++) {
        char open, header[256];
        if (sscanf(line, " # include %c%255[^\">]", &open, header) != 2)
            continue;
        if (!allowed(root, file, layer, header, open == '"')) {
            fprintf(stderr, "%s:%d: %s may not include %s\n", file, number, arrows[layer].layer,
                    header);
            bad++;
        }
    }
    fclose(in);
    return bad;
}

/* Checks all C files below a folder (a path from the root), which belongs to a layer unless layer
 * is -1: then its folders are the layers. */
static int check_folder(const char *root, const char *folder, int layer, int *n_files)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    DIR *in = opendir(path);
    ck_assert_msg(in != NULL, "%s: cannot be read", path);
    int bad = 0;
    for (struct dirent *entry; (entry = readdir(in)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        struct stat status;
        char name[2048];
        snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
        snprintf(path, sizeof path, "%s/%s", root, name);
        ck_assert_msg(stat(path, &status) == 0, "%s: cannot be looked at", path);

        const char *ending = strrchr(entry->d_name, '.');
        if (S_ISDIR(status.st_mode)) {
            int inner = layer >= 0 ? layer : layer_number(entry->d_name);
            if (inner >= 0) {
                bad += check_folder(root, name, inner, n_files);
            } else {
                fprintf(stderr, "%s is not a layer\n", name);
                bad++;
            }
        } else if (layer >= 0 && ending != NULL &&
                   (strcmp(ending, ".c") == 0 || strcmp(ending, ".h") == 0)) {
            bad += check_file(root, name, layer);
            ++*n_files;
        }
    }
    closedir(in);
    return bad;
}

START_TEST(the_tree_has_only_the_arrows_of_the_design)
{
    const char *root = getenv("srcdir") != NULL ? getenv("srcdir") : ".";
    int n_files = 0;
    ck_assert_int_eq(check_folder(root, "include", -1, &n_files), 0);
    ck_assert_int_eq(check_folder(root, "src", -1, &n_files), 0);
    ck_assert_int_gt(n_files, 20);
}
END_TEST

static char planted_root[] = "/tmp/test_layers.XXXXXX";
static const char *const planted_folders[] = {"",         "/include",  "/src",       "/src/plan",
                                              "/src/cli", "/src/comm", "/src/model", "/src/device"};
enum { N_FOLDERS = sizeof planted_folders / sizeof planted_folders[0] };

static void plant_folders(void)
{
    strcpy(strrchr(planted_root, '.'), ".XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(planted_root));
    for (int i = 1; i < N_FOLDERS; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", planted_root, planted_folders[i]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
}

static void remove_folders(void)
{
    for (int i = N_FOLDERS - 1; i >= 0; i--) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", planted_root, planted_folders[i]);
        ck_assert_int_eq(rmdir(path), 0);
    }
}

static const struct {
    const char *file, *line;
    int bad;
} planted[] = {
    {"src/plan/x.c", "#include \"plan/plan.h\"", 0},
    {"src/plan/x.c", "#include \"model/model.h\"", 0},
    {"src/plan/x.c", "#include <stdio.h>", 0},
    {"src/plan/x.c", "#include <sys/stat.h>", 0},
    {"src/plan/x.c", "#include \"config.h\"", 0},
    {"src/plan/x.c", "#include \"x.c\"", 0},
    {"src/plan/x.c", "#include \"other.h\"", 1},
    {"src/plan/x.c", "#include \"../data/tokens.h\"", 1},
    {"src/plan/x.c", "#include \"data/tokens.h\"", 1},
    {"src/plan/x.h", "  #  include  <cell/cell.h>", 1},
    {"src/plan/x.c", "#include <mpi.h>", 1},
    {"src/plan/x.c", "#include \"mpi.h\"", 1},
    {"src/comm/x.c", "#include <mpi.h>", 0},
    {"src/comm/x.c", "#include \"model/model.h\"", 1},
    {"src/cli/main.c", "#include <mpi.h>", 0},
    {"src/cli/cmd_x.c", "#include <mpi.h>", 1},
    {"src/cli/cmd_x.c", "#include <CL/cl.h>", 1},
    {"src/cli/cmd_x.c", "#include \"train/engine.h\"", 0},
    {"src/model/x.c", "#include \"plan/plan.h\"", 1},
    {"src/device/x.c", "#include <CL/cl.h>", 0},
    {"src/device/x.c", "#include <clblast_c.h>", 0},
    {"src/device/x.c", "#include <cblas.h>", 0},
    {"src/device/x.c", "#include \"cell/stage.h\"", 1},
    {"src/model/x.c", "#include <cblas.h>", 1},
    {"src/model/x.c", "#include <clblast_c.h>", 1},
};

START_TEST(a_planted_arrow_is_judged_rightly)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", planted_root, planted[_i].file);
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    fprintf(out, "/* A file. */\n%s\nint x;\n", planted[_i].line);
    ck_assert_int_eq(fclose(out), 0);
    int n_files = 0;
    int bad = check_folder(planted_root, "src", -1, &n_files);
    unlink(path);
    ck_assert_int_eq(n_files, 1);
    ck_assert_msg(bad == planted[_i].bad, "%s: %s: %d", planted[_i].file, planted[_i].line, bad);
}
END_TEST

START_TEST(an_unknown_folder_is_no_layer)
{
    char path[256];
    snprintf(path, sizeof path, "%s/src/utils", planted_root);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    int n_files = 0;
    int bad = check_folder(planted_root, "src", -1, &n_files);
    rmdir(path);
    ck_assert_int_eq(bad, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layers");
    TCase *tree = tcase_create("tree");
    tcase_add_test(tree, the_tree_has_only_the_arrows_of_the_design);
    suite_add_tcase(suite, tree);

    TCase *plants = tcase_create("planted");
    tcase_add_checked_fixture(plants, plant_folders, remove_folders);
    tcase_add_loop_test(plants, a_planted_arrow_is_judged_rightly, 0,
                        sizeof planted / sizeof planted[0]);
    tcase_add_test(plants, an_unknown_folder_is_no_layer);
    suite_add_tcase(suite, plants);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
