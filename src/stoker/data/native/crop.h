// Which part of a picture the network sees: the same numbers and boxes as random.py and augment.py, to the last bit.
// Compiled without fused multiply-add, which would round differently.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace stoker {

constexpr int kTries = 10;
constexpr int kDraws = 2 * kTries + 3;
constexpr uint32_t kCrop = 1;  // the purpose of these draws, as in random.py

// Philox4x32-10 (Salmon et al., SC 2011).
inline void philox(uint32_t counter[4], uint64_t seed) {
  uint32_t key0 = uint32_t(seed), key1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const uint64_t a = uint64_t(counter[0]) * 0xD2511F53u, b = uint64_t(counter[2]) * 0xCD9E8D57u;
    const uint32_t first = uint32_t(b >> 32) ^ counter[1] ^ key0, third = uint32_t(a >> 32) ^ counter[3] ^ key1;
    counter[0] = first, counter[1] = uint32_t(b), counter[2] = third, counter[3] = uint32_t(a);
  }
}

// The numbers of one sample, made as they are asked for.
class Draws {
 public:
  Draws(uint64_t seed, uint32_t epoch, uint64_t position) : seed_(seed), position_(position), epoch_(epoch) {}
  double operator[](int number) {
    if (number / 4 != block_) {
      block_ = number / 4;
      words_[0] = uint32_t(position_), words_[1] = uint32_t(position_ >> 32), words_[2] = epoch_;
      words_[3] = uint32_t(block_) | kCrop << 16;
      philox(words_, seed_);
    }
    return (double(words_[number % 4]) + 0.5) / 4294967296.0;
  }

 private:
  uint64_t seed_, position_;
  uint32_t epoch_, words_[4];
  int block_ = -1;
};

struct Box {
  double left, top, width, height;
};

// The settings of ImageConfig.
struct Look {
  double scale[2];
  double ratio[2];
  double flip;
  double crop;         // share of the short side that evaluation keeps
  double halved_from;  // how many times as large as the output a JPEG must be to be halved in the transform
  int32_t side;
  int32_t is_random;
};

inline Box random_crop(int width, int height, Draws& drawn, const Look& look) {
  const double low = std::log(look.ratio[0]), high = std::log(look.ratio[1]);
  for (int k = 0; k < kTries; k++) {
    const double area = double(int64_t(width) * height) * (look.scale[0] + (look.scale[1] - look.scale[0]) * drawn[2 * k]);
    const double shape = std::exp(low + (high - low) * drawn[2 * k + 1]);
    const double w = std::nearbyint(std::sqrt(area * shape)), h = std::nearbyint(std::sqrt(area / shape));
    if (0 < w && w <= width && 0 < h && h <= height) {
      const double left = std::trunc(drawn[2 * kTries] * (width - w + 1));
      const double top = std::trunc(drawn[2 * kTries + 1] * (height - h + 1));
      return {left, top, w, h};
    }
  }
  // No try fitted: the largest box of an allowed shape, in the middle.
  const double shape = std::min(std::max(double(width) / height, look.ratio[0]), look.ratio[1]);
  const double w = std::min(double(width), std::max(1.0, std::nearbyint(height * shape)));
  const double h = std::min(double(height), std::max(1.0, std::nearbyint(w / shape)));
  return {std::floor((width - w) / 2), std::floor((height - h) / 2), w, h};
}

inline Box centre_box(int width, int height, const Look& look) {
  const double narrow = std::nearbyint(look.side / look.crop);
  const bool is_tall = width <= height;
  const double new_width = is_tall ? narrow : std::trunc(narrow * width / height);
  const double new_height = is_tall ? std::trunc(narrow * height / width) : narrow;
  const double across = width / new_width, down = height / new_height;
  return {std::nearbyint((new_width - look.side) / 2) * across, std::nearbyint((new_height - look.side) / 2) * down,
          look.side * across, look.side * down};
}

}  // namespace stoker
