/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "published.h"

/* --- CSV -----------------------------------------------------------------------------------------
 */

static void csv_fini(struct csv *csv)
{
    free(csv->path);
    free(csv->text);
    free(csv->cells);
}

/* Ends each cell of the text with a zero byte; there is room for all cells. */
static enum tp_status csv_split(struct csv *csv)
{
    char *at = csv->text;
    int column = 0;

    csv->rows = -1; /* the first line is none */
    for (int cell = 0; *at != '\0'; cell++) {
        csv->cells[cell] = at;
        at += strcspn(at, ",\n");
        column++;
        const bool more = *at == ',';
        if (*at != '\0')
            *at++ = '\0';
        if (more && *at != '\0')
            continue;
        csv->rows++;
        if (csv->rows == 0)
            csv->columns = column;
        if (column != csv->columns)
            return tp_fail(TP_ERR_INPUT, "%s: line %d has %d cells, expected %d", csv->path,
                           csv->rows + 1, column, csv->columns);
        column = 0;
    }
    if (csv->rows < 1 || csv->rows > MOST_ROWS)
        return tp_fail(TP_ERR_INPUT, "%s: %d lines, expected the columns' names and 1 to %d rows",
                       csv->path, csv->rows + 1, MOST_ROWS);
    return TP_OK;
}

/* After an error the table is still to be freed. */
static enum tp_status csv_load(const char *folder, const char *name, struct csv *csv)
{
    enum { LIMIT = 1 << 20 };
    size_t size, cells = 1;

    *csv = (struct csv){.path = tp_file_join(folder, name)};
    if (csv->path == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its path", name);
    TP_TRY(tp_file_read(csv->path, LIMIT, &csv->text, &size));
    for (size_t i = 0; i < size; i++)
        cells += csv->text[i] == ',' || csv->text[i] == '\n';
    csv->cells = malloc(cells * sizeof *csv->cells);
    if (csv->cells == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for %zu cells", csv->path, cells);
    return csv_split(csv);
}

/* A cell by its row, from 0, and its column's name. */
static enum tp_status csv_text(const struct csv *csv, int row, const char *column,
                               const char **text)
{
    for (int i = 0; i < csv->columns; i++)
        if (strcmp(csv->cells[i], column) == 0) {
            *text = csv->cells[(size_t)(row + 1) * (size_t)csv->columns + (size_t)i];
            return TP_OK;
        }
    return tp_fail(TP_ERR_INPUT, "%s: there is no column %s", csv->path, column);
}

static enum tp_status csv_real(const struct csv *csv, int row, const char *column, double *value)
{
    const char *text = "";
    char *end;

    TP_TRY(csv_text(csv, row, column, &text));
    *value = strtod(text, &end);
    if (end == text || *end != '\0' || !(*value > 0))
        return tp_fail(TP_ERR_INPUT, "%s: %s of row %d is %s, expected a number above 0", csv->path,
                       column, row + 1, text);
    return TP_OK;
}

static enum tp_status csv_whole(const struct csv *csv, int row, const char *column, int most,
                                int *value)
{
    double real = 0;

    TP_TRY(csv_real(csv, row, column, &real));
    if (real < 1 || real > most || real != floor(real))
        return tp_fail(TP_ERR_INPUT, "%s: %s of row %d is %g, expected 1 to %d", csv->path, column,
                       row + 1, real, most);
    *value = (int)real;
    return TP_OK;
}

/* --- The tables ----------------------------------------------------------------------------------
 */

enum { MOST = 1000000 };

static enum tp_status read_setting(const struct csv *csv, int row, struct setting *s)
{
    const struct {
        const char *column;
        int *value;
    } wholes[] = {{"layers", &s->n_layer}, {"hidden", &s->n_embd},
                  {"heads", &s->n_head},   {"seq_len", &s->seq_len},
                  {"data", &s->data},      {"pipe", &s->pipe},
                  {"op", &s->op},          {"batch_per_replica", &s->batch}};

    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        TP_TRY(csv_whole(csv, row, wholes[i].column, MOST, wholes[i].value));
    TP_TRY(csv_text(csv, row, "config", &s->name));
    TP_TRY(csv_text(csv, row, "slices_of_one_group", &s->slices));
    TP_TRY(csv_real(csv, row, "gpipe_s", &s->gpipe));
    return csv_real(csv, row, "terapipe_s", &s->terapipe);
}

static enum tp_status read_settings(struct published *p)
{
    for (int row = 0; row < p->tables[0].rows; row++)
        TP_TRY(read_setting(&p->tables[0], row, &p->settings[p->n_settings++]));
    return TP_OK;
}

static enum tp_status read_runs(struct published *p)
{
    const struct csv *csv = &p->tables[1];

    for (int row = 0; row < csv->rows; row++) {
        struct uniform_run *run = &p->runs[p->n_runs];
        const char *slices = "";
        TP_TRY(csv_text(csv, row, "uniform_slices", &slices));
        if (strcmp(slices, "optimal") == 0) /* a setting's scheme again */
            continue;
        TP_TRY(csv_whole(csv, row, "uniform_slices", MOST_SLICES, &run->slices));
        TP_TRY(csv_text(csv, row, "config", &run->setting));
        TP_TRY(csv_real(csv, row, "latency_s", &run->seconds));
        p->n_runs++;
    }
    return TP_OK;
}

static enum tp_status read_times(struct published *p)
{
    const struct csv *csv = &p->tables[2];

    for (int row = 0; row < csv->rows; row++) {
        struct layer_time *time = &p->times[p->n_times++];
        double milliseconds = 0;
        TP_TRY(csv_text(csv, row, "setting", &time->setting));
        TP_TRY(csv_whole(csv, row, "slice_len", MOST, &time->length));
        TP_TRY(csv_real(csv, row, "per_layer_ms", &milliseconds));
        time->seconds = 1e-3 * milliseconds;
    }
    return TP_OK;
}

enum tp_status published_load(const char *folder, struct published *p)
{
    static const char *const names[] = {"published.csv", "fig6_uniform.csv",
                                        "v100_stage_times.csv"};
    enum tp_status status = TP_OK;

    *p = (struct published){0};
    for (int i = 0; i < 3 && status == TP_OK; i++)
        status = csv_load(folder, names[i], &p->tables[i]);
    if (status == TP_OK)
        status = read_settings(p);
    if (status == TP_OK)
        status = read_runs(p);
    if (status == TP_OK)
        status = read_times(p);
    if (status != TP_OK)
        published_fini(p);
    return status;
}

void published_fini(struct published *p)
{
    for (int i = 0; i < 3; i++)
        csv_fini(&p->tables[i]);
}

/* --- Questions -----------------------------------------------------------------------------------
 */

const struct setting *published_setting(const struct published *p, const char *name)
{
    for (int i = 0; i < p->n_settings; i++)
        if (strcmp(p->settings[i].name, name) == 0)
            return &p->settings[i];
    return NULL;
}

double published_uniform(const struct published *p, const struct setting *setting, int count)
{
    for (int i = 0; i < p->n_runs; i++)
        if (strcmp(p->runs[i].setting, setting->name) == 0 && p->runs[i].slices == count)
            return p->runs[i].seconds;
    return 0;
}
