// The lookups that callers wait for: one place for each staging, and the order in which the proxy takes them up.
//
// A place: idle -> queued -> running -> ended -> idle (waited for) or queued again (nobody waited: the old ticket is gone).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "client_limits.hpp"
#include "client_serving.hpp"

namespace engram {

class Tickets {
 public:
  Tickets() : places_(new Place[kStagingsMax]) {}

  struct Place {
    enum class State : std::uint8_t { idle, queued, running, ended };
    State state = State::idle;
    std::atomic<std::uint64_t> ended_ticket{0};  // for who looks without the lock
    std::uint64_t ticket = 0;
    std::uint32_t staging = 0;
    std::uint32_t count = 0;
    std::uint64_t rows = 0;
    std::array<engram_batch, wire::kLayersMax> batches;
    Served served;
  };

  // The batches are copied, their ids are not.  ENGRAM_INVALID: a lookup is open on the staging; ENGRAM_CLOSED.
  Outcome enqueue(std::span<const engram_batch> batches, std::uint64_t rows, std::uint32_t staging, std::uint64_t& ticket);
  // spin: how long to look before sleeping.
  Outcome wait(std::uint64_t ticket, Nanoseconds deadline, Nanoseconds spin, engram_result& result);
  void close();

  // The proxy's:
  bool any() const noexcept { return queued_.load(std::memory_order_acquire) != 0; }
  Place* next();  // nullptr: none
  void end(Place& place, Served&& served);
  // Until something is queued, `poke`, or the span is over.
  void wait_for_work(Nanoseconds span);
  // Anyone's: there is other work.
  void poke();

 private:
  std::mutex mutex_;  // of everything but the atomics
  std::condition_variable work_;
  std::condition_variable ended_;
  const std::unique_ptr<Place[]> places_;
  std::array<std::uint32_t, kStagingsMax> queue_{};  // a ring: no staging stands in it twice
  std::size_t first_ = 0;
  std::atomic<std::size_t> queued_{0};
  std::uint64_t lookups_ = 0;
  bool poked_ = false;
  bool closed_ = false;
};

}  // namespace engram
