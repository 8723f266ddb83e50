// What the server and its connections share: options, counters, and the queue of events.  Holds no socket.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "clock.hpp"
#include "ofl.h"
#include "wire.hpp"

namespace ofl {

struct ServerOptions {
  std::string service;
  std::uint16_t version_min = 0;
  std::uint16_t version_max = 0;
  std::uint32_t frame_bytes_max = 0;
  std::uint32_t connections_max = 0;
  std::uint32_t pending_max = 0;
  std::uint32_t calls_max = 0;
  bool allow_any = false;
  Nanoseconds handshake = 0;
  Nanoseconds frame = 0;
  std::size_t queue_bytes_max = 0;
};

enum class Counter : std::uint32_t {
  accepted,            // negotiations that succeeded
  refused,             // negotiations answered with a refusal
  garbage,             // connections dropped for bytes that are no frame, or a frame out of place
  oversized,           // connections dropped for a frame over the limit
  handshake_timeouts,  // connections dropped because they never negotiated
  evicted,             // negotiating connections that gave way to newer ones
  disconnects,         // negotiated connections that ended
  lost,                // of those: silent, or a frame was never finished
  requests,
  replies,
  cancels,
  replies_dropped,  // the connection or the call was gone
  throttled,        // times that reading stopped because requests were not taken
  bytes_in,
  bytes_out,
};

class Counters {
 public:
  void add(Counter counter, std::uint64_t amount = 1) noexcept {
    values_[static_cast<std::size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
  }
  std::uint64_t at(std::size_t index) const noexcept { return values_[index].load(std::memory_order_relaxed); }
  static const char* name(std::size_t index) noexcept;

 private:
  std::array<std::atomic<std::uint64_t>, OFL_COUNTERS> values_{};
};

static_assert(static_cast<std::size_t>(Counter::bytes_out) + 1 == OFL_COUNTERS);

struct FreeBody {
  void operator()(std::byte* body) const noexcept { std::free(body); }
};

// A request's bytes.  Small ones are lent to the consumer until its next call; large ones change hands.
struct Body {
  static constexpr std::size_t kLentMax = 65536;

  std::unique_ptr<std::byte, FreeBody> memory;
  std::size_t bytes = 0;
  std::size_t capacity = 0;  // a power of two, so that a binding needs few distinct types

  static Body allocate(std::size_t bytes) noexcept;  // memory is null when there is none
};

struct Event {
  ofl_event_kind kind = OFL_EVENT_CONNECTED;
  std::uint64_t connection = 0;
  std::uint64_t sequence = 0;
  Nanoseconds received = 0;
  std::uint16_t version = 0;
  Body body;
  std::string text;
};

class EventQueue {
 public:
  void push(Event&& event) {
    const std::scoped_lock lock(mutex_);
    events_.push_back(std::move(event));
  }
  bool pop(Event& event) {
    const std::scoped_lock lock(mutex_);
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    return true;
  }
  std::size_t size() {
    const std::scoped_lock lock(mutex_);
    return events_.size();
  }

 private:
  std::mutex mutex_;
  std::deque<Event> events_;
};

struct ServerShared {
  ServerOptions options;
  std::uint64_t boot_nonce = 0;
  Counters counters;
  EventQueue events;
  std::atomic<std::uint32_t> open_connections{0};
};

}  // namespace ofl
