// What the server and its connections share: options, counters, and the queue of events.  Holds no socket.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "access.hpp"
#include "auth.hpp"
#include "body.hpp"
#include "clock.hpp"
#include "ofl.h"
#include "wire.hpp"

namespace ofl {

struct ServerOptions {
  std::string service;
  std::optional<std::string> key_file;  // none: no authentication
  std::vector<std::string> allowed;     // empty: every address
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
  Nanoseconds spin = 0;
};

enum class Counter : std::uint32_t {
  accepted,            // negotiations that succeeded
  refused,             // negotiations answered with a refusal
  garbage,             // connections dropped for bytes that are no frame, or a frame out of place
  oversized,           // connections dropped for a frame over the limit
  handshake_timeouts,  // connections dropped because they never negotiated
  evicted,             // negotiating connections that gave way to newer ones
  auth_failures,       // connections refused for a proof that is missing or wrong
  auth_limited,        // connections closed because their address failed too often just before
  not_allowed,         // connections closed because their address is not on the list
  link_failures,       // negotiated connections that never got their RDMA or shared-memory link
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
  // For what the leader alone counts: no atomic read-modify-write.
  void add_as_leader(Counter counter, std::uint64_t amount = 1) noexcept {
    std::atomic<std::uint64_t>& value = values_[static_cast<std::size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  std::uint64_t at(std::size_t index) const noexcept { return values_[index].load(std::memory_order_relaxed); }
  static const char* name(std::size_t index) noexcept;

 private:
  std::array<std::atomic<std::uint64_t>, OFL_COUNTERS> values_{};
};

static_assert(static_cast<std::size_t>(Counter::bytes_out) + 1 == OFL_COUNTERS);

class Connection;

struct Event {
  ofl_event_kind kind = OFL_EVENT_CONNECTED;
  std::uint64_t connection = 0;
  std::uint64_t sequence = 0;
  Nanoseconds received = 0;
  std::uint16_t version = 0;
  Body body;
  std::uint64_t reply_bytes_max = 0;
  std::shared_ptr<Connection> from;  // of a request in the queue
  std::string text;
};

class EventQueue {
 public:
  void push(Event&& event) {
    std::list<Event> one;
    one.push_back(std::move(event));
    push(std::move(one));
  }
  // Needs no memory: for what must be said whatever is left of it.
  void push(std::list<Event>&& made) noexcept {
    const std::scoped_lock lock(mutex_);
    events_.splice(events_.end(), made);
    size_.store(events_.size(), std::memory_order_release);
  }
  bool pop(Event& event) {
    if (size() == 0) return false;
    const std::scoped_lock lock(mutex_);
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    size_.store(events_.size(), std::memory_order_release);
    return true;
  }
  std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::list<Event> events_;
  std::atomic<std::size_t> size_{0};  // so that a loop may look without the mutex
};

struct ServerShared {
  ServerOptions options;
  std::optional<Key> key;
  AllowList allowed;
  FailureLimiter failures;  // the leader's
  std::uint64_t boot_nonce = 0;
  Counters counters;
  EventQueue events;
  // A consumer that leads takes the first request from here, past the queue.  Its own and nobody else's, while it leads.
  Event direct;
  Connection* direct_from = nullptr;  // while direct_state is full; dropping the connection empties it
  enum class Direct : std::uint8_t { off, empty, full } direct_state = Direct::off;

  // The leader's.  Where the consumer leads, small ones come back from it, and so without the allocator.
  Body small_body(std::size_t bytes) noexcept {
    if (direct_state != Direct::empty || !direct.body.memory || bytes > direct.body.capacity) return Body::allocate(bytes);
    Body body = std::move(direct.body);
    body.bytes = bytes;
    return body;
  }

  bool anything() const noexcept { return direct_state == Direct::full || events.size() > 0; }
  std::atomic<std::uint32_t> open_connections{0};
};

}  // namespace ofl
