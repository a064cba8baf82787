// SPDX-License-Identifier: Apache-2.0
// Dropout from counters: Philox4x32-10 (Salmon et al., SC 2011), the host's tp_dropout_bits(). A block of
// four numbers belongs to {index / 4, token, sequence, use}; element index has number index % 4 of it.

#define DROPOUT_USE 4 // TP_RNG_DROPOUT

// Ten rounds over numbers or the lanes of vectors; name_multiply() gives the halves of their 64-bit products.
#define PHILOX(name, type)                                                                                   \
    void name(type *c0, type *c1, type *c2, type *c3, ulong key)                                             \
    {                                                                                                        \
        uint k0 = (uint)key, k1 = (uint)(key >> 32);                                                         \
        type high0, low0, high1, low1;                                                                       \
        for (int round = 0; round < 10; round++) {                                                           \
            name##_multiply(&high0, &low0, *c0, 0xd2511f53);                                                 \
            name##_multiply(&high1, &low1, *c2, 0xcd9e8d57);                                                 \
            *c0 = high1 ^ *c1 ^ k0;                                                                          \
            *c1 = low1;                                                                                      \
            *c2 = high0 ^ *c3 ^ k1;                                                                          \
            *c3 = low0;                                                                                      \
            k0 += 0x9e3779b9;                                                                                \
            k1 += 0xbb67ae85;                                                                                \
        }                                                                                                    \
    }
