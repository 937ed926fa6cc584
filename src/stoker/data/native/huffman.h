// The entropy decoder of baseline JPEGs, put in the place of libjpeg-turbo's own: it takes about half the time and passes
// over pictures' parts that nobody asked for without storing a coefficient.
//
// Every symbol is one look into a table that knows the code and, where they fit, the bits that follow it. Stuffed zeros
// are taken out beforehand, so that the bit buffer is filled without looking at bytes. Where a picture has restart
// markers, whole intervals that nobody asked for are jumped over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <jpeglib.h>

#include "table.h"

namespace stoker {

constexpr int kAtOnce = 56 / kLook;  // codes, each with its value, that a filled bit buffer holds for sure
constexpr int kRunaway = 512;        // bytes that a damaged block may read behind the end before it is noticed
constexpr int kMaxComponents = 4;    // of a scan, by the standard

// Zigzag place -> place in the block. 80 more, so that neither the end of a block nor a damaged run leaves the block:
// what they store is a zero where a zero is.
constexpr uint8_t kNatural[64 + 80] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60,
    61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

// The next bits of a scan. Kept in registers while a block is decoded.
struct Bits {
  const uint8_t* next = nullptr;
  uint64_t buffer = 0;  // from the highest bit down
  int count = 0;        // how many of them are there

  // At least 56 bits. Reads on behind the end, where there is room for it; who decodes looks afterwards.
  void fill() {
    uint64_t eight;
    memcpy(&eight, next, 8);
    buffer |= __builtin_bswap64(eight) >> count;
    next += (63 - count) >> 3;
    count |= 56;
  }
  void drop(int bits) {
    buffer <<= bits;
    count -= bits;
  }
  int taken(int size) {
    const int value = int(buffer >> (64 - size));
    drop(size);
    return extended(value, size);
  }
};

// The scan of one picture. Lives as long as libjpeg's decompressor uses it.
class Scan {
 public:
  // Take over from libjpeg. Called between jpeg_start_decompress and the first line; false leaves libjpeg as it was.
  bool attach(j_decompress_ptr info, const uint8_t* end);
  // Only these columns of MCUs are asked for.
  void want(unsigned first, unsigned last) { first_ = first, last_ = last; }

 private:
  static boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks);
  bool unstuff(const uint8_t* from, const uint8_t* end);
  bool pass_over();
  bool begin_interval(size_t number);
  bool decode(JBLOCKROW* blocks);
  template <bool kStored> bool block(JCOEF* into, const Table& dc, const Table& ac, int& prediction);

  // libjpeg's own part that is replaced. Not in its public header, but decode_mcu is the second pointer in every version
  // from 6b to libjpeg-turbo 3.1; what comes behind it differs, and is not touched.
  struct Entropy {
    void (*start_pass)(j_decompress_ptr);
    boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*);
  };

  std::vector<uint8_t> clean_;       // the scan without stuffing and markers
  std::vector<size_t> intervals_;    // where each restart interval begins in it
  size_t clean_size_ = 0;
  Bits bits_;
  const uint8_t* stop_ = nullptr;    // end of the interval
  Table tables_[2][NUM_HUFF_TBLS];
  const Table* dc_[10];              // of each block of an MCU
  const Table* ac_[10];
  int component_[10];
  int predictions_[kMaxComponents];
  int blocks_ = 0;
  unsigned per_row_ = 0, column_ = 0, first_ = 0, last_ = 0;
  uint64_t per_interval_ = 0, done_ = 0, passed_ = 0;  // MCUs: of an interval, decoded, and to be passed over
};

inline bool Scan::unstuff(const uint8_t* from, const uint8_t* end) {
  if (clean_.size() < size_t(end - from) + kRunaway) clean_.resize(end - from + kRunaway);
  intervals_.assign(1, 0);
  uint8_t* to = clean_.data();
  while (from < end) {
    const auto* mark = static_cast<const uint8_t*>(memchr(from, 0xFF, end - from));
    const size_t plain = (mark ? mark : end) - from;
    memcpy(to, from, plain);
    to += plain;
    if (!mark) break;
    from = mark + 1;
    while (from < end && *from == 0xFF) from++;  // fill bytes
    if (from == end) break;
    const uint8_t code = *from++;
    if (code == 0) {
      *to++ = 0xFF;
    } else if (code >= 0xD0 && code <= 0xD7 && per_interval_) {
      // Out of turn means that something is missing: let libjpeg, which knows how to find its place again, see to it.
      if (code - 0xD0 != int((intervals_.size() - 1) & 7)) return false;
      intervals_.push_back(to - clean_.data());
    } else {
      break;  // the end of the scan
    }
  }
  clean_size_ = to - clean_.data();
  memset(to, 0, kRunaway);
  return true;
}

inline bool Scan::begin_interval(size_t number) {
  if (number >= intervals_.size()) return false;
  bits_ = Bits{};
  bits_.next = clean_.data() + intervals_[number];
  stop_ = clean_.data() + (number + 1 < intervals_.size() ? intervals_[number + 1] : clean_size_);
  memset(predictions_, 0, sizeof predictions_);
  return true;
}

inline bool Scan::attach(j_decompress_ptr info, const uint8_t* end) {
  if (info->progressive_mode || info->arith_code || info->data_precision != 8) return false;
  if (info->comps_in_scan != info->num_components || info->comps_in_scan > kMaxComponents) return false;
  if (info->Ss != 0 || info->Se != DCTSIZE2 - 1 || info->Ah != 0 || info->Al != 0) return false;
  blocks_ = info->blocks_in_MCU;
  for (int k = 0; k < blocks_; k++) {
    const int which = component_[k] = info->MCU_membership[k];
    const jpeg_component_info* part = info->cur_comp_info[which];
    const int dc = part->dc_tbl_no, ac = part->ac_tbl_no;
    if (dc < 0 || dc >= NUM_HUFF_TBLS || ac < 0 || ac >= NUM_HUFF_TBLS) return false;
    if (!info->dc_huff_tbl_ptrs[dc] || !info->ac_huff_tbl_ptrs[ac]) return false;
    if (!tables_[0][dc].make(*info->dc_huff_tbl_ptrs[dc], true)) return false;
    if (!tables_[1][ac].make(*info->ac_huff_tbl_ptrs[ac], false)) return false;
    dc_[k] = &tables_[0][dc];
    ac_[k] = &tables_[1][ac];
  }
  per_interval_ = info->restart_interval;
  per_row_ = info->MCUs_per_row;
  first_ = 0, last_ = per_row_ - 1;
  column_ = 0;
  done_ = passed_ = 0;
  if (!unstuff(info->src->next_input_byte, end) || !begin_interval(0)) return false;
  info->client_data = this;
  reinterpret_cast<Entropy*>(info->entropy)->decode_mcu = decode_mcu;
  return true;
}

template <bool kStored> inline bool Scan::block(JCOEF* into, const Table& dc, const Table& ac, int& prediction) {
  Bits bits = bits_;
  bits.fill();
  uint32_t entry = dc.fast[bits.buffer >> (64 - kLook)];
  if (size_of(entry) == kLong && !(entry = dc.longer(bits.buffer))) return false;
  bits.drop(bits_of(entry));
  const int value = size_of(entry) ? bits.taken(size_of(entry)) : value_of(entry);
  // Wraps where a damaged picture goes beyond all sense.
  prediction = int(unsigned(prediction) + unsigned(value));
  if (kStored) into[0] = JCOEF(prediction);
  // A pointer to the entries themselves saves an addition for each symbol, which everything waits for.
  const uint32_t* const fast = ac.fast;
  int k = 0;
  while (k < DCTSIZE2 - 1) {
    bits.fill();
    uint32_t dropped = 0;  // adds up in its low 8 bits
    for (int turn = 0; turn < kAtOnce && k < DCTSIZE2 - 1; turn++) {
      entry = fast[bits.buffer >> (64 - kLook)];
      if (__builtin_expect(size_of(entry), 0)) break;
      bits.buffer <<= entry & 63;
      dropped += entry;
      k += advance_of(entry);
      if (kStored) into[kNatural[k]] = JCOEF(value_of(entry));
    }
    bits.count -= dropped & 255;
    if (__builtin_expect(size_of(entry), 0)) {
      bits.fill();
      if (size_of(entry) == kLong && !(entry = ac.longer(bits.buffer))) return false;
      bits.drop(bits_of(entry));
      k += advance_of(entry);
      const int now = size_of(entry) ? bits.taken(size_of(entry)) : 0;
      if (kStored) into[kNatural[k]] = JCOEF(now);
    }
  }
  bits_ = bits;
  return (bits.next - stop_) * 8 <= bits.count;  // nothing from behind the end was used
}

// Go over the MCUs that nobody asked for: whole intervals at a jump, the rest symbol by symbol.
inline bool Scan::pass_over() {
  while (passed_ > 0) {
    if (per_interval_ && done_ % per_interval_ == 0) {
      const uint64_t whole = passed_ / per_interval_;
      done_ += whole * per_interval_;
      passed_ -= whole * per_interval_;
      if (!begin_interval(done_ / per_interval_)) return false;
      if (!passed_) break;
    }
    for (int k = 0; k < blocks_; k++) {
      if (!block<false>(nullptr, *dc_[k], *ac_[k], predictions_[component_[k]])) return false;
    }
    done_++;
    passed_--;
  }
  return true;
}

inline bool Scan::decode(JBLOCKROW* blocks) {
  if (!pass_over()) return false;
  if (per_interval_ && done_ % per_interval_ == 0 && !begin_interval(done_ / per_interval_)) return false;
  for (int k = 0; k < blocks_; k++) {
    if (!block<true>(blocks[k][0], *dc_[k], *ac_[k], predictions_[component_[k]])) return false;
  }
  done_++;
  return true;
}

inline boolean Scan::decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  Scan& scan = *static_cast<Scan*>(info->client_data);
  const unsigned column = scan.column_;
  scan.column_ = column + 1 == scan.per_row_ ? 0 : column + 1;
  if (!blocks || column < scan.first_ || column > scan.last_) {
    scan.passed_++;
  } else if (!scan.decode(blocks)) {
    info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
  }
  return TRUE;
}

}  // namespace stoker
