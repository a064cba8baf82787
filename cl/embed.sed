# SPDX-License-Identifier: Apache-2.0
# Turns each line into an element of an array of C strings; no trigraph can arise.
s/\\/\\\\/g
s/"/\\"/g
s/?/\\?/g
s/.*/    "&\\n",/
