// A Huffman table of a JPEG as the entropy decoder uses it: one look gives the code and, where they fit, the bits that
// follow it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>

namespace stoker {

constexpr int kLook = 11;  // bits looked at at once: a table is 8 KiB, and few are in use at a time

// A Huffman table as it is used. An entry of `fast` holds the bits to drop (low 8), how far to go in the block (next 8),
// the bits of the value that are still to be read (next 4, or kLong for a code longer than kLook), the value (high 12).
constexpr uint32_t kLong = 15;
inline uint32_t made_entry(int bits, int advance, int size, int value) {
  return uint32_t(bits) | uint32_t(advance) << 8 | uint32_t(size) << 16 | uint32_t(value) << 20;
}
inline int bits_of(uint32_t entry) { return entry & 255; }
inline int advance_of(uint32_t entry) { return (entry >> 8) & 255; }
inline int size_of(uint32_t entry) { return (entry >> 16) & 15; }
inline int value_of(uint32_t entry) { return int32_t(entry) >> 20; }

struct Table {
  uint8_t bits[17] = {};
  uint8_t values[256] = {};
  bool is_dc = false;
  bool is_made = false;
  uint32_t fast[1 << kLook];
  int32_t first_code[18];  // of each length, and where its values begin
  int32_t first_value[18];
  int32_t last_code[18];

  // Whether the table could be made: lengths that overflow the code space are refused.
  bool make(const JHUFF_TBL& from, bool dc);
  uint32_t entry(int length, int symbol, int room, int following) const;
  uint32_t longer(uint64_t buffer) const;
};

inline int extended(int value, int size) { return value < (1 << (size - 1)) ? value - (1 << size) + 1 : value; }

inline uint32_t Table::entry(int length, int symbol, int room, int following) const {
  const int size = is_dc ? symbol : symbol & 15, run = symbol >> 4;
  // Without a value: no difference, the end of the block, or sixteen zeros.
  if (size == 0) return made_entry(length, is_dc ? 0 : run == 15 ? 16 : 64, 0, 0);
  const int advance = is_dc ? 0 : run + 1;
  if (size > room) return made_entry(length, advance, size, 0);
  return made_entry(length + size, advance, 0, extended(following >> (room - size), size));
}

inline bool Table::make(const JHUFF_TBL& from, bool dc) {
  if (is_made && is_dc == dc && !memcmp(bits, from.bits, sizeof bits) && !memcmp(values, from.huffval, sizeof values)) {
    return true;
  }
  is_made = false;
  is_dc = dc;
  memcpy(bits, from.bits, sizeof bits);
  memcpy(values, from.huffval, sizeof values);
  for (auto& each : fast) each = made_entry(0, 0, kLong, 0);
  int code = 0, count = 0;
  for (int length = 1; length <= 16; length++, code <<= 1) {
    first_code[length] = code;
    first_value[length] = count;
    for (int k = 0; k < bits[length]; k++, code++, count++) {
      if (count >= 256 || code >= (1 << length)) return false;
      const int symbol = values[count];
      if (dc ? symbol > 11 : (symbol & 15) == kLong) return false;  // beyond 8-bit pictures: libjpeg may judge
      if (length > kLook) continue;
      const int room = kLook - length;
      for (int following = 0; following < (1 << room); following++) {
        fast[(code << room) | following] = entry(length, symbol, room, following);
      }
    }
    last_code[length] = code;
  }
  is_made = true;
  return true;
}

// A code longer than the table looks at: the canonical way. 0 where there is no such code.
inline uint32_t Table::longer(uint64_t buffer) const {
  const int32_t sixteen = buffer >> 48;
  for (int length = kLook + 1; length <= 16; length++) {
    const int32_t code = sixteen >> (16 - length);
    if (code >= first_code[length] && code < last_code[length]) {
      return entry(length, values[first_value[length] + code - first_code[length]], 0, 0);
    }
  }
  return 0;
}

}  // namespace stoker
