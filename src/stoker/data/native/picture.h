// One picture: its bytes -> the part that is asked for, resized, as packed RGB.
//
// The box is known before anything is decoded: lines above it are passed over, columns beside it are not transformed,
// lines below it are never read. Where the box is much larger than the output, the picture is halved (or
// quartered) inside the inverse cosine transform. EXIF rotation is not applied, as in decode.py.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <new>

#include <jpeglib.h>
#include <jerror.h>

#include "crop.h"
#include "huffman.h"
#include "resample.h"

namespace stoker {

// How a sample ended. Whatever is not kFine is done again by Pillow, which knows more formats and gives reasons.
enum Status : uint8_t { kFine = 0, kUnread = 1, kNotJpeg = 2, kDamaged = 3, kTooLarge = 4 };
// What a sample's bytes are, as in index.py.
enum Codec : uint8_t { kJpeg = 0, kOther = 1, kGrey = 2, kRgb = 3, kPlanes = 4 };

constexpr int64_t kMostPixels = 178956970;  // Pillow's limit against decompression bombs
constexpr int kMostScans = 500;             // of a progressive picture; real ones have about ten

struct Failure {
  jpeg_error_mgr base;
  jmp_buf back;
};

// The working memory of one thread, and what it does with it.
class Decoder {
 public:
  // `out` takes side * side * 3 bytes.
  Status jpeg(const uint8_t* raw, size_t length, const Look& look, Draws* drawn, uint8_t* out);
  Status pixels(const uint8_t* raw, size_t length, Codec codec, int width, int height, const Look& look, Draws* drawn,
                uint8_t* out);
  bool is_fast = true;  // own entropy decoder where it can

 private:
  void read(jpeg_decompress_struct* info, const uint8_t* end, const Look& look, Draws* drawn, uint8_t* out);
  void to_rgb(J_COLOR_SPACE space, const uint8_t* from, uint8_t* into, int count);

  Scan scan_;
  Resampler resampler_;
  std::vector<uint8_t> wide_;
};

inline void leave(j_common_ptr info) { longjmp(reinterpret_cast<Failure*>(info->err)->back, 1); }
// A warning means that something is missing. Only bytes between markers, which many cameras leave, do no harm.
inline void heed(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA) leave(info);
}
inline void count_scans(j_common_ptr info) {
  if (info->is_decompressor && reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans) leave(info);
}

// By how much a picture is made smaller in the transform: 1, 2, 4 or 8.
inline int denominator(const Box& box, const Look& look) {
  int chosen = 1;
  while (chosen < 8 && std::min(box.width, box.height) >= look.halved_from * chosen * look.side) chosen *= 2;
  return chosen;
}

inline Box chosen_box(int width, int height, const Look& look, Draws* drawn) {
  return look.is_random ? random_crop(width, height, *drawn, look) : centre_box(width, height, look);
}

inline bool is_flipped(const Look& look, Draws* drawn) { return look.is_random && (*drawn)[2 * kTries + 2] < look.flip; }

// Pillow's arithmetic for CMYK; files by Adobe hold it inverted, and others are not seen in the wild.
inline void Decoder::to_rgb(J_COLOR_SPACE space, const uint8_t* from, uint8_t* into, int count) {
  if (space == JCS_GRAYSCALE) {
    for (int k = 0; k < count; k++) into[3 * k] = into[3 * k + 1] = into[3 * k + 2] = from[k];
    return;
  }
  for (int k = 0; k < count; k++) {
    const int black = from[4 * k + 3];
    for (int colour = 0; colour < 3; colour++) {
      const int product = (255 - from[4 * k + colour]) * black + 128;
      into[3 * k + colour] = uint8_t(std::max(0, black - ((product + (product >> 8)) >> 8)));
    }
  }
}

inline void Decoder::read(jpeg_decompress_struct* info, const uint8_t* end, const Look& look, Draws* drawn,
                          uint8_t* out) {
  const Box box = chosen_box(info->image_width, info->image_height, look, drawn);
  // Where factors of four leave colours to be widened after halving, libjpeg-turbo's crop goes wrong: not halved.
  const int smaller = std::max(info->max_h_samp_factor, info->max_v_samp_factor) > 2 ? 1 : denominator(box, look);
  info->scale_num = 1, info->scale_denom = smaller;
  const bool is_plain = info->jpeg_color_space != JCS_CMYK && info->jpeg_color_space != JCS_YCCK;
  const int channels = is_plain ? (info->num_components == 1 ? 1 : 3) : 4;
  info->out_color_space = channels == 4 ? JCS_CMYK : channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_start_decompress(info);
  const bool is_ours = is_fast && scan_.attach(info, end);

  // Random boxes are whole pixels and nothing outside of them is used; the middle may lean on its neighbours.
  const int right = info->output_width, bottom = info->output_height;
  Resampler::Part part{box.left / smaller, box.top / smaller, box.width / smaller, box.height / smaller,
                       0, right, 0, bottom, is_flipped(look, drawn)};
  const double reach = look.is_random ? 0 : 1 + std::max(part.width, part.height) / look.side;
  part.low = std::max(0, int(std::floor(part.left - reach)));
  part.high = std::min(right, std::max(int(std::ceil(part.left + part.width + reach)), part.low + 1));
  part.top_low = std::max(0, int(std::floor(part.top - reach)));
  part.top_high = std::min(bottom, std::max(int(std::ceil(part.top + part.height + reach)), part.top_low + 1));

  // A column more on each side, because colours are smoothed across neighbours.
  JDIMENSION begin = std::max(0, part.low - 1), length = std::min(right, part.high + 2) - int(begin);
  if (length < info->output_width) {
    jpeg_crop_scanline(info, &begin, &length);
    const unsigned mcu = info->comps_in_scan == 1 ? 1 : info->max_h_samp_factor;
#if JPEG_LIB_VERSION >= 70
    const unsigned align = mcu * info->min_DCT_h_scaled_size;
#else
    const unsigned align = mcu * info->min_DCT_scaled_size;
#endif
    if (is_ours) scan_.want(begin / align, (begin + length + align - 1) / align - 1);
  }
  const int lead = part.low - int(begin), width = info->output_width;
  resampler_.begin(part, look.side, out, lead, width);
  const int first = resampler_.first_line(), last = resampler_.last_line();
  if (first > 0) jpeg_skip_scanlines(info, first);
  if (channels != 3) wide_.resize(size_t(width + kSlack) * channels);
  for (int number = first; number <= last; number++) {
    JSAMPROW row = channels == 3 ? resampler_.line(number) : wide_.data();
    if (jpeg_read_scanlines(info, &row, 1) != 1) leave(reinterpret_cast<j_common_ptr>(info));
    if (channels != 3) to_rgb(info->out_color_space, row, resampler_.line(number), width);
    resampler_.ready(number);
  }
}

inline Status Decoder::jpeg(const uint8_t* raw, size_t length, const Look& look, Draws* drawn, uint8_t* out) {
  if (length < 4 || raw[0] != 0xFF || raw[1] != 0xD8) return kNotJpeg;
  jpeg_decompress_struct info{};
  Failure failure{};
  jpeg_progress_mgr progress{};
  info.err = jpeg_std_error(&failure.base);
  failure.base.error_exit = leave;
  failure.base.emit_message = heed;
  // Everything between here and the jump is plain memory that somebody else owns.
  if (setjmp(failure.back)) {
    jpeg_destroy_decompress(&info);
    return kDamaged;
  }
  jpeg_create_decompress(&info);
  progress.progress_monitor = count_scans;
  info.progress = &progress;
  jpeg_mem_src(&info, raw, length);
  jpeg_read_header(&info, TRUE);
  if (int64_t(info.image_width) * info.image_height > kMostPixels) {
    jpeg_destroy_decompress(&info);
    return kTooLarge;
  }
  try {
    read(&info, raw + length, look, drawn, out);
  } catch (const std::bad_alloc&) {
    jpeg_destroy_decompress(&info);
    return kTooLarge;
  }
  jpeg_destroy_decompress(&info);
  return kFine;
}

inline Status Decoder::pixels(const uint8_t* raw, size_t length, Codec codec, int width, int height, const Look& look,
                              Draws* drawn, uint8_t* out) {
  const size_t area = size_t(width) * height;
  if (area == 0 || length < area * (codec == kGrey ? 1 : 3)) return kDamaged;
  const Box box = chosen_box(width, height, look, drawn);
  Resampler::Part part{box.left, box.top, box.width, box.height, 0, width, 0, height, is_flipped(look, drawn)};
  if (look.is_random) {
    part.low = int(box.left), part.high = int(box.left + box.width);
    part.top_low = int(box.top), part.top_high = int(box.top + box.height);
  }
  const int across = part.high - part.low;
  resampler_.begin(part, look.side, out, 0, across);
  for (int number = resampler_.first_line(); number <= resampler_.last_line(); number++) {
    const size_t at = size_t(number) * width + part.low;
    uint8_t* line = resampler_.line(number);
    if (codec == kRgb) {
      memcpy(line, raw + 3 * at, 3 * size_t(across));
    } else if (codec == kGrey) {
      to_rgb(JCS_GRAYSCALE, raw + at, line, across);
    } else {
      for (int k = 0; k < across; k++) {
        for (int colour = 0; colour < 3; colour++) line[3 * k + colour] = raw[colour * area + at + k];
      }
    }
    resampler_.ready(number);
  }
  return kFine;
}

}  // namespace stoker
