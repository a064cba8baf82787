/* TEST np: 1 2 4 */
/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, collectives and the grid of ranks. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/share.h"
#include "capture.h"
#include "comm/grid.h"
#include "mpi_test.h"

static int rank, size;

static void setup(void)
{
    rank = tp_comm_rank(mpi_world);
    size = tp_comm_size(mpi_world);
}

/* Every rank sends to the next one around a ring, larger and larger messages, with sends that are
 * started first: synchronous ones would not end before their receives. */
START_TEST(messages_arrive)
{
    static const size_t counts[] = {0, 1, 7, 1000, 100000, 2500000};
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    bool good = true;
    tp_comm_set_synchronous(mpi_world, _i != 0);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const size_t count = counts[c];
        float *sent = calloc(count + 1, sizeof *sent), *got = calloc(count + 1, sizeof *got);
        for (size_t i = 0; i < count; i++)
            sent[i] = (float)(i % 9973) + (float)rank;
        struct tp_request send, receive;
        good &= EXPECT(tp_comm_isend(mpi_world, sent, count, next, 5, &send) == TP_OK);
        good &= EXPECT(tp_comm_irecv(mpi_world, got, count, before, 5, &receive) == TP_OK);
        good &= EXPECT(tp_comm_wait(&receive) == TP_OK) && EXPECT(tp_comm_wait(&send) == TP_OK);
        bool done = false; /* a finished request may be tested again */
        good &= EXPECT(tp_comm_test(&send, &done) == TP_OK) && EXPECT(done);
        bool equal = true;
        for (size_t i = 0; i < count; i++)
            equal &= got[i] == (float)(i % 9973) + (float)before;
        good &= EXPECT(equal) && EXPECT(got[count] == 0);
        free(sent);
        free(got);
    }
    tp_comm_set_synchronous(mpi_world, false);
    mpi_assert(good);
}
END_TEST

/* As many receives outstanding as a long list may have, whose messages come in another order. */
START_TEST(many_receives_are_outstanding)
{
    enum { MANY = 64, COUNT = 3000 };
    static float sent[MANY][COUNT], got[MANY][COUNT];
    struct tp_request sends[MANY], receives[MANY];
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    bool good = true;
    tp_comm_set_synchronous(mpi_world, _i != 0);
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; j < COUNT; j++)
            sent[i][j] = (float)(COUNT * i + j + rank);
        good &= EXPECT(tp_comm_irecv(mpi_world, got[i], COUNT, before, i, &receives[i]) == TP_OK);
    }
    for (int i = MANY - 1; i >= 0; i--)
        good &= EXPECT(tp_comm_isend(mpi_world, sent[i], COUNT, next, i, &sends[i]) == TP_OK);
    for (int i = 0; i < MANY; i++) {
        good &= EXPECT(tp_comm_wait(&receives[i]) == TP_OK);
        good &= EXPECT(tp_comm_wait(&sends[i]) == TP_OK);
        for (int j = 0; j < COUNT && good; j++)
            good &= EXPECT(got[i][j] == (float)(COUNT * i + j + before));
    }
    tp_comm_set_synchronous(mpi_world, false);
    mpi_assert(good);
}
END_TEST

/* A synchronous send is not done before its receive is there; another one may be. */
START_TEST(synchronous_sends_wait)
{
    bool good = true, done = false;
    float data = 1;
    struct tp_request request;
    if (size == 1)
        return;
    tp_comm_set_synchronous(mpi_world, true);
    if (rank == 0) {
        good &= EXPECT(tp_comm_isend(mpi_world, &data, 1, 1, 1, &request) == TP_OK);
        const double start = tp_clock_now();
        while (!done && tp_clock_now() - start < 0.2)
            good &= EXPECT(tp_comm_test(&request, &done) == TP_OK);
        good &= EXPECT(!done);
    }
    good &= EXPECT(tp_comm_barrier(mpi_world) == TP_OK);
    if (rank == 1) {
        good &= EXPECT(tp_comm_irecv(mpi_world, &data, 1, 0, 1, &request) == TP_OK);
        good &= EXPECT(tp_comm_wait(&request) == TP_OK);
    }
    if (rank == 0)
        good &= EXPECT(tp_comm_wait(&request) == TP_OK);
    tp_comm_set_synchronous(mpi_world, false);
    mpi_assert(good);
}
END_TEST

/* Longer and shorter than its receive expects; and more than MPI can count. */
START_TEST(wrong_length_is_an_error)
{
    const char *const says[] = {"has 2 floats, expected 4", "MPI_Test"};
    float sent[8] = {0}, got[8];
    struct tp_request send, receive;
    struct tp_comm *own; /* to send to myself */
    bool good = EXPECT(tp_comm_split(mpi_world, rank, 0, &own) == TP_OK);
    good &= EXPECT(tp_comm_isend(own, sent, _i == 0 ? 2 : 6, 0, 1, &send) == TP_OK);
    good &= EXPECT(tp_comm_irecv(own, got, 4, 0, 1, &receive) == TP_OK);
    capture_begin();
    enum tp_status status = tp_comm_wait(&receive);
    const char *line = capture_end();
    good &= EXPECT(status == TP_ERR_COMM) && EXPECT(strstr(line, says[_i]) != NULL);
    good &= EXPECT(tp_comm_wait(&send) == TP_OK);

    tp_log_hold();
    good &= EXPECT(tp_comm_isend(own, sent, (size_t)1 << 31, 0, 1, &send) == TP_ERR_COMM);
    good &= EXPECT(tp_comm_irecv(own, got, (size_t)1 << 31, 0, 1, &send) == TP_ERR_COMM);
    good &= EXPECT(tp_comm_bcast(own, sent, (size_t)1 << 31, 0) == TP_ERR_COMM);
    tp_log_release(false);
    tp_comm_free(own);
    mpi_assert(good);
}
END_TEST

/* A withdrawn receive writes no more. */
START_TEST(cancelled_receive_is_gone)
{
    float first = -1, second = -1, sent = 3;
    struct tp_request request;
    struct tp_comm *own;
    bool good = EXPECT(tp_comm_split(mpi_world, rank, 0, &own) == TP_OK);
    good &= EXPECT(tp_comm_irecv(own, &first, 1, 0, 1, &request) == TP_OK);
    tp_comm_cancel(&request);
    tp_comm_cancel(&request);
    good &= EXPECT(tp_comm_isend(own, &sent, 1, 0, 1, &request) == TP_OK);
    struct tp_request receive;
    good &= EXPECT(tp_comm_irecv(own, &second, 1, 0, 1, &receive) == TP_OK);
    good &= EXPECT(tp_comm_wait(&receive) == TP_OK) && EXPECT(tp_comm_wait(&request) == TP_OK);
    good &= EXPECT(first == -1) && EXPECT(second == 3);
    tp_comm_free(own);
    mpi_assert(good);
}
END_TEST

START_TEST(collectives_are_right)
{
    bool good = true;
    double sums[3] = {rank, 1, rank == size - 1 ? 0.1 : 0};
    struct tp_request request;
    good &= EXPECT(tp_comm_iallreduce_sum(mpi_world, sums, 3, &request) == TP_OK);
    good &= EXPECT(tp_comm_wait(&request) == TP_OK);
    good &= EXPECT(sums[0] == size * (size - 1) / 2) && EXPECT(sums[1] == size);
    good &= EXPECT(sums[2] == 0.1); /* exact when all others are zero */

    int64_t max[2] = {rank, -rank - INT64_C(5000000000)};
    good &= EXPECT(tp_comm_allreduce_max(mpi_world, max, 2) == TP_OK);
    good &= EXPECT(max[0] == size - 1) && EXPECT(max[1] == -INT64_C(5000000000));

    for (int root = 0; root < size; root++) {
        char text[16] = "";
        if (rank == root)
            snprintf(text, sizeof text, "from %d", root);
        good &= EXPECT(tp_comm_bcast(mpi_world, text, sizeof text, root) == TP_OK);
        good &= EXPECT(atoi(text + 5) == root);
    }

    uint16_t all[64] = {0};
    all[rank] = (uint16_t)(100 + rank);
    good &= EXPECT(tp_comm_allgather(mpi_world, all, sizeof *all) == TP_OK);
    for (int r = 0; r < size; r++)
        good &= EXPECT(all[r] == 100 + r);
    mpi_assert(good);
}
END_TEST

/* Floats summed, and the largest taken; shares of odd counts gathered. */
START_TEST(floats_are_reduced_and_gathered)
{
    enum { COUNT = 1001 };
    static float data[COUNT];
    bool good = true;
    for (int largest = 0; largest < 2; largest++) {
        struct tp_request request;
        for (int i = 0; i < COUNT; i++)
            data[i] = (float)(i + rank);
        good &=
            EXPECT(tp_comm_iallreduce_floats(mpi_world, largest, data, COUNT, &request) == TP_OK) &&
            EXPECT(tp_comm_wait(&request) == TP_OK);
        for (int i = 0; i < COUNT && good; i++)
            good &= EXPECT(data[i] == (largest ? (float)(i + size - 1)
                                               : (float)(size * i + size * (size - 1) / 2)));
    }
    for (size_t count = 0; count < COUNT; count = 3 * count + 1) {
        const struct tp_share mine = tp_share_of(count, size, rank);
        for (size_t i = 0; i < count; i++)
            data[i] = i - mine.first < mine.count ? (float)i : -1.0f;
        good &= EXPECT(tp_comm_allgather_shares(mpi_world, data, count) == TP_OK);
        for (size_t i = 0; i < count && good; i++)
            good &= EXPECT(data[i] == (float)i);
    }
    mpi_assert(good);
}
END_TEST

/* Each set of failing ranks, as bits. */
START_TEST(ranks_agree_on_the_lowest_failure)
{
    bool good = true;
    for (int failing = 0; failing < 1 << size; failing++) {
        enum tp_status mine = TP_OK, agreed = TP_ERR_STUCK;
        int lowest = 0, who;
        if (failing >> rank & 1)
            mine = (enum tp_status)(1 + rank);
        while (lowest < size && !(failing >> lowest & 1))
            lowest++;
        good &= EXPECT(tp_comm_agree(mpi_world, mine, &agreed, &who) == TP_OK);
        good &= EXPECT(who == lowest);
        good &= EXPECT(agreed == (lowest == size ? TP_OK : (enum tp_status)(1 + lowest)));
    }
    mpi_assert(good);
}
END_TEST

START_TEST(split_orders_by_key)
{
    struct tp_comm *part;
    const int color = rank % 2 == 0 ? 3 : -1;
    bool good = EXPECT(tp_comm_split(mpi_world, color, -rank, &part) == TP_OK);
    if (color < 0) {
        good &= EXPECT(part == NULL);
    } else {
        const int members = (size + 1) / 2;
        good &= EXPECT(tp_comm_size(part) == members);
        good &= EXPECT(tp_comm_rank(part) == members - 1 - rank / 2);
        for (int r = 0; r < members; r++)
            good &= EXPECT(tp_comm_job_rank(part, r) == 2 * (members - 1 - r));
    }
    tp_comm_free(part);
    mpi_assert(good);
}
END_TEST

START_TEST(grid_is_pipes_of_stages)
{
    bool good = true;
    for (int pipe = 1; pipe <= size; pipe++)
        for (int op = 1; op * pipe <= size; op++) {
            if (size % (pipe * op) != 0)
                continue;
            const int data = size / (pipe * op);
            struct tp_grid grid;
            if (!EXPECT(tp_grid_init(&grid, mpi_world, data, pipe, op) == TP_OK))
                mpi_assert(false);
            good &= EXPECT((grid.d * pipe + grid.k) * op + grid.o == rank);
            good &= EXPECT(grid.d >= 0 && grid.d < data && grid.k >= 0 && grid.k < pipe);
            good &= EXPECT(grid.o >= 0 && grid.o < op);
            good &= EXPECT(tp_comm_size(grid.pipe) == pipe && tp_comm_rank(grid.pipe) == grid.k);
            good &= EXPECT(tp_comm_size(grid.ops) == op && tp_comm_rank(grid.ops) == grid.o);
            good &= EXPECT(tp_comm_size(grid.replicas) == data &&
                           tp_comm_rank(grid.replicas) == grid.d);
            for (int o = 0; o < op; o++)
                good &=
                    EXPECT(tp_comm_job_rank(grid.ops, o) == tp_grid_rank(&grid, grid.d, grid.k, o));
            for (int d = 0; d < data; d++)
                good &= EXPECT(tp_comm_job_rank(grid.replicas, d) ==
                               tp_grid_rank(&grid, d, grid.k, grid.o));
            for (int k = 0; k < pipe; k++)
                good &= EXPECT(tp_comm_job_rank(grid.pipe, k) == (grid.d * pipe + k) * op + grid.o);
            good &= EXPECT(grid.node_size == size && grid.node_rank == rank); /* one machine */
            tp_grid_fini(&grid);
        }
    mpi_assert(good);
}
END_TEST

START_TEST(grid_refuses_by_name)
{
    struct tp_grid grid;
    bool good = true;
    const int degrees[][3] = {{1, size + 1, 1}, {size, 2, 1}, {0, size, 1}, {-1, size, -1}};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        capture_begin();
        enum tp_status status =
            tp_grid_init(&grid, mpi_world, degrees[i][0], degrees[i][1], degrees[i][2]);
        const char *line = capture_end();
        good &= EXPECT(status == TP_ERR_USAGE);
        good &= EXPECT(strstr(line, "--pipeline-model-parallel-size") != NULL);
        good &= EXPECT(strstr(line, "ranks were started") != NULL);
    }
    mpi_assert(good);
}
END_TEST

/* The last rank comes two seconds late: the others wait for it without using their cores. */
START_TEST(waiting_is_polite)
{
    struct rusage before, after;
    bool good = true;
    getrusage(RUSAGE_SELF, &before);
    const double start = tp_clock_now();
    if (rank == size - 1)
        tp_clock_sleep(2);
    good &= EXPECT(tp_comm_barrier(mpi_world) == TP_OK);
    const double wall = tp_clock_now() - start;
    getrusage(RUSAGE_SELF, &after);
    const double cpu = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                       (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                       1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
                       1e-6 * (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    printf("rank %d: %.1f %% of a core\n", rank, 100 * cpu / wall);
    good &= EXPECT(wall > 1) && EXPECT(cpu < 0.1 * wall);
    mpi_assert(good);
}
END_TEST

START_TEST(library_is_one_line)
{
    ck_assert_uint_gt(strlen(tp_comm_library()), 3);
    ck_assert_ptr_null(strchr(tp_comm_library(), '\n'));
    ck_assert_int_ge(tp_comm_max_tag(), 32767);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("comm");
    TCase *tests = tcase_create("comm");
    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_loop_test(tests, messages_arrive, 0, 2);
    tcase_add_loop_test(tests, many_receives_are_outstanding, 0, 2);
    tcase_add_test(tests, synchronous_sends_wait);
    tcase_add_loop_test(tests, wrong_length_is_an_error, 0, 2);
    tcase_add_test(tests, cancelled_receive_is_gone);
    tcase_add_test(tests, collectives_are_right);
    tcase_add_test(tests, floats_are_reduced_and_gathered);
    tcase_add_test(tests, ranks_agree_on_the_lowest_failure);
    tcase_add_test(tests, split_orders_by_key);
    tcase_add_test(tests, grid_is_pipes_of_stages);
    tcase_add_test(tests, grid_refuses_by_name);
    tcase_add_test(tests, waiting_is_polite);
    tcase_add_test(tests, library_is_one_line);
    suite_add_tcase(suite, tests);
    return mpi_run(suite, &argc, &argv);
}
