/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of CLBlast's matrix products: which there are, which may be tried on a device, and
 * the file that keeps those which were found best. Names and rules are those of CLBlast's document
 * doc/tuning.md and its tuner. Nothing here measures: train/tuner.h does.
 *
 * Only kernel 0 (GEMMK=0) is ever chosen: kernel 1 corrupts memory in versions below 1.6.3 when
 * MWG and NWG differ, and the library cannot be asked which version it is. Products of 64^3
 * multiplications or more go to the kernel that the parameters are of, and not to XgemmDirect. */
#ifndef TP_DEVICE_TUNING_H
#define TP_DEVICE_TUNING_H

#include <stdbool.h>

#include "base/status.h"
#include "device/device.h"

enum {
    TP_TUNING_PARAMETERS = 14,
    TP_TUNING_TEXT = 192,
    TP_TUNING_MOVES = 2 * TP_TUNING_PARAMETERS
};

/* One value for each parameter, in the order of their names. Plain memory. */
struct tp_tuning {
    int values[TP_TUNING_PARAMETERS];
};

/* May it be tried: are the values CLBlast's, do they divide each other as its kernel needs, and
 * does a work-group fit the device? Parameters without effect have one value only. Local. */
bool tp_tuning_is_legal(const struct tp_tuning *set, const struct tp_device_info *device);

bool tp_tuning_is_same(const struct tp_tuning *a, const struct tp_tuning *b);

/* A set to begin with, for the device's type: the number-th of the list, from 0. Legal on every
 * device whose work-groups allow it. Is there one? Local. */
bool tp_tuning_start(const struct tp_device_info *device, int number, struct tp_tuning *set);

/* The set that differs from another in one parameter, by one step up (even moves) or down, and in
 * those that have to follow it. move is below TP_TUNING_MOVES. Is there a legal one? Local. */
bool tp_tuning_move(const struct tp_device_info *device, const struct tp_tuning *from, int move,
                    struct tp_tuning *to);

/* "KWG=16 KWI=2 ...", and back: all names, once, in order. Does the text say a set, legal or not?
 * Local. */
void tp_tuning_print(const struct tp_tuning *set, char text[TP_TUNING_TEXT]);
bool tp_tuning_parse(const char *text, struct tp_tuning *set);

/* From now on, in this process, CLBlast multiplies so on the device; it builds its kernels again at
 * the next product, which takes many seconds with some drivers. Local. TP_ERR_DEVICE. */
enum tp_status tp_tuning_apply(struct tp_device *device, const struct tp_tuning *set);

/* Version of CLBlast as its header says, "1.5.3". */
const char *tp_tuning_library(void);

/* The file that tp_device_open() looks for: one for each device, driver and version of CLBlast, in
 * the user's cache folder. malloc'd and the caller's; NULL when there is no such folder. Local. */
char *tp_tuning_path(const struct tp_device_info *device);

/* Writes such a file, by rename, and its folder. gflops and ratio, to CLBlast's own parameters, are
 * for people. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_tuning_save(const char *path, const struct tp_device_info *device,
                              const struct tp_tuning *set, double gflops, double ratio);

/* Reads it. false when there is none, and, with a note, when it is damaged or of another device,
 * driver or CLBlast. Local. */
bool tp_tuning_load(const char *path, const struct tp_device_info *device, struct tp_tuning *set);

#endif
