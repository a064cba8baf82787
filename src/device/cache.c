/* SPDX-License-Identifier: Apache-2.0 */
/* Where this layer keeps what can be made again. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "opencl.h"

char *tp_cache_path(const struct tp_device_info *device, const char *text, const char *ending)
{
    const char *const texts[] = {device->platform, device->name, device->version, device->driver,
                                 text};
    unsigned long long hash = 0;
    char name[64], *folder = tp_file_cache_folder();
    if (folder == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        hash = XXH64(texts[i], strlen(texts[i]) + 1, hash);
    snprintf(name, sizeof(name), "%016llx.%s", hash, ending);
    char *path = tp_file_join(folder, name);
    free(folder);
    return path;
}
