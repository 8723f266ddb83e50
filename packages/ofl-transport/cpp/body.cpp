#include "body.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>

#include <pthread.h>

namespace ofl {

namespace {

constexpr std::size_t kAheadBytes = 64;  // the header, with the placement record at its end
constexpr std::size_t kKeptMin = 65536;  // smaller ones are malloc's own business
constexpr std::size_t kKeptBytesMax = 128U << 20;
constexpr std::size_t kKeptMax = 32;

struct Header {
  std::size_t capacity;
};

static_assert(sizeof(Header) + Body::kAhead <= kAheadBytes);

Header* header_of(void* body) noexcept {
  return reinterpret_cast<Header*>(static_cast<std::byte*>(body) - kAheadBytes);
}

// Freed large bodies of the process.  Lives for ever: bodies may be freed while the process ends.  Its lock is held across
// fork(), or a child of a moment when another thread had it could never free a body.
class Kept {
 public:
  static Kept& get() noexcept {
    alignas(Kept) static std::byte place[sizeof(Kept)];  // asks nobody for memory
    static auto* const instance = ::new (place) Kept;
    return *instance;
  }

  std::byte* take(std::size_t capacity) noexcept {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = count_; i-- > 0;) {
      if (header_of(bodies_[i])->capacity != capacity) continue;
      std::byte* body = bodies_[i];
      std::copy(&bodies_[i] + 1, bodies_.data() + count_, &bodies_[i]);
      --count_;
      bytes_ -= capacity;
      return body;
    }
    return nullptr;
  }

  // Makes room by giving up the oldest; what cannot fit at all is the caller's to free.
  bool keep(std::byte* body) noexcept {
    const std::size_t capacity = header_of(body)->capacity;
    if (capacity > kKeptBytesMax) return false;
    const std::scoped_lock lock(mutex_);
    while (count_ == kKeptMax || bytes_ + capacity > kKeptBytesMax) drop_oldest();
    bodies_[count_++] = body;
    bytes_ += capacity;
    return true;
  }

 private:
  Kept() {
    const auto unlock = [] { get().mutex_.unlock(); };
    ::pthread_atfork([] { get().mutex_.lock(); }, unlock, unlock);
  }

  void drop_oldest() noexcept {
    bytes_ -= header_of(bodies_[0])->capacity;
    std::free(header_of(bodies_[0]));
    std::copy(bodies_.data() + 1, bodies_.data() + count_, bodies_.data());
    --count_;
  }

  std::mutex mutex_;
  std::array<std::byte*, kKeptMax> bodies_{};
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

void free_body(void* body) noexcept {
  if (body == nullptr) return;
  if (header_of(body)->capacity >= kKeptMin && Kept::get().keep(static_cast<std::byte*>(body))) return;
  std::free(header_of(body));
}

Body Body::allocate(std::size_t bytes) noexcept {
  Body body;
  body.bytes = bytes;
  body.capacity = std::bit_ceil(bytes < 64 ? std::size_t{64} : bytes);
  if (body.capacity >= kKeptMin) body.memory.reset(Kept::get().take(body.capacity));
  if (body.memory) return body;
  // Plain malloc: its per-thread cache gives a small body back at once, which aligned_alloc never does.
  auto* whole = static_cast<std::byte*>(std::malloc(kAheadBytes + body.capacity));
  if (whole == nullptr) return body;
  body.memory.reset(whole + kAheadBytes);
  header_of(body.memory.get())->capacity = body.capacity;
  return body;
}

}  // namespace ofl
