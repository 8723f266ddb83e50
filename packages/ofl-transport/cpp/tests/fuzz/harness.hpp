// What every fuzz target shares, of this package and of those that build on it: how a breach ends the process, choices that
// follow from the input, and memory whose ends are watched.  Knows no wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace fuzz {

using Bytes = std::span<const std::uint8_t>;

#define HOLDS(condition, sentence)                                                                    \
  do {                                                                                                \
    if (!(condition)) ::fuzz::breach(__FILE__, __LINE__, #condition, sentence);                       \
  } while (false)

[[noreturn]] inline void breach(const char* file, int line, const char* condition, const char* sentence) {
  std::fprintf(stderr, "\n%s:%d: broken: %s (%s)\n", file, line, sentence, condition);
  std::abort();
}

// Numbers that follow from the input alone, so that an input replays.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) noexcept : state_(seed) {}
  // 0 .. below - 1
  std::size_t below(std::size_t limit) noexcept {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return static_cast<std::size_t>((mixed ^ (mixed >> 31)) % limit);
  }
  bool one_in(std::size_t times) noexcept { return below(times) == 0; }
  // Few bytes, some, or many: what a network does.
  std::size_t piece() noexcept {
    switch (below(4)) {
      case 0: return 1 + below(3);
      case 1: return 1 + below(64);
      case 2: return 1 + below(2048);
      default: return 1 + below(32768);
    }
  }

 private:
  std::uint64_t state_;
};

// Memory of exactly the size that was asked for, at a multiple of 64: the sanitizer watches its ends, and so do the guards
// where there is none.
class LandingMemory {
 public:
  explicit LandingMemory(std::size_t bytes)
      : bytes_(bytes), block_(static_cast<std::byte*>(::operator new(bytes + 2 * kGuard, kAlignment))) {
    std::memset(block_.get(), kPattern, bytes + 2 * kGuard);
    poison(block_.get(), kGuard);
    poison(data() + bytes, kGuard);
  }
  ~LandingMemory() {
    unpoison(block_.get(), kGuard);
    unpoison(data() + bytes_, kGuard);
    for (std::size_t i = 0; i < kGuard; ++i)
      HOLDS(block_[i] == std::byte{kPattern} && block_[kGuard + bytes_ + i] == std::byte{kPattern},
            "a write outside the landing memory");
  }
  LandingMemory(const LandingMemory&) = delete;
  LandingMemory& operator=(const LandingMemory&) = delete;

  std::byte* data() const noexcept { return block_.get() + kGuard; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kPattern = 0xA5;
  struct Free {
    void operator()(std::byte* block) const noexcept { ::operator delete(block, kAlignment); }
  };
  static void poison(const std::byte* from, std::size_t bytes) noexcept;
  static void unpoison(const std::byte* from, std::size_t bytes) noexcept;

  std::size_t bytes_;
  std::unique_ptr<std::byte[], Free> block_;
};

// An input is 8 bytes from which all choices follow (where the stream is cut, where bodies land), and then the stream.
inline constexpr std::size_t kChoiceBytes = 8;

inline bool split(const std::uint8_t* data, std::size_t size, std::uint64_t& seed, Bytes& stream) noexcept {
  if (size < kChoiceBytes) return false;
  std::memcpy(&seed, data, kChoiceBytes);
  stream = {data + kChoiceBytes, size - kChoiceBytes};
  return true;
}

}  // namespace fuzz
