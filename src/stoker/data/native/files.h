// The files that hold the samples of an index.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace stoker {

// Opened when they are asked for. Those that hold many samples stay open, as far as the system allows.
class Files {
 public:
  Files(const char* root, const uint8_t* names, const int64_t* ends, int64_t count, bool is_kept)
      : root_(root), names_(names), ends_(ends), count_(count) {
    rlimit limit{};
    // Without a limit the number is the largest there is.
    const int64_t room = getrlimit(RLIMIT_NOFILE, &limit) ? 256 : int64_t(limit.rlim_cur / 4);
    kept_ = is_kept ? std::min(count, room) : 0;
    open_ = std::make_unique<std::atomic<int>[]>(kept_);
    for (int64_t k = 0; k < kept_; k++) open_[k] = -1;
  }
  ~Files() {
    for (int64_t k = 0; k < kept_; k++) {
      if (open_[k] >= 0) close(open_[k]);
    }
  }
  int take(int64_t file) {
    if (file < 0 || file >= count_) return -1;
    if (file >= kept_) return opened(file);
    int held = open_[file];
    if (held >= 0) return held;
    const int fresh = opened(file);
    if (fresh < 0 || open_[file].compare_exchange_strong(held, fresh)) return fresh;
    close(fresh);
    return held;
  }
  void give(int64_t file, int descriptor) {
    if (file >= kept_) close(descriptor);
  }

 private:
  int opened(int64_t file) const {
    const int64_t begin = file ? ends_[file - 1] : 0;
    if (begin < 0 || ends_[file] < begin) return -1;
    const std::string name(reinterpret_cast<const char*>(names_) + begin, ends_[file] - begin);
    const std::string path = name[0] == '/' ? name : root_ + name;
    return open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  std::string root_;
  const uint8_t* names_;
  const int64_t* ends_;
  int64_t count_, kept_;
  std::unique_ptr<std::atomic<int>[]> open_;
};

}  // namespace stoker
