/* SPDX-License-Identifier: Apache-2.0 */
/* Measured costs: profile.json. */
#ifndef TP_PLAN_PROFILE_H
#define TP_PLAN_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/options.h"
#include "base/status.h"
#include "model/model.h"
#include "plan/cost.h"

/* Seconds by a number, ascending: linear between points, the last segment's slope beyond the last,
 * the first point's value below the first. No points: 0. */
struct tp_point {
    double at; /* tokens, or bytes */
    double seconds;
};
struct tp_curve {
    int count;
    struct tp_point *points;
};

/* Seconds by sequences b and tokens s: a curve in s for each b that was measured. */
struct tp_table {
    int count;
    struct tp_table_row {
        int sequences;
        struct tp_curve by_tokens;
    } * rows; /* ascending sequences */
};

/* base(b, s) and, after c > 0 tokens, a0 + a1 b s + a2 b c + a3 b s c more. */
struct tp_layer_times {
    struct tp_table base;
    double context[4];
};

/* One kind of device; tables per direction. */
struct tp_profile_device {
    char *name;
    size_t memory;          /* bytes; 0: unlimited */
    double peak_flops;      /* 0: unknown */
    double reference_flops; /* what the reference product of the profiler (train/reference.h)
                               reached when the device was as fast as the times say; 0: unknown */
    struct tp_footprint footprint;
    struct tp_layer_times layer[2];
    struct tp_table gradient; /* of delayed weight gradients; empty: they are in backward */
    struct tp_table embed[2], head[2]; /* empty: they take no time */
};

struct tp_profile {
    char *path;                              /* of its file; NULL: it was measured */
    int n_embd, n_head, n_inner, vocab_size; /* what the model was like */
    int op, threads, ranks_per_node;
    int n_devices;
    struct tp_profile_device *devices;
    int n_ranks; /* 0: all have the first device */
    int *ranks;  /* device of each rank of a replica */
    struct tp_curve link;
    int n_links;
    struct tp_curve *links; /* of each stage boundary; none: all have link */
    int n_allreduces;
    struct tp_allreduce_times {
        int ranks;
        struct tp_curve by_bytes;
    } * allreduces;
    double update_seconds_per_parameter;
    struct tp_cost_device *cost_devices; /* the devices again, as a cost has them */
};

/* Adds a measurement to a curve or a table, in its place; everything is added this way, from a file
 * or by a profiler. Local. TP_ERR_INPUT when the place is taken or the time is negative or not
 * finite: where says which table, as "profile.json: link"; TP_ERR_MEMORY. */
enum tp_status tp_curve_add(struct tp_curve *curve, const char *where, double at, double seconds);
enum tp_status tp_table_add(struct tp_table *table, const char *where, int sequences, int tokens,
                            double seconds);

/* What a curve says. Local. */
double tp_curve_at(const struct tp_curve *curve, double at);

/* Reads the file. Local. TP_ERR_INPUT names the file, the key and the row; TP_ERR_IO,
 * TP_ERR_MEMORY. */
enum tp_status tp_profile_load(const char *path, struct tp_profile **profile);

/* Writes it, by rename; one device without a list of ranks is written as "device". Local.
 * TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_profile_save(const struct tp_profile *profile, const char *path);

/* An empty profile with that many devices, to be filled by a profiler; its footprints are those of
 * a file that says none. Local. TP_ERR_MEMORY. */
enum tp_status tp_profile_new(int n_devices, struct tp_profile **profile);
void tp_profile_free(struct tp_profile *profile);

/* Is it for this model and op degree? where is the file's name. Local. TP_ERR_INPUT names the key.
 */
enum tp_status tp_profile_check(const struct tp_profile *profile, const char *where,
                                const struct tp_model *model, int op);

/* The profiles of a run, one for each op degree. */
struct tp_profiles {
    int count;
    struct tp_profile **at;
};

/* Reads all files, which must be for this model. Local. TP_ERR_INPUT names the file, also when two
 * are for one op degree; TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_profiles_load(const struct tp_option_list *paths, const struct tp_model *model,
                                struct tp_profiles *profiles);
void tp_profiles_fini(struct tp_profiles *profiles);

/* Index of the one for these degrees. Local. TP_ERR_INPUT names the op degrees that there are, or
 * the key of the file that lists other ranks or stage boundaries than these degrees have. */
enum tp_status tp_profiles_find(const struct tp_profiles *profiles, int pipe, int op, int *index);

/* The profile as a cost, valid as long as the profile is and its devices do not change. Local. */
void tp_profile_cost(struct tp_profile *profile, struct tp_cost *cost);

#endif
