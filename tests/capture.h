/* SPDX-License-Identifier: Apache-2.0 */
/* What the program says on stderr between two points. */
#ifndef TP_TESTS_CAPTURE_H
#define TP_TESTS_CAPTURE_H

/* From now on stderr is kept instead of printed. */
void capture_begin(void);

/* Ends that. The text is valid until the next capture. */
const char *capture_end(void);

#endif
