// Damaged JPEGs in great numbers, all from one random seed, for the native decoder. Built with sanitizers by
// tests/whole/test_fuzz.py, which also makes the sound pictures that are damaged here.
//
//   fuzz_native FOLDER COUNT SEED
//
// Every damaged picture is decoded for training and for evaluation, by the own entropy decoder and by libjpeg's, and
// once more in a batch of an engine. Pixels must be written whole or the picture be refused, nothing beside them may be
// touched, and both entropy decoders must agree wherever both say that a picture is fine. One may refuse what the other
// takes: libjpeg reads ahead and so finds an end that nobody needed to reach, and it takes a code that is in no table
// for a zero. And one exception: where fill bytes stand before a stuffed zero (FF FF 00, which no encoder writes),
// libjpeg-turbo begins a block by a quick way, gives up, begins again and keeps what it had written.
// Prints what it found as one line; a picture that breaks a rule is left as broken.jpg.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "engine.cpp"

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kBatch = 64;           // pictures in a batch of an engine
constexpr unsigned kMostSeconds = 60;   // for one picture with sanitizers on; a guard against hanging
constexpr uint8_t kGuard = 0xA5;

std::mt19937_64 numbers;
size_t below(size_t limit) { return limit ? numbers() % limit : 0; }
bool chance(int percent) { return below(100) < size_t(percent); }

struct Segment {
  size_t at, size;  // the marker and what belongs to it; the scan's data are a segment with code 0
  uint8_t code;
};

std::vector<Segment> segments(const Bytes& picture) {
  std::vector<Segment> found;
  size_t at = 2;
  while (at + 4 <= picture.size() && picture[at] == 0xFF) {
    const uint8_t code = picture[at + 1];
    const size_t size = std::min(picture.size() - at, size_t(picture[at + 2] * 256 + picture[at + 3] + 2));
    found.push_back({at, size, code});
    at += size;
    if (code != 0xDA) continue;
    const size_t begin = at;
    const auto is_data = [&](uint8_t next) { return picture[at] != 0xFF || next == 0 || (next & 0xF8) == 0xD0; };
    while (at + 1 < picture.size() && is_data(picture[at + 1])) at++;
    if (at > begin) found.push_back({begin, at - begin, 0});
  }
  return found;
}

Segment any(const Bytes& picture, std::initializer_list<uint8_t> codes) {
  std::vector<Segment> fitting;
  for (const Segment& each : segments(picture)) {
    if (!codes.size() || std::find(codes.begin(), codes.end(), each.code) != codes.end()) fitting.push_back(each);
  }
  return fitting.empty() ? Segment{0, picture.size(), 0xD8} : fitting[below(fitting.size())];
}

void set(Bytes& picture, size_t at, int value) {
  if (at < picture.size()) picture[at] = uint8_t(value);
}

void set_two(Bytes& picture, size_t at, size_t value) {
  set(picture, at, int(value >> 8));
  set(picture, at + 1, int(value & 255));
}

void insert(Bytes& picture, size_t at, const uint8_t* from, size_t size) {
  const Bytes held(from, from + size);
  picture.insert(picture.begin() + ptrdiff_t(std::min(at, picture.size())), held.begin(), held.end());
}

void remove(Bytes& picture, size_t at, size_t size) {
  const auto end = std::min(at + size, picture.size());
  picture.erase(picture.begin() + ptrdiff_t(std::min(at, end)), picture.begin() + ptrdiff_t(end));
}

int odd_value() {
  static const int kOdd[] = {0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF, 0xD0, 0xD7, 0xD9, 0xC0, 0xC2, 0xC4, 0xDA, 0xDB, 0xDD};
  return chance(50) ? kOdd[below(std::size(kOdd))] : int(below(256));
}

// The header of the picture: size, sampling and tables of each part. Great sizes are rare: they only cost time.
void tamper_frame(Bytes& picture) {
  const Segment frame = any(picture, {0xC0, 0xC1, 0xC2});
  switch (below(5)) {
    case 0: set_two(picture, frame.at + 5, below(chance(2) ? 65536 : 300)); break;
    case 1: set_two(picture, frame.at + 7, below(chance(2) ? 65536 : 300)); break;
    case 2: {
      static const int kSampling[] = {0x11, 0x12, 0x21, 0x22, 0x41, 0x14, 0x44, 0x42, 0x13, 0x31, 0x00, 0x51};
      set(picture, frame.at + 11 + 3 * below(4), kSampling[below(std::size(kSampling))]);
      break;
    }
    case 3: set(picture, frame.at + 1, 0xC0 + int(below(16))); break;
    default: set(picture, frame.at + 4 + below(frame.size), odd_value());
  }
}

void tamper_segment(Bytes& picture) {
  const Segment one = any(picture, {0xC4, 0xDB, 0xDA, 0xDD, 0xEE, 0xE0});
  switch (below(6)) {
    case 0: set_two(picture, one.at + 2, chance(50) ? below(65536) : one.size - 2 + below(9) - 4); break;
    case 1: insert(picture, one.at, picture.data() + one.at, one.size); break;
    case 2: remove(picture, one.at, one.size); break;
    case 3: set(picture, one.at + 1, 0xC0 + int(below(64))); break;
    default:
      for (size_t times = 1 + below(4); times > 0; times--) set(picture, one.at + 4 + below(one.size), odd_value());
  }
}

void tamper_scan(Bytes& picture) {
  const Segment data = any(picture, {0});
  const size_t at = data.at + below(data.size);
  const uint8_t restart[] = {0xFF, uint8_t(0xD0 + below(8))}, fill[] = {0xFF, 0xFF, 0x00}, interval[] = {
      0xFF, 0xDD, 0, 4, 0, uint8_t(1 + below(20))};
  switch (below(6)) {
    case 0: insert(picture, at, restart, 2); break;
    case 1: insert(picture, at, fill, 1 + below(3)); break;
    case 2: insert(picture, any(picture, {0xDA}).at, interval, 6); break;
    case 3: remove(picture, at, 1 + below(9)); break;
    default: set(picture, at, odd_value());
  }
}

Bytes damaged(const std::vector<Bytes>& seeds) {
  Bytes picture = seeds[below(seeds.size())];
  for (size_t times = 1 + below(chance(70) ? 2 : 8); times > 0 && picture.size() > 4; times--) {
    const size_t size = picture.size(), at = below(size), header = any(picture, {0xDA}).at + 14;
    switch (below(12)) {
      case 0: picture[at] ^= uint8_t(1u << below(8)); break;
      case 1: picture[below(std::min(size, header))] ^= uint8_t(1u << below(8)); break;
      case 2: picture[below(std::min(size, header))] = uint8_t(odd_value()); break;
      case 3: picture[at] = uint8_t(odd_value()); break;
      case 4: picture.resize(2 + below(size - 2)); break;
      case 5: {  // the beginning of one, the end of another
        const Bytes& other = seeds[below(seeds.size())];
        const size_t from = chance(50) ? any(other, {0xDA}).at : below(other.size());
        picture.resize(chance(50) ? std::max(size_t(2), any(picture, {0xDA}).at) : 2 + at / 2);
        picture.insert(picture.end(), other.begin() + ptrdiff_t(from), other.end());
        break;
      }
      case 6: case 7: tamper_frame(picture); break;
      case 8: case 9: tamper_segment(picture); break;
      default: tamper_scan(picture);
    }
  }
  return picture;
}

stoker::Look any_look() {
  static const int kSides[] = {8, 16, 31, 48};
  stoker::Look look{{0.08, 1.0}, {0.75, 4.0 / 3}, 0.5, 0.875, 2.5, 0, 0};
  if (chance(50)) look.halved_from = chance(50) ? 1.0 : 1e9;
  if (chance(30)) look.scale[0] = 1.0;
  if (chance(30)) look.crop = 1.0;
  look.side = kSides[below(std::size(kSides))];
  return look;
}

struct Result {
  stoker::Status status;
  Bytes pixels;
};

Bytes current;  // the picture at work, for whoever has to name it

[[noreturn]] void broken(const std::string& rule) {
  std::ofstream file("broken.jpg", std::ios::binary);
  file.write(reinterpret_cast<const char*>(current.data()), ptrdiff_t(current.size()));
  file.close();
  fprintf(stderr, "broken: %s\n", rule.c_str());
  exit(1);
}

void slow(int) {
  static const char kText[] = "broken: a picture takes longer than a minute\n";
  if (write(2, kText, sizeof kText - 1) < 0) _exit(3);
  _exit(2);
}

Result decoded(stoker::Decoder& decoder, const Bytes& picture, const stoker::Look& look, uint64_t seed,
               uint8_t before) {
  // Memory of exactly this size, so that a byte too much is seen.
  Bytes exact(picture.begin(), picture.end());
  exact.shrink_to_fit();
  Result result{stoker::kFine, Bytes(size_t(look.side) * look.side * 3, before)};
  stoker::Draws drawn(seed, 0, seed);
  alarm(kMostSeconds);
  result.status = decoder.jpeg(exact.data(), exact.size(), look, &drawn, result.pixels.data());
  alarm(0);
  return result;
}

bool has_filled_stuffing(const Bytes& picture) {
  for (size_t k = 2; k < picture.size(); k++) {
    if (picture[k] == 0 && picture[k - 1] == 0xFF && picture[k - 2] == 0xFF) return true;
  }
  return false;
}

struct Tally {
  size_t fine = 0, refused = 0, only_own = 0, only_plain = 0;
};

// What the rules say of one picture. Returns what the engine must make of it, too.
Result examined(stoker::Decoder& decoder, const Bytes& picture, const stoker::Look& look, uint64_t seed, Tally* tally) {
  decoder.is_fast = true;
  const Result own = decoded(decoder, picture, look, seed, 0x00), again = decoded(decoder, picture, look, seed, 0xFF);
  decoder.is_fast = false;
  const Result plain = decoded(decoder, picture, look, seed, 0x55);
  if (own.status != again.status) broken("a picture is fine at one time and not at another");
  if (own.status == stoker::kFine && own.pixels != again.pixels) broken("pixels depend on what was there before");
  const bool is_fine_twice = own.status == stoker::kFine && plain.status == stoker::kFine;
  const bool may_differ = has_filled_stuffing(picture);
  if (is_fine_twice && own.pixels != plain.pixels && !may_differ) broken("the entropy decoders differ");
  (own.status == stoker::kFine ? tally->fine : tally->refused)++;
  tally->only_own += own.status == stoker::kFine && !is_fine_twice;
  tally->only_plain += plain.status == stoker::kFine && !is_fine_twice;
  return own;
}

struct Case {
  Bytes picture;
  Result expected;
};

// The same pictures as the samples of one file, by three threads. Some samples lie about where they are.
void through_an_engine(const std::vector<Case>& cases, const stoker::Look& look, uint64_t seed) {
  std::vector<int32_t> file;
  std::vector<int64_t> offset, position;
  std::vector<uint32_t> length;
  std::vector<uint8_t> codec;
  std::vector<uint16_t> width, height;
  std::ofstream out("samples.bin", std::ios::binary);
  int64_t at = 0;
  for (const Case& each : cases) {
    out.write(reinterpret_cast<const char*>(each.picture.data()), ptrdiff_t(each.picture.size()));
    const int kind = int(below(20));
    file.push_back(kind == 0 ? 1 : kind == 1 ? -1 : kind == 2 ? 2 : 0);
    offset.push_back(kind == 3 ? -5 : kind == 4 ? int64_t(1) << 40 : at);
    length.push_back(kind == 5 ? 1u << 23 : uint32_t(each.picture.size()));
    codec.push_back(uint8_t(kind == 6 ? 1 + below(5) : 0));
    width.push_back(uint16_t(kind == 6 ? below(40) : 0)), height.push_back(uint16_t(kind == 6 ? below(40) : 0));
    position.push_back(int64_t(seed));
    at += int64_t(each.picture.size());
  }
  out.close();
  const uint8_t names[] = "samples.binabsent.bin";
  const int64_t ends[] = {11, 21};
  const size_t each = size_t(look.side) * look.side * 3;
  Bytes pixels(cases.size() * each, kGuard), status(cases.size(), 99);
  stoker::Engine engine(3, "./", names, ends, 2, chance(50));
  stoker::Request request{int64_t(cases.size()), file.data(), offset.data(), length.data(), codec.data(), width.data(),
                          height.data(), position.data(), seed, 0, look, pixels.data(), status.data()};
  int64_t read_ns = 0, decode_ns = 0;
  alarm(10 * kMostSeconds);
  stoker::Batch* batch = engine.submit(request);
  if (chance(5)) return;  // closed in the middle of it
  engine.wait(batch, &read_ns, &decode_ns);
  alarm(0);
  for (size_t k = 0; k < cases.size(); k++) {
    current = cases[k].picture;
    const bool is_there = file[k] == 0 && offset[k] >= 0 && offset[k] < at && length[k] == current.size();
    const bool is_plain = is_there && codec[k] == 0;
    const Bytes row(pixels.begin() + ptrdiff_t(k * each), pixels.begin() + ptrdiff_t((k + 1) * each));
    if (is_plain && status[k] != cases[k].expected.status) broken("an engine ends otherwise than one decoder");
    if (is_plain && status[k] == stoker::kFine && row != cases[k].expected.pixels) broken("an engine has other pixels");
    if (!is_there && length[k] && status[k] != stoker::kUnread) broken("a sample that is not there was read");
    if (!is_plain && status[k] == stoker::kUnread && row != Bytes(each, kGuard)) broken("an unread sample left pixels");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  signal(SIGALRM, slow);
  std::vector<std::filesystem::path> paths;
  for (const auto& each : std::filesystem::directory_iterator(argv[1])) paths.push_back(each.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (seeds.empty()) return 65;
  const size_t count = strtoull(argv[2], nullptr, 10);
  numbers.seed(strtoull(argv[3], nullptr, 10));
  stoker::Decoder decoder;
  Tally tally;
  std::vector<Case> cases;
  stoker::Look look = any_look();
  uint64_t seed = 0;
  for (size_t number = 0; number < count; number++) {
    // Sound ones first, so that a decoder that refuses everything is found out.
    current = number < seeds.size() ? seeds[number] : damaged(seeds);
    look.is_random = 0;
    const Result middle = examined(decoder, current, look, seed, &tally);
    look.is_random = 1;
    cases.push_back({current, examined(decoder, current, look, seed, &tally)});
    if (number < seeds.size() && middle.status != stoker::kFine) broken("a sound picture is refused");
    if (cases.size() == kBatch || number + 1 == count) {
      through_an_engine(cases, look, seed);
      cases.clear();
      look = any_look();
      seed = numbers();
    }
  }
  printf("%zu pictures, %zu times fine (%zu not by libjpeg), %zu times refused (%zu not by libjpeg)\n", count,
         tally.fine, tally.only_own, tally.refused, tally.only_plain);
  return 0;
}
