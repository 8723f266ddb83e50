// Counts the callers inside an object that may be closed from another thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ofl {

class Gate {
 public:
  // A caller inside; false: the gate is closed, and the caller must leave things alone.
  class Pass {
   public:
    explicit Pass(Gate& gate) noexcept : gate_(gate), inside_(gate.enter()) {}
    ~Pass() {
      if (inside_) gate_.leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const noexcept { return inside_; }

   private:
    Gate& gate_;
    const bool inside_;
  };

  bool closed() const noexcept { return (state_.load(std::memory_order_acquire) & kClosed) != 0; }

  // False: somebody else closed it before.
  bool close() noexcept { return (state_.fetch_or(kClosed, std::memory_order_acq_rel) & kClosed) == 0; }

  // After `close`: returns once every caller has left.
  void wait_empty() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_.load(std::memory_order_acquire) == kClosed; });
  }

 private:
  static constexpr std::uint32_t kClosed = 1U << 31;

  bool enter() noexcept {
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    while ((seen & kClosed) == 0)
      if (state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
    return false;
  }

  // Once closed, the last step is under the mutex: whoever waits may destroy the gate right after.
  void leave() noexcept {
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    while ((seen & kClosed) == 0)
      if (state_.compare_exchange_weak(seen, seen - 1, std::memory_order_release)) return;
    const std::scoped_lock lock(mutex_);
    state_.fetch_sub(1, std::memory_order_acq_rel);
    changed_.notify_all();
  }

  std::atomic<std::uint32_t> state_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace ofl
