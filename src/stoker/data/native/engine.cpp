// Threads that read and decode samples into batches, without Python's lock. Called through ctypes (native/__init__.py).
//
// A batch is handed in whole and waited for later. Threads first tell the system which bytes of it will be needed, so
// that the disk works ahead, and then take its samples one by one, the oldest batch first. Which thread does what
// changes nothing in the pixels.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "files.h"
#include "picture.h"

namespace stoker {

using Clock = std::chrono::steady_clock;

inline int64_t nanoseconds_since(Clock::time_point began) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
}

// Samples to be made. The arrays belong to the caller and live until the batch was waited for.
struct Request {
  int64_t count;
  const int32_t* file;
  const int64_t* offset;
  const uint32_t* length;
  const uint8_t* codec;
  const uint16_t* width;   // may be absent
  const uint16_t* height;
  const int64_t* position;
  uint64_t seed;
  uint32_t epoch;
  Look look;
  uint8_t* pixels;
  uint8_t* status;
};

struct Batch {
  Request request;
  std::atomic<int64_t> next{0}, read_ns{0}, decode_ns{0};
  int64_t left = 0;  // tasks: the samples, and telling the disk of them
  std::atomic<bool> is_advised{false};
};

class Engine {
 public:
  Engine(int threads, const char* root, const uint8_t* names, const int64_t* ends, int64_t files, bool is_kept)
      : files_(root, names, ends, files, is_kept) {
    try {
      for (int k = 0; k < threads; k++) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // a limit of the system: fewer do as well
    }
  }
  ~Engine() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  Batch* submit(const Request& request) {
    auto batch = std::make_shared<Batch>();
    batch->request = request;
    batch->left = request.count + 1;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(batch);
      held_.push_back(batch);
    }
    wake_.notify_all();
    return batch.get();
  }

  void will_need(int64_t file, int64_t offset, int64_t length) {
#ifdef POSIX_FADV_WILLNEED
    const int descriptor = files_.take(file);
    if (descriptor < 0) return;
    posix_fadvise(descriptor, offset, length, POSIX_FADV_WILLNEED);
    files_.give(file, descriptor);
#endif
  }

  // Whether a batch is done, waiting at most so long. It must still be waited for.
  bool poll(const Batch* batch, int64_t milliseconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    return finished_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return batch->left == 0; });
  }

  void wait(Batch* batch, int64_t* read_ns, int64_t* decode_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [&] { return batch->left == 0; });
    *read_ns = batch->read_ns;
    *decode_ns = batch->decode_ns;
    for (auto at = held_.begin(); at != held_.end(); ++at) {
      if (at->get() == batch) {
        held_.erase(at);
        break;
      }
    }
  }

 private:
  void work() {
    Decoder decoder;
    std::vector<uint8_t> raw;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return is_over_ || !waiting_.empty(); });
      if (is_over_) return;
      // The disk first: what it is told now it can do while this thread decodes.
      std::shared_ptr<Batch> batch;
      for (auto& one : waiting_) {
        if (!one->is_advised.exchange(true)) {
          batch = one;
          break;
        }
      }
      if (batch) {
        lock.unlock();
        advise(batch->request);
        lock.lock();
        if (--batch->left == 0) finished_.notify_all();
        continue;
      }
      batch = waiting_.front();
      const int64_t sample = batch->next++;
      if (batch->next >= batch->request.count) waiting_.pop_front();
      if (sample >= batch->request.count) continue;
      lock.unlock();
      make(*batch, sample, decoder, raw);
      lock.lock();
      if (--batch->left == 0) finished_.notify_all();
    }
  }

  void advise(const Request& request) {
    for (int64_t k = 0; k < request.count && !is_over_; k++) {
      if (request.codec[k] != kOther) will_need(request.file[k], request.offset[k], request.length[k]);
    }
  }

  // The bytes of a sample, or fewer where the file ends or the disk fails.
  size_t read(const Request& request, int64_t sample, std::vector<uint8_t>& raw) {
    const size_t length = request.length[sample];
    const int descriptor = files_.take(request.file[sample]);
    if (descriptor < 0) return 0;
    // A damaged index must not make us ask for gigabytes.
    struct stat said {};
    const bool is_there = !fstat(descriptor, &said) && request.offset[sample] + int64_t(length) <= said.st_size;
    if (is_there && raw.size() < length) raw.resize(length);
    size_t got = 0;
    while (is_there && got < length) {
      const ssize_t more = pread(descriptor, raw.data() + got, length - got, request.offset[sample] + got);
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) break;
      got += size_t(more);
    }
    files_.give(request.file[sample], descriptor);
    return got;
  }

  void make(Batch& batch, int64_t sample, Decoder& decoder, std::vector<uint8_t>& raw) {
    const Request& request = batch.request;
    Status status = kUnread;
    auto began = Clock::now();
    try {
      const size_t length = request.codec[sample] == kOther ? 0 : read(request, sample, raw);
      batch.read_ns += nanoseconds_since(began);
      began = Clock::now();
      if (request.codec[sample] == kOther) {
        status = kNotJpeg;
      } else if (length == request.length[sample]) {
        status = decoded(request, sample, decoder, raw.data(), length);
      }
    } catch (const std::exception&) {
      status = kTooLarge;
    }
    batch.decode_ns += nanoseconds_since(began);
    request.status[sample] = status;
  }

  Status decoded(const Request& request, int64_t sample, Decoder& decoder, const uint8_t* raw, size_t length) {
    Draws drawn(request.seed, request.epoch, uint64_t(request.position[sample]));
    uint8_t* out = request.pixels + size_t(sample) * request.look.side * request.look.side * 3;
    const auto codec = Codec(request.codec[sample]);
    if (codec == kJpeg) return decoder.jpeg(raw, length, request.look, &drawn, out);
    if (codec > kPlanes || !request.width || !request.height) return kNotJpeg;
    return decoder.pixels(raw, length, codec, request.width[sample], request.height[sample], request.look, &drawn, out);
  }

  Files files_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::deque<std::shared_ptr<Batch>> waiting_, held_;
  std::atomic<bool> is_over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace stoker

using stoker::Engine;

#pragma GCC visibility push(default)
extern "C" {

#define STOKER_TEXT(value) #value
#define STOKER_NUMBER(value) STOKER_TEXT(value)

// What this was built with; nothing where this processor can't run it.
const char* stoker_built_with() {
#if defined(__SSSE3__)
  if (!__builtin_cpu_supports("ssse3")) return nullptr;
#endif
#if !defined(LIBJPEG_TURBO_VERSION)
#error "libjpeg-turbo is wanted: plain libjpeg can't crop or skip lines"
#endif
  return "libjpeg-turbo " STOKER_NUMBER(LIBJPEG_TURBO_VERSION)
#if defined(__aarch64__)
      ", NEON";
#elif defined(__SSSE3__)
      ", SSSE3";
#else
      ", no vectors";
#endif
}

void* stoker_open(int threads, const char* root, const uint8_t* names, const int64_t* ends, int64_t files, int is_kept) {
  try {
    return new Engine(threads, root, names, ends, files, is_kept != 0);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void stoker_close(void* engine) { delete static_cast<Engine*>(engine); }

void* stoker_submit(void* engine, const stoker::Request* request) {
  return static_cast<Engine*>(engine)->submit(*request);
}

int stoker_poll(void* engine, void* batch, int64_t milliseconds) {
  return static_cast<Engine*>(engine)->poll(static_cast<stoker::Batch*>(batch), milliseconds);
}

void stoker_wait(void* engine, void* batch, int64_t* read_ns, int64_t* decode_ns) {
  static_cast<Engine*>(engine)->wait(static_cast<stoker::Batch*>(batch), read_ns, decode_ns);
}

// Bytes that will be read soon.
void stoker_will_need(void* engine, int64_t file, int64_t offset, int64_t length) {
  static_cast<Engine*>(engine)->will_need(file, offset, length);
}

// One sample in the caller's thread. `is_fast` says whether the own entropy decoder is used.
int stoker_decode(const uint8_t* raw, int64_t length, int codec, int width, int height, uint64_t seed, uint32_t epoch,
                  int64_t position, const stoker::Look* look, int is_fast, uint8_t* out) {
  thread_local stoker::Decoder decoder;
  decoder.is_fast = is_fast != 0;
  stoker::Draws drawn(seed, epoch, uint64_t(position));
  if (codec == stoker::kJpeg) return decoder.jpeg(raw, size_t(length), *look, &drawn, out);
  return decoder.pixels(raw, size_t(length), stoker::Codec(codec), width, height, *look, &drawn, out);
}

// The box and the flip that `stoker_decode` takes of a picture of this size.
void stoker_box(int width, int height, uint64_t seed, uint32_t epoch, int64_t position, const stoker::Look* look,
                double* box) {
  stoker::Draws drawn(seed, epoch, uint64_t(position));
  const stoker::Box found = stoker::chosen_box(width, height, *look, &drawn);
  box[0] = found.left, box[1] = found.top, box[2] = found.width, box[3] = found.height;
  box[4] = stoker::is_flipped(*look, &drawn);
}

}  // extern "C"
