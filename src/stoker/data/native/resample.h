// Antialiased resize of 8-bit RGB, line by line: what Pillow's BILINEAR does (a triangle as wide as the scale), in
// 16-bit integers and vectors. Lines are blended downwards first, because that needs no shuffling, then along.
// The arithmetic is the same on every processor, so the pixels are too.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stoker {

constexpr int kDownBits = 15;   // weights of lines
constexpr int kAlongBits = 14;  // weights of columns
constexpr int kPixelBits = 7;   // fraction bits of a pixel between the two
constexpr int kSlack = 64;      // values that may be read behind a line

// For each output place: the first input place, and the weights of it and those behind it, padded with zeros.
struct Weights {
  std::vector<int> first;
  std::vector<int16_t> weights;
  int taps = 0;  // of each place; even

  // From the part [begin, begin + length) of the input to `count` places; only [low, high) of the input may be used.
  void make(double begin, double length, int low, int high, int count, int bits, bool reversed);

 private:
  std::vector<double> exact_;
};

inline void Weights::make(double begin, double length, int low, int high, int count, int bits, bool reversed) {
  const double scale = length / count, support = std::max(scale, 1.0);
  taps = (int(std::ceil(2 * support)) + 1) & ~1;
  first.resize(count);
  weights.assign(size_t(count) * taps, 0);
  exact_.resize(taps);
  const int one = 1 << bits;
  for (int place = 0; place < count; place++) {
    const double centre = begin + (place + 0.5) * scale;
    int from = std::max(int(std::floor(centre - support + 0.5)), low);
    int to = std::min(int(std::floor(centre + support + 0.5)), high);
    from = std::min(from, high - 1);
    to = std::min(std::max(to, from + 1), from + taps);
    double total = 0;
    for (int k = from; k < to; k++) {
      const double away = std::fabs((k - centre + 0.5) / support);
      total += exact_[k - from] = away < 1 ? 1 - away : 0;
    }
    const int target = reversed ? count - 1 - place : place;
    int16_t* into = &weights[size_t(target) * taps];
    int left = one, largest = 0;
    for (int k = 0; k < to - from; k++) {
      into[k] = int16_t(std::min(32767L, std::lround(total > 0 ? exact_[k] / total * one : (k == 0) * one)));
      left -= into[k];
      if (into[k] > into[largest]) largest = k;
    }
    // Weights add up to one, so that an even surface stays what it is.
    into[largest] = int16_t(std::min(32767, into[largest] + left));
    first[target] = from;
  }
}

// Lines of bytes, weighted and added up, with kPixelBits of fraction. Inlined with a number for `count` where there are
// few, so that the inner loop goes away.
inline __attribute__((always_inline)) void blend_some(const uint8_t* const* lines, const int16_t* weights, int count,
                                                      int16_t* into, int length) {
  int at = 0;
#if defined(__aarch64__)
  for (; at + 16 <= length; at += 16) {
    int16x8_t low = vdupq_n_s16(0), high = low;
    for (int k = 0; k < count; k++) {
      const uint8x16_t bytes = vld1q_u8(lines[k] + at);
      const int16x8_t a = vreinterpretq_s16_u16(vshll_n_u8(vget_low_u8(bytes), kPixelBits));
      const int16x8_t b = vreinterpretq_s16_u16(vshll_high_n_u8(bytes, kPixelBits));
      low = vqaddq_s16(low, vqrdmulhq_n_s16(a, weights[k]));
      high = vqaddq_s16(high, vqrdmulhq_n_s16(b, weights[k]));
    }
    vst1q_s16(into + at, low);
    vst1q_s16(into + at + 8, high);
  }
#elif defined(__SSSE3__)
  for (; at + 16 <= length; at += 16) {
    const __m128i zero = _mm_setzero_si128();
    __m128i low = zero, high = zero;
    for (int k = 0; k < count; k++) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[k] + at));
      const __m128i weight = _mm_set1_epi16(weights[k]);
      const __m128i a = _mm_slli_epi16(_mm_unpacklo_epi8(bytes, zero), kPixelBits);
      const __m128i b = _mm_slli_epi16(_mm_unpackhi_epi8(bytes, zero), kPixelBits);
      low = _mm_adds_epi16(low, _mm_mulhrs_epi16(a, weight));
      high = _mm_adds_epi16(high, _mm_mulhrs_epi16(b, weight));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(into + at), low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(into + at + 8), high);
  }
#endif
  for (; at < length; at++) {
    int sum = 0;
    for (int k = 0; k < count; k++) {
      sum += ((lines[k][at] << kPixelBits) * weights[k] + (1 << (kDownBits - 1))) >> kDownBits;
    }
    into[at] = int16_t(std::min(sum, 32767));
  }
}

template <int kCount> void blend_lines(const uint8_t* const* lines, const int16_t* weights, int16_t* into, int length) {
  const uint8_t* from[kCount];
  int16_t by[kCount];
  std::copy(lines, lines + kCount, from);
  std::copy(weights, weights + kCount, by);
  blend_some(from, by, kCount, into, length);
}

inline void blend_lines(const uint8_t* const* lines, const int16_t* weights, int count, int16_t* into, int length) {
  switch (count) {
    case 2: return blend_lines<2>(lines, weights, into, length);
    case 3: return blend_lines<3>(lines, weights, into, length);
    case 4: return blend_lines<4>(lines, weights, into, length);
    case 5: return blend_lines<5>(lines, weights, into, length);
    case 6: return blend_lines<6>(lines, weights, into, length);
    default: return blend_some(lines, weights, count, into, length);
  }
}

// The weighted sum of `taps` pixels, as four bytes: red, green, blue, and one that means nothing.
// Inlined with a number for taps, so that the loop goes away.
inline __attribute__((always_inline)) uint32_t summed(const int16_t* from, const int16_t* weights, int taps) {
  constexpr int kShift = kAlongBits + kPixelBits;
  uint32_t four = 0;
#if defined(__aarch64__)
  int32x4_t sum = vdupq_n_s32(0);
  for (int k = 0; k < taps; k += 2) {
    const int16x4_t two = vreinterpret_s16_s32(vld1_dup_s32(reinterpret_cast<const int32_t*>(weights + k)));
    sum = vmlal_lane_s16(sum, vld1_s16(from + 3 * k), two, 0);
    sum = vmlal_lane_s16(sum, vld1_s16(from + 3 * k + 3), two, 1);
  }
  const uint16x4_t narrow = vqmovun_s32(vrshrq_n_s32(sum, kShift));
  const uint8x8_t bytes = vqmovn_u16(vcombine_u16(narrow, narrow));
  four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
#elif defined(__SSE2__)
  __m128i sum = _mm_set1_epi32(1 << (kShift - 1));
  for (int k = 0; k < taps; k += 2) {
    int32_t pair;
    memcpy(&pair, weights + k, 4);
    const __m128i a = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 3 * k));
    const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 3 * k + 3));
    sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_unpacklo_epi16(a, b), _mm_set1_epi32(pair)));
  }
  const __m128i narrow = _mm_packs_epi32(_mm_srai_epi32(sum, kShift), sum);
  four = uint32_t(_mm_cvtsi128_si32(_mm_packus_epi16(narrow, narrow)));
#else
  for (int colour = 0; colour < 3; colour++) {
    int sum = 1 << (kShift - 1);
    for (int k = 0; k < taps; k++) sum += from[3 * k + colour] * weights[k];
    four |= uint32_t(std::clamp(sum >> kShift, 0, 255)) << (8 * colour);
  }
#endif
  return four;
}

template <int kTaps> inline void resize_line(const int16_t* line, const Weights& along, int count, uint8_t* into) {
  const int taps = kTaps ? kTaps : along.taps;
  const int16_t* weights = along.weights.data();
  const int* first = along.first.data();
  for (int place = 0; place < count; place++, weights += taps, into += 3) {
    const uint32_t four = summed(line + 3 * first[place], weights, taps);
    memcpy(into, &four, 4);
  }
}

// One line of RGB, resized along. `into` has room for a byte more than 3 * count.
inline void resize_line(const int16_t* line, const Weights& along, int count, uint8_t* into) {
  switch (along.taps) {
    case 2: return resize_line<2>(line, along, count, into);
    case 4: return resize_line<4>(line, along, count, into);
    case 6: return resize_line<6>(line, along, count, into);
    default: return resize_line<0>(line, along, count, into);
  }
}

// Takes a picture's lines from top to bottom and writes the resized lines as soon as they can be made.
class Resampler {
 public:
  // The part (left, top, width, height) of a picture -> side x side pixels, packed, in `out`. [low, high) are the columns
  // and [top_low, top_high) the lines that may be used.
  struct Part {
    double left, top, width, height;
    int low, high, top_low, top_high;
    bool is_flipped;
  };
  // Lines will be `width` pixels long, and begin `lead` pixels before part.low.
  void begin(const Part& part, int side, uint8_t* out, int lead, int width);
  // The place for a line. Then say that it is there.
  uint8_t* line(int number) { return &lines_[size_t(number % room_) * stride_]; }
  void ready(int number);
  int first_line() const { return down_.first.front(); }
  int last_line() const { return last_; }

 private:
  int used(int place) const;

  Weights down_, along_;
  std::vector<uint8_t> lines_;
  std::vector<int16_t> blended_;
  std::vector<uint8_t> row_;
  std::vector<const uint8_t*> sources_;
  size_t stride_ = 0;
  int room_ = 0, side_ = 0, next_ = 0, width_ = 0, last_ = 0, lead_ = 0;
  uint8_t* out_ = nullptr;
};

// Lines that a line of the output is made of.
inline int Resampler::used(int place) const {
  int count = down_.taps;
  while (count > 1 && down_.weights[size_t(place) * down_.taps + count - 1] == 0) count--;
  return count;
}

inline void Resampler::begin(const Part& part, int side, uint8_t* out, int lead, int width) {
  along_.make(part.left - part.low, part.width, 0, part.high - part.low, side, kAlongBits, part.is_flipped);
  down_.make(part.top, part.height, part.top_low, part.top_high, side, kDownBits, false);
  width_ = 3 * (part.high - part.low);
  lead_ = 3 * lead;
  stride_ = (3 * size_t(width) + 2 * kSlack + 63) & ~size_t(63);
  room_ = down_.taps + 1;
  side_ = side;
  next_ = 0;
  out_ = out;
  last_ = down_.first.back() + used(side - 1) - 1;
  if (lines_.size() < stride_ * room_) lines_.resize(stride_ * room_);
  const size_t blended = width_ + 3 * (along_.taps + 2) + kSlack;
  if (blended_.size() < blended) blended_.resize(blended);
  // Zero weights reach behind the line; what is there must only be a number.
  std::fill(blended_.begin() + width_, blended_.begin() + blended, int16_t(0));
  row_.resize(3 * side + 8);
  sources_.resize(down_.taps);
}

inline void Resampler::ready(int number) {
  while (next_ < side_) {
    const int first = down_.first[next_];
    const int count = used(next_);
    if (first + count - 1 > number) return;
    for (int k = 0; k < count; k++) sources_[k] = line(first + k) + lead_;
    blend_lines(sources_.data(), &down_.weights[size_t(next_) * down_.taps], count, blended_.data(), width_);
    resize_line(blended_.data(), along_, side_, row_.data());
    memcpy(out_ + size_t(next_) * 3 * side_, row_.data(), 3 * side_);
    next_++;
  }
}

}  // namespace stoker
